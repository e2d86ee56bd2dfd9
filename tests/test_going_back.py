"""Going back and on again (R2): the logits are a fresh context's, however the state was taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair
from .support.sessions import ENDLESS, finish, plain

PROMPT = [(7 * i + i // 5) % 256 for i in range(90)]
BLOCK = 8
AHEAD = 12  # tokens that are written after going back
# of logits of about 10: rows decoded together are summed in another order. A state that is off shows by 0.1
NEAR = 1e-4

Rows = np.ndarray[Any, Any]


def context(target: Path, *, rollback: int = 0, rows: int = 64) -> Any:
    """Open a target in f32 without flash attention."""
    native = core()
    model, params = native.Model(str(target)), native.ContextParams()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs = 512, rows, rows, rows
    params.n_rollback = rollback if model.has_state else 0
    params.n_threads = params.n_threads_batch = 1
    params.type_kv = params.flash_attn = 0
    return native.Context(model, params)


def fresh(target: Path, text: list[int]) -> Rows:
    """The logits after each token of `text`, [len(text), n_vocab], from a context that has seen nothing else."""
    rows: Rows = context(target, rows=256).evaluate(text, 0)
    return rows


def log_softmax(logits: Rows) -> Rows:
    shifted = np.asarray(logits, np.float64) - logits.max(axis=-1, keepdims=True)
    found: Rows = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


class Opened:
    """A session of scripted drafts, and the context that it works in."""

    def __init__(self, pair: Pair, *, replay: bool, memory: int = 0) -> None:
        self.pair = pair
        self.context = context(pair.target, rollback=0 if replay else BLOCK - 1, rows=32)
        self.drafter = core().ScriptedDrafter(VOCAB)
        target = core().Target(self.context, [])
        self.session = core().Session(
            target, self.drafter, BLOCK, replay=replay, prefix_memory=memory
        )

    def add(self, prompt: list[int], text: list[int], counts: list[int], **options: Any) -> int:
        """Begin an answer whose drafts are right for so many tokens of `text`, round by round."""
        settings: dict[str, Any] = {"block": BLOCK, "stops": ENDLESS, "max_tokens": len(text)}
        number: int = self.session.add(prompt, **(settings | options))
        self.drafter.script(number, prompt + text, counts)
        return number

    def write(self, number: int, least: int) -> list[int]:
        """Step until so many tokens have been written; return them."""
        tokens: list[int] = []
        while len(tokens) < least:
            tokens += [token for output in self.session.step() for token in output.tokens]
        return tokens

    def answers_like_fresh(self, prompt: list[int]) -> int:
        """Compare every log-probability of every row of an answer; return how much was reused."""
        text = plain(self.pair.target, prompt, AHEAD, exact=True)
        number = self.add(prompt, text, [2, 0, 7], logprobs=VOCAB)
        tokens: list[int] = []
        found = []
        while len(tokens) < AHEAD:
            for output in self.session.step():
                tokens += output.tokens
                found += [dict(top) for _, top in output.logprobs]
        assert tokens == text
        rows = np.array([[row[token] for token in range(VOCAB)] for row in found])
        wanted = log_softmax(fresh(self.pair.target, prompt + text)[len(prompt) - 1 : -1])
        assert rows.shape == wanted.shape == (AHEAD, VOCAB)
        assert np.abs(rows - wanted).max() < NEAR
        reused: int = self.session.counters(number).reused_tokens
        self.session.remove(number)
        return reused


@pytest.mark.parametrize("back", [1, 2, BLOCK - 1])
@pytest.mark.parametrize("replay", [False, True])
def test_a_block_that_was_rejected(pair: Pair, back: int, replay: bool) -> None:
    """A verify of back + 1 rows is taken back by all but its anchor, round after round."""
    text = plain(pair.target, PROMPT, 40, exact=True)
    for rounds in (1, 2, 5):
        opened = Opened(pair, replay=replay)
        number = opened.add(PROMPT, text, [0], block=back + 1)
        said = opened.write(number, 1 + rounds)
        counters = opened.session.counters(number)
        assert (counters.drafted, counters.accepted) == (back * (len(said) - 1), 0)
        whole = PROMPT + said
        wanted = fresh(pair.target, whole + text[len(said) : len(said) + back])[len(whole) - 1 :]
        # and so many rows again, from where it stands now
        again = opened.context.evaluate(
            [said[-1], *text[len(said) : len(said) + back]], len(whole) - 1
        )
        assert np.abs(again - wanted).max() < NEAR


@pytest.mark.parametrize("back", [1, 2, BLOCK + 1])
@pytest.mark.parametrize("counts", [[0], [7], [3, 0, 5]])
@pytest.mark.parametrize("replay", [False, True])
def test_an_answer_that_is_gone_back_behind(
    pair: Pair, back: int, counts: list[int], replay: bool
) -> None:
    """The next prompt leaves out the last tokens that were read: more of them than a block has rows, too."""
    opened = Opened(pair, replay=replay, memory=10**9)
    text = plain(pair.target, PROMPT, 20, exact=True)
    number = opened.add(PROMPT, text, counts)
    assert finish(opened.session, [number])[number] == text
    opened.session.remove(number)
    kept = len(PROMPT) + len(text) - 1 - back
    prompt = (PROMPT + text)[:kept]
    prompt.append((text[kept - len(PROMPT)] + 1) % 256)  # goes on otherwise
    reused = opened.answers_like_fresh(prompt)
    recurrent = core().Model(str(pair.target)).has_state
    assert reused == (len(PROMPT) - 1 if recurrent else kept)


@pytest.mark.parametrize("way", ["removed", "ended", "given up"])
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("memory", [0, 10**9])
def test_an_answer_that_was_cancelled(pair: Pair, way: str, replay: bool, memory: int) -> None:
    opened = Opened(pair, replay=replay, memory=memory)
    text = plain(pair.target, PROMPT, 40, exact=True)
    number = opened.add(PROMPT, text, [3, 0, 7])
    said = opened.write(number, 6)
    if way != "removed":
        interrupt = opened.session.interrupt(number)
        if way == "ended":
            interrupt.set()
        else:
            interrupt.set_after(60)  # in the middle of the verify's graph
        while not any(o.finish == core().Finish.cancelled for o in opened.session.step()):
            assert way == "given up"
    opened.session.remove(number)
    for prompt in (PROMPT, PROMPT + said[:4] + [9], PROMPT[:50]):
        opened.answers_like_fresh(prompt)


def test_all_of_a_decode_is_not_taken_back(hybrid: Pair, dense: Pair) -> None:
    """llama.cpp would say it had done so, and leave a state that is nobody's."""
    for rows in (1, 2, BLOCK + 1):
        made = context(hybrid.target, rollback=BLOCK, rows=128)
        made.evaluate(PROMPT, 0)
        made.evaluate(PROMPT[:rows], len(PROMPT))
        with pytest.raises(RuntimeError, match="cannot take sequence 0 back to position 90"):
            made.truncate(0, len(PROMPT))
        if rows > 1:
            made.truncate(0, len(PROMPT) + 1)  # all but one
            with pytest.raises(RuntimeError, match="cannot take sequence 0 back to position 90"):
                made.truncate(0, len(PROMPT))
    free = context(dense.target, rows=128)
    free.evaluate(PROMPT, 0)
    free.truncate(0, 40)
    again = free.evaluate(PROMPT[40:], 40)
    assert np.abs(again - fresh(dense.target, PROMPT)[40:]).max() < NEAR

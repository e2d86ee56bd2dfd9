"""Whole answers with DFlash2 and DSpark drafters: the target's own, alone and in company, greedy and sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf._native import core
from dflash_gguf.convert import convert
from dflash_gguf.errors import UsageError

from .support.command import command
from .support.family_pairs import BLOCK, VARIANTS, FamilyPair, make_family_pair
from .support.family_rig import FamilyRig
from .support.random_pairs import MASK, Pair

PROMPTS = [[(i * 31 + 17 * k) % 256 for i in range(9 + 7 * k)] for k in range(4)]
TOKENS = 40
DRAWN = dflash_gguf.Sampling(temperature=0.9, top_k=4, repeat_penalty=1.05, seed=42)


@pytest.fixture(scope="module", params=[(v, h) for v in VARIANTS for h in (False, True)], ids=str)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FamilyPair:
    """A pair of few tokens, so that drafts are partly right."""
    variant, hybrid = request.param
    return make_family_pair(tmp_path_factory.mktemp(variant), variant, hybrid=hybrid, few=True)


def load(made: FamilyPair, *, drafter: bool = True, **options: Any) -> dflash_gguf.Engine:
    draft = made.pair.draft if drafter else None
    return dflash_gguf.load(made.pair.target, draft, kv_type="f32", threads=1, **options)


def answers(engine: dflash_gguf.Engine, blocks: list[int | None], **options: Any) -> list[Any]:
    """Answer the prompts side by side as far as the engine takes them, else one after the other."""
    started = []
    for prompt, block in zip(PROMPTS, blocks, strict=True):
        while not engine.free:
            engine.step()
        options = {"max_tokens": TOKENS, "ignore_end": True, **options}
        started.append(engine.start(prompt, block=block, **options))
    while engine.busy:
        engine.step()
    return started


@pytest.mark.parametrize("sampling", [None, DRAWN], ids=["greedy", "drawn"])
def test_answers_are_the_targets_own(made: FamilyPair, sampling: Any) -> None:
    with load(made, drafter=False) as engine:
        own = [answer.tokens for answer in answers(engine, [None] * 4, sampling=sampling)]
    assert len(set(map(tuple, own))) == 4
    widest = made.most + 1
    blocks: list[list[int | None]] = [[widest] * 4, [2, 5, widest, 3], [None] * 4]
    accepted = drafted = 0
    for sequences in (1, 4):
        with load(made, sequences=sequences) as engine:
            for widths in blocks:
                found = answers(engine, widths, sampling=sampling)
                assert [answer.tokens for answer in found] == own
                if None not in widths:
                    accepted += sum(answer.stats.accepted for answer in found)
                    drafted += sum(answer.stats.drafted for answer in found)
            assert engine.warnings == []
    assert 0.02 * drafted < accepted < drafted


def test_each_answer_is_drawn_its_own_way_in_company(made: FamilyPair) -> None:
    """Greedy ones and drawn ones of different seeds share a decode."""
    ways = [None, DRAWN, replace(DRAWN, seed=7, temperature=2.0), replace(DRAWN, seed=8)]
    with load(made, drafter=False) as engine:
        own = [
            engine.generate(prompt, max_tokens=TOKENS, ignore_end=True, sampling=way).tokens
            for prompt, way in zip(PROMPTS, ways, strict=True)
        ]
    with load(made, sequences=4) as engine:
        found = [
            engine.start(
                prompt,
                max_tokens=TOKENS - 3 * i,
                block=made.most + 1,
                ignore_end=True,
                sampling=way,
            )
            for i, (prompt, way) in enumerate(zip(PROMPTS, ways, strict=True))
        ]
        while engine.busy:
            engine.step()
        assert engine.warnings == []
    for i, answer in enumerate(found):
        assert answer.tokens == own[i][: TOKENS - 3 * i]


@pytest.mark.parametrize("kind", ["bf16", "q4_k_m"])
def test_quantised_drafters_are_driven(made: FamilyPair, kind: str, tmp_path: Path) -> None:
    source = made.pair.draft.parent / "draft"
    (written,) = convert(source, made.pair.target, outdir=tmp_path, outtypes=[kind])
    with load(made, drafter=False) as engine:
        own = [answer.tokens for answer in answers(engine, [None] * 4)]
    quantised = replace(made, pair=Pair(made.pair.target, written.path))
    with load(quantised, sequences=4) as engine:
        found = answers(engine, [made.most + 1] * 4)
        assert engine.warnings == []
    assert [answer.tokens for answer in found] == own
    assert sum(answer.stats.accepted for answer in found) > 0


def test_rejection_sampling_draws_among_the_targets_tokens(made: FamilyPair) -> None:
    sampling = replace(DRAWN, draft_sampling="rejection")
    with load(made, sequences=4) as engine:
        found = answers(engine, [made.most + 1] * 4, sampling=sampling)
        assert engine.warnings == []
    accepted = sum(answer.stats.accepted for answer in found)
    assert 0 < accepted < sum(answer.stats.drafted for answer in found)


def test_a_second_turn_drafts_as_a_fresh_run(made: FamilyPair) -> None:
    block = made.most + 1
    options: dict[str, Any] = {"max_tokens": TOKENS, "ignore_end": True, "block": block}
    with load(made) as engine, load(made, prefix_memory=0) as fresh:
        first = engine.generate(PROMPTS[3], **options)
        text = [*PROMPTS[3], *first.tokens[:-1], *PROMPTS[0]]
        again, other = engine.generate(text, **options), fresh.generate(text, **options)
    assert again.stats is not None
    assert other.stats is not None
    assert again.stats.reused_tokens >= len(PROMPTS[3]) - 1
    assert again.tokens == other.tokens
    assert again.stats.accepted_at == other.stats.accepted_at


def test_a_block_beyond_the_trained_one_is_refused(made: FamilyPair) -> None:
    most = made.most + 1
    with pytest.raises(UsageError, match=f"block {most + 1} is wider than the {most} that"):
        load(made, max_block=most + 1)
    rig = FamilyRig(made)
    number, _ = rig.read(PROMPTS[0])
    wide = f"a block of {BLOCK + 1} rows, the drafter was trained for {BLOCK}"
    with pytest.raises(RuntimeError, match=wide):
        rig.draft((number, len(PROMPTS[0]), 1, most))


def test_answers_end_at_the_edge_of_the_context(made: FamilyPair) -> None:
    """Blocks of sequences that have room and of one that has none left, which cannot be padded to theirs."""
    with load(made, drafter=False, context=64) as engine:
        own = [a.tokens for a in answers(engine, [None] * 4, max_tokens=None)]
    with load(made, sequences=4, context=64) as engine:
        found = answers(engine, [made.most + 1] * 4, max_tokens=None)
        assert engine.warnings == []
    assert [answer.tokens for answer in found] == own
    assert [len(a.tokens) + len(p) for a, p in zip(found, PROMPTS, strict=True)] == [64] * 4


def test_drafters_of_another_family_are_refused(made: FamilyPair) -> None:
    native = core()
    model, draft = native.Model(str(made.pair.target)), native.Model(str(made.pair.draft))
    params = native.ContextParams()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs, params.n_seq = (
        64,
        32,
        32,
        32,
        2,
    )
    context = native.Context(model, params)
    parts = (draft, params, context, 3, [False, False])
    if "selector_rank" not in made.config["dflash_config"]:
        with pytest.raises(ValueError, match="the drafter has no selector"):
            native.LatticeDrafter(*parts)
        with pytest.raises(ValueError, match="needs a unified cache"):
            native.DsparkDrafter(*parts, from_anchor=True, confidence=False)
    else:
        with pytest.raises(RuntimeError, match="not read by their logits"):
            native.LatticeDrafter(*parts).block_logits(0, 0, 1, 2)
        with pytest.raises(ValueError, match="has a selector"):
            native.ModelDrafter(*parts)


def test_a_graph_without_a_chain_is_an_error(dense: Pair) -> None:
    native = core()
    model, draft = native.Model(str(dense.target)), native.Model(str(dense.draft))
    params = native.ContextParams()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs = 64, 32, 32, 32
    context = native.Context(model, params)
    drafter = native.DsparkDrafter(
        draft, params, context, MASK, [False] * 2, from_anchor=False, confidence=False
    )
    drawn = native.Sampling()
    drawn.temperature = 1.0
    with pytest.raises(RuntimeError, match=r"0 links were found in llama.cpp's graph, expected 3"):
        drafter.draft_sampled([(0, 0, 1, 4)], drawn)


@pytest.mark.parametrize(("variant", "family"), [("dflash2", "DFlash2"), ("dspark", "DSpark")])
def test_the_command_line_runs_and_inspects_them(variant: str, family: str, tmp_path: Path) -> None:
    made = make_family_pair(tmp_path, variant)
    pair = ("--target", made.pair.target)
    draft = ("--draft", made.pair.draft, "--block", made.most + 1)
    done = command("run", *pair, *draft, "-p", "hi", "-n", 12, "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert f"/{made.most + 1} (" in done.stderr
    seen = command("inspect", made.pair.draft, *pair)
    assert seen.returncode == 0
    assert f"  {family}, architecture dflash" in seen.stdout
    assert "they fit" in seen.stdout

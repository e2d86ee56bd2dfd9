"""Blocks as wide as it pays: whatever is chosen, the text is the target's own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Sampling, UsageError
from dflash_gguf._native import core
from dflash_gguf.calibration import Effort, Learnt, Notebook

from .support.random_pairs import Pair, make_pair
from .support.sessions import ENDLESS, finish, open_session, plain
from .support.tiny import Tiny

PROMPT = [3 * i % 256 for i in range(20)]
QUICK: dict[str, Any] = {"threads": 1, "context": 512, "kv_type": "f32"}
MS = 1e6
# drafts that pay, and ones that do not
CHEAP = [(1, 1, 0.0, 10 * MS, 0.0, 1), (1, 8, 0.1 * MS, 11 * MS, 0.1 * MS, 4)]
DEAR = [(1, 1, 0.0, 1 * MS, 0.0, 1), (1, 8, 20 * MS, 40 * MS, 5 * MS, 4)]


def steer(session: Any, points: list[Any] = CHEAP, **options: Any) -> None:
    """Give a session costs; changing its snapshots is free, so that it does so as often as it can."""
    free = {"depth": 0, "slots": [(1, 1, 0.5 * MS)], "rebuild": 0.0, "shift": 0.0, "outcomes": []}
    session.steer(points, **{**free, **options})


@pytest.mark.parametrize("counts", [[7], [0], [7, 0, 3, 1, 7, 7, 7], [0] * 30 + [7] * 30])
def test_text_stays_when_widths_and_snapshots_change(pair: Pair, counts: list[int]) -> None:
    expected = plain(pair.target, PROMPT, 200)
    drafter = core().ScriptedDrafter(262)
    session = open_session(pair.target, block=8, drafter=drafter)
    steer(session)
    depths = set()
    number = session.add(PROMPT, max_tokens=200, block=0, stops=ENDLESS)
    drafter.script(number, PROMPT + expected, counts)
    tokens: list[int] = []
    while len(tokens) < 200:
        for output in session.step():
            tokens += output.tokens
        depths.add(session.depth)
    assert tokens == expected
    counters = session.counters(number)
    assert counters.emitted == 1 + counters.rounds + counters.accepted == 200
    if counts == [7]:
        assert counters.drafting_rounds > 10
        assert counters.rounds < 100
    if "hybrid" in str(pair.target):
        assert len(depths) > 1 or counts == [0]


def test_several_sequences_of_their_own_kinds(pair: Pair) -> None:
    prompts = [PROMPT[i:] for i in range(4)]
    expected = [plain(pair.target, prompt, 60) for prompt in prompts]
    drafter = core().ScriptedDrafter(262)
    session = open_session(pair.target, block=8, sequences=4, drafter=drafter)
    steer(session)
    ids = []
    # two leave the width to the session, one says its own, one never drafts
    for prompt, text, block in zip(prompts, expected, (0, 0, 5, 1), strict=True):
        ids.append(session.add(prompt, max_tokens=60, block=block, stops=ENDLESS))
        drafter.script(ids[-1], prompt + text, [7, 2, 0, 5])
        session.step()
    tokens = finish(session, ids)
    firsts = {number: expected[i][: 60 - len(tokens[number])] for i, number in enumerate(ids)}
    assert [firsts[number] + tokens[number] for number in ids] == expected
    assert session.counters(ids[2]).drafting_rounds > 0
    assert session.counters(ids[3]).drafted <= 60  # hybrid targets share one width


def test_features_wait_and_the_newest_are_given(pair: Pair) -> None:
    """A drafter that is only looked at now and then sees no jump but where it was told to begin anew."""
    drafter = core().ScriptedDrafter(262)
    session = open_session(pair.target, block=8, drafter=drafter, n_ctx=1024)
    steer(session, DEAR)
    number = session.add(PROMPT, max_tokens=900, block=0, stops=ENDLESS)
    drafter.script(number, [], [0])
    finish(session, [number])
    assert session.counters(number).drafting_rounds == 0
    assert session.counters(number).injected < 900


def test_a_loaded_pair_gives_the_targets_text(tiny: Tiny) -> None:
    draft = tiny.draft("f32")
    prompts = [prompt["messages"] for prompt in tiny.prompts[::16]]
    with dflash_gguf.load(tiny.target_f32, threads=1, context=512) as engine:
        expected = [engine.generate(prompt, max_tokens=96).tokens for prompt in prompts]
    with dflash_gguf.load(tiny.target_f32, draft, threads=1, context=512, sequences=3) as engine:
        together = [engine.start(prompt, max_tokens=96) for prompt in prompts[:3]]
        while engine.busy:
            engine.step()
        alone = [engine.generate(prompt, max_tokens=96) for prompt in prompts[3:]]
    answers = together + alone
    assert [answer.tokens for answer in answers] == expected
    assert all(answer.stats is not None for answer in answers)


@pytest.mark.parametrize("seed", [1, 42])
def test_a_seed_gives_one_text_whatever_is_chosen(pair: Pair, seed: int) -> None:
    sampling = Sampling(temperature=0.8, seed=seed)
    texts = set()
    with dflash_gguf.load(pair.target, **QUICK) as engine:
        texts.add(
            tuple(engine.generate(PROMPT, max_tokens=60, ignore_end=True, sampling=sampling).tokens)
        )
    with dflash_gguf.load(pair.target, pair.draft, **QUICK) as engine:
        for block in ("auto", 4, 8, "auto"):
            answer = engine.generate(
                PROMPT, max_tokens=60, ignore_end=True, sampling=sampling, block=block
            )
            texts.add(tuple(answer.tokens))
    assert len(texts) == 1


def test_an_engine_for_one_width_measures_nothing(pair: Pair, tmp_path: Path) -> None:
    with dflash_gguf.load(pair.target, pair.draft, block=4, **QUICK) as engine:
        assert engine.block == 4
        assert engine.generate(PROMPT, max_tokens=3).block == 4
        with pytest.raises(UsageError, match="loaded for a fixed block"):
            engine.start(PROMPT, block="auto")
    assert not (tmp_path / "cache" / "costs").exists()
    with pytest.raises(UsageError, match="block 5 is wider than the 4 rows"):
        dflash_gguf.load(pair.target, pair.draft, block=5, max_block=4, **QUICK)
    with pytest.raises(UsageError, match="block is 'wide'; expected"):
        dflash_gguf.load(pair.target, pair.draft, block="wide", **QUICK)


@pytest.mark.usefixtures("alone")
def test_costs_are_measured_once_and_outcomes_kept(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "costs"
    with dflash_gguf.load(pair.target, pair.draft, **QUICK):
        (kept,) = folder.iterdir()
        measured = json.loads(kept.read_text())
    assert {point[1] for point in measured["points"]} >= {1, 8}
    assert all(point[3] > 0 for point in measured["points"])
    measured["outcomes"] = [[30.0, 29.0]] * 7
    kept.write_text(json.dumps(measured))
    with dflash_gguf.load(pair.target, pair.draft, **QUICK) as engine:
        assert engine._parts is not None
        # believed as far as earlier runs are
        assert engine._parts.session.outcomes[0] == pytest.approx((20.0, 20 * 29 / 30))
    assert json.loads(kept.read_text())["points"] == measured["points"]
    kept.write_text("{")
    with dflash_gguf.load(pair.target, pair.draft, **QUICK):
        assert json.loads(kept.read_text())["points"]
    with dflash_gguf.load(pair.target, pair.draft, **{**QUICK, "threads": 2}):
        assert len(list(folder.iterdir())) == 2  # another number of threads costs something else


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "damage",
    [
        {"points": []},
        {"points": [["a"]]},
        {"points": [[1, 1, 1, math.nan, 1, 1]]},
        {"depth": math.inf},
        {"depth": -3},
        {"slots": [[1]]},
        {"outcomes": [[math.nan, 1]]},
        {"outcomes": [[1, 5]]},
    ],
)
def test_damaged_costs_are_measured_again(
    dense: Pair, tmp_path: Path, damage: dict[str, Any]
) -> None:
    folder = tmp_path / "cache" / "costs"
    dflash_gguf.load(dense.target, dense.draft, **QUICK).close()
    (kept,) = folder.iterdir()
    sound = json.loads(kept.read_text())
    kept.write_text(json.dumps(sound | damage))
    with dflash_gguf.load(dense.target, dense.draft, **QUICK) as engine:
        assert len(engine.generate(PROMPT, max_tokens=5, ignore_end=True).tokens) == 5
        again = json.loads(kept.read_text())
    assert {name: again[name] for name in damage} != damage
    assert again["points"][0][:2] == [1, 1]


def test_a_folder_that_cannot_be_written_does_no_harm(
    dense: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DFLASH_GGUF_CACHE", str(tmp_path / "file"))
    with dflash_gguf.load(dense.target, dense.draft, **QUICK) as engine:
        assert len(engine.generate(PROMPT, max_tokens=5, ignore_end=True).tokens) == 5
    assert Notebook({}).read() is None
    Notebook({}).write(Learnt([], 0, [], 0.0, 0.0, []))
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize(
    ("cpu", "preempted", "disturbed"),
    [
        (1.9, 100, False),  # an idle desktop
        (1.0, 500, True),
        (0.3, 5, False),  # waiting for a device
        (1.55, 30, False),
    ],
)
def test_costs_measured_beside_other_programs_are_told_apart(
    cpu: float, preempted: int, disturbed: bool
) -> None:
    before, after = Effort(10.0, 5.0, 70), Effort(11.0, 5.0 + cpu, 70 + preempted)
    assert before.disturbed_until(after, threads=2) is disturbed


def test_disturbed_costs_are_not_kept(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFLASH_GGUF_CACHE", str(tmp_path))
    for disturbed, kept in ((True, 0), (False, 1)):
        monkeypatch.setattr(Effort, "disturbed_until", lambda *_, answer=disturbed: answer)
        dflash_gguf.load(tiny.target, tiny.draft("bf16"), **QUICK).close()
        assert len(list((tmp_path / "costs").glob("*.json"))) == kept


def test_widths_are_chosen_too_where_accepted_tokens_are_decoded_again(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, hybrid=True, experts=2)  # keeps no snapshots
    with dflash_gguf.load(pair.target, threads=1, context=512) as engine:
        expected = engine.generate(PROMPT, max_tokens=60, ignore_end=True).tokens
    with dflash_gguf.load(pair.target, pair.draft, threads=1, context=512) as engine:
        answer = engine.generate(PROMPT, max_tokens=60, ignore_end=True)
        assert answer.tokens == expected
        assert engine._open().session.estimates(1)[7][2] > 0

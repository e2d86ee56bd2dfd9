"""Simulated acceptance: the drafter works, a curve decides, and the answer says so."""

from __future__ import annotations

from collections import abc
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Sequence, Simulation, Stats, UsageError
from dflash_gguf.draft_file import cache_folder
from dflash_gguf.shapes import write_shape
from dflash_gguf.survival_curves import GSM8K, SURVIVAL, curve_of_lengths

from .support.random_pairs import Pair
from .support.shapes import MINI

QUICK: dict[str, Any] = {"threads": 1, "context": 2048}
PROMPT = [3, 77, 150, 9, 201, 44, 5]


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair whose drafts are noise."""
    made = write_shape(MINI, tmp_path_factory.mktemp("mini"))
    return Pair(made.target_path, made.draft.path)


def answer_of(pair: Pair, simulation: Simulation | None, **options: Any) -> Sequence:
    with dflash_gguf.load(pair.target, pair.draft, simulate=simulation, **QUICK) as engine:
        return engine.generate(PROMPT, ignore_end=True, block=8, **options)


def stats_of(answer: Sequence) -> Stats:
    assert answer.stats is not None
    return answer.stats


def test_acceptance_follows_the_curve(mini: Pair) -> None:
    curve = (0.9, 0.7, 0.7, 0.4, 0.2, 0.0, 0.0)
    stats = stats_of(answer_of(mini, Simulation(curve), max_tokens=1500))
    assert stats.drafting_rounds > 300
    for position, expected in enumerate(curve[:-1]):
        found = stats.accepted_at[position] / stats.drafted_at[position]
        assert abs(found - expected) < 0.1, position
    assert stats.accept_length == pytest.approx(1 + sum(curve), abs=0.3)
    assert stats.emitted == 1 + stats.rounds + stats.accepted


def test_the_drafter_does_its_work(mini: Pair) -> None:
    simulate = Simulation([1.0] * 7)
    with dflash_gguf.load(mini.target, mini.draft, simulate=simulate, **QUICK) as engine:
        answer = engine.generate(PROMPT, ignore_end=True, block=8, max_tokens=100)
        times = engine.times()
    stats = stats_of(answer)
    assert times["draft"] > 0
    assert times["inject"] > 0
    assert stats.injected >= len(PROMPT) + stats.emitted - 8
    # blocks of its own tokens; of the target's there are only one a round and the first
    assert len(set(answer.tokens)) > stats.rounds + 1


def test_a_seed_gives_the_same_draws(mini: Pair) -> None:
    first, again, other = (
        answer_of(mini, Simulation(seed=seed), max_tokens=200) for seed in (4, 4, 5)
    )
    assert first.tokens == again.tokens
    assert stats_of(first).accepted_at == stats_of(again).accepted_at
    assert stats_of(first).accepted_at != stats_of(other).accepted_at


def test_what_is_tried_out_follows_the_curve_too(
    mini: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chance in (1.0, 0.0):
        monkeypatch.setenv("DFLASH_GGUF_CACHE", str(tmp_path / str(chance)))
        simulate = Simulation([chance] * 7)
        with dflash_gguf.load(
            mini.target, mini.draft, simulate=simulate, **QUICK, prefix_memory=0
        ) as engine:
            engine.generate(PROMPT, ignore_end=True, max_tokens=300)
            (tested, accepted), *_ = engine._open().session.outcomes
        assert tested > 0
        assert accepted == chance * tested


def test_only_simulated_answers_are_marked(mini: Pair) -> None:
    simulated = stats_of(answer_of(mini, Simulation(), max_tokens=20))
    real = stats_of(answer_of(mini, None, max_tokens=20))
    assert simulated.simulated
    assert simulated.line().endswith(" · simulated")
    assert not real.simulated
    assert "simulated" not in real.line()


def test_the_built_in_curve_gives_its_known_lengths() -> None:
    # tokens of a verify of 4, 8, 12 and 16 rows
    curve = Simulation().curve()
    assert curve == SURVIVAL[GSM8K]
    lengths = [round(1 + sum(curve[: rows - 1]), 1) for rows in (4, 8, 12, 16)]
    assert lengths == [3.4, 5.5, 6.8, 7.7]


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        # the accept length tables of the model cards, by rows of a verify
        ("gsm8k", {4: 3.452, 8: 5.400, 16: 6.949}),
        ("gsm8k-mtp", {4: 3.464, 8: 5.276, 16: 6.388}),
        ("math500", {4: 3.555, 8: 5.757, 16: 7.721}),
        ("math500-mtp", {4: 3.541, 8: 5.466, 16: 6.728}),
        ("humaneval", {4: 3.571, 8: 5.798, 16: 7.927}),
        ("humaneval-mtp", {4: 3.493, 8: 5.326, 16: 6.399}),
        ("mbpp", {4: 3.454, 8: 5.376, 16: 6.820}),
        ("mbpp-mtp", {4: 3.338, 8: 4.790, 16: 5.508}),
        ("mt-bench", {4: 3.193, 8: 4.606, 16: 5.716}),
        ("mt-bench-mtp", {4: 3.229, 8: 4.551, 16: 5.438}),
        ("alpaca", {8: 4.35, 16: 5.10}),
        ("alpaca-mtp", {8: 4.38, 16: 5.03}),
    ],
)
def test_the_cards_curves_have_the_cards_accept_lengths(
    name: str, lengths: dict[int, float]
) -> None:
    curve = Simulation(f"qwen3.5-9b-{name}").curve()
    assert len(curve) == 15
    for rows, length in lengths.items():
        assert 1 + sum(curve[: rows - 1]) == pytest.approx(length, abs=1e-6)


def test_lengths_that_no_curve_has_are_refused() -> None:
    assert curve_of_lengths((3,), (1.0,)) == pytest.approx((0.0, 0.0))
    assert curve_of_lengths((3, 4), (3.0, 4.0)) == pytest.approx((1.0, 1.0, 1.0))
    for lengths in ((4.1, 5.0), (3.0, 2.9), (1.0, 1.5)):
        with pytest.raises(ValueError, match="accept lengths"):
            curve_of_lengths((4, 8), lengths)


def test_mtp_draws_from_the_curve_of_the_same_source() -> None:
    beside = Simulation("qwen3.5-9b-mbpp", seed=7).of_mtp()
    assert (beside.survival, beside.seed) == ("qwen3.5-9b-mbpp-mtp", 7)
    for other in (Simulation(), Simulation([0.5, 0.25])):
        assert other.of_mtp() is other
    assert Simulation([0.5, 0.25]).label == "0.5,0.25"
    assert beside.label == beside.survival


@pytest.mark.parametrize(
    ("survival", "seed", "fault"),
    [
        ("gsm9k", 0, "no survival curve 'gsm9k'; expected one of qwen3.5-27b-gsm8k"),
        ([], 0, "expected one value or more"),
        ([0.5, 0.6], 0, "do not increase"),
        ([1.1], 0, "do not increase"),
        ([0.5, -0.1], 0, "from 1 to 0"),
        ([float("nan")], 0, "from 1 to 0"),
        ([0.5], -1, "the simulation's seed is -1"),
    ],
)
def test_what_is_no_curve_is_refused(
    survival: str | abc.Sequence[float], seed: int, fault: str
) -> None:
    with pytest.raises(UsageError, match=fault):
        Simulation(survival, seed)


def test_a_simulation_needs_a_drafter(mini: Pair) -> None:
    with pytest.raises(UsageError, match="simulate is given without a drafter"):
        dflash_gguf.load(mini.target, simulate=Simulation(), **QUICK)
    with pytest.raises(UsageError, match=r"expected a dflash_gguf\.Simulation"):
        dflash_gguf.load(mini.target, mini.draft, simulate=[0.5], **QUICK)


@pytest.mark.usefixtures("alone")
def test_what_is_learnt_of_a_simulation_is_kept_apart(mini: Pair) -> None:
    for simulate, known in ((Simulation(), 1), (None, 2), (Simulation(), 2)):
        dflash_gguf.load(mini.target, mini.draft, simulate=simulate, **QUICK).close()
        assert len(list((cache_folder() / "costs").iterdir())) == known


def test_many_sequences_share_the_draws(tmp_path: Path) -> None:
    made = write_shape(MINI, tmp_path)
    with dflash_gguf.load(
        made.target_path, made.draft.path, simulate=Simulation(), sequences=3, **QUICK
    ) as engine:
        answers = [
            engine.start(PROMPT[k:], ignore_end=True, block=8, max_tokens=90) for k in range(3)
        ]
        while engine.busy:
            engine.step()
    for answer in answers:
        stats = stats_of(answer)
        assert stats.emitted == 90
        assert stats.accepted > 30

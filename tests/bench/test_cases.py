"""Faults that people met with benchmarks, from a measurement's beginning to what is shown of it (R11, P1, P3, P6, P9).

Each is planted where the figures come from: in an engine's counters and clocks, or in what a server tells.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.bench import engine_arm, saved
from dflash_gguf.bench.measuring import Wishes, measured
from dflash_gguf.bench.records import Bench, Turn
from dflash_gguf.bench.saved import read_bench

from ..support.edited import edited
from ..support.fake_server import Fake, Reply, serving, stream
from ..support.random_pairs import Pair

WISHES = Wishes(
    target=None,
    draft=None,
    modes=None,
    block="4",
    context=512,
    threads=1,
    simulate=None,
    workloads=(),
    questions=2,
    max_tokens=12,
    concurrency="1",
    runs=1,
    think=None,
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    seed=0,
)
STORY = "The lighthouse keeper counted ships until the fog took the last of them away."


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A workload of two questions, one of them long."""
    file = tmp_path / "two.jsonl"
    file.write_text(json.dumps({"prompt": "a"}) + "\n" + json.dumps({"prompt": "b" * 90}) + "\n")
    return f"two={file}"


def run(wishes: Wishes, capsys: pytest.CaptureFixture[str], form: str = "md", **to: Any) -> Any:
    """Measure; return whether it was good, and what was shown."""
    good = measured(wishes, form, to.get("save_dir"), None, quiet=True)
    return good, *capsys.readouterr()


def saved_in(folder: Path) -> Bench:
    (made,) = folder.iterdir()
    return read_bench(made)


# P9: what an engine counts wrongly shows in the run that it is counted in


def test_what_an_engine_counts_adds_up(
    dense: Pair, two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wishes = replace(WISHES, target=dense.target, draft=dense.draft, workloads=(two,))
    for concurrency in ("1", "2"):
        good, out, err = run(replace(wishes, concurrency=concurrency, block="4,auto"), capsys)
        assert good, err
        assert "fault" not in err
        assert "Fault" not in out


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("emitted", lambda turn: {"rounds": (turn.rounds or 0) + 1}),
        ("emitted", lambda turn: {"completion_tokens": turn.completion_tokens - 1}),
        ("drafted", lambda turn: {"drafted": 3 * (turn.rounds or 0) + 1}),
        ("positions", lambda turn: {"drafted": (turn.drafted or 0) - 1}),
        ("positions", lambda turn: {"drafted_at": turn.drafted_at[:-1]}),
        ("positions", lambda turn: {"accepted_at": (*turn.accepted_at, 1)}),
        ("accepted", lambda turn: {"accepted": (turn.drafted or 0) + 1}),
        ("untold", lambda turn: {"accepted": None}),
        ("times", lambda turn: {"first": turn.start - 1}),
        ("times", lambda turn: {"decode_seconds": turn.last - turn.start}),
        ("shares", lambda turn: {"prefill_seconds": 2 * (turn.prefill_seconds or 0)}),
        ("shares", lambda turn: {"decode_seconds": 0.0}),
        ("max-tokens", lambda turn: {"completion_tokens": 13, "rounds": 12, "accepted": 0}),
    ],
)
def test_what_an_engine_counts_wrongly_fails_the_run(
    dense: Pair,
    two: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    change: Callable[[Turn], dict[str, Any]],
) -> None:
    """P9. Only one arm's counters are wrong, in one of its answers."""
    original = engine_arm._turn

    def wrong(*words: Any) -> Turn:
        turn = original(*words)
        return replace(turn, **change(turn)) if turn.drafted and turn.question else turn

    monkeypatch.setattr(engine_arm, "_turn", wrong)
    wishes = replace(WISHES, target=dense.target, draft=dense.draft, workloads=(two,))
    good, out, err = run(wishes, capsys, save_dir=tmp_path / "runs")
    assert not good
    assert f"fault {rule}: DFlash block=4, two, concurrency 1, run 1" in err
    assert ", told above the tables: the figures cannot be trusted" in err.splitlines()[-1]
    assert out.count(f"Fault, these figures cannot be trusted: {rule}: DFlash block=4") == (
        out.count("\n## ") + 1
    )
    assert "Fault, these figures cannot be trusted: emitted: Baseline" not in out
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "tables.md").read_text(encoding="utf-8") == out


def test_stages_that_take_more_than_all_fail_the_run(
    dense: Pair, two: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = engine_arm.Engine.times

    def counted_twice(engine: Any) -> dict[str, float]:
        return {stage: 3 * seconds for stage, seconds in original(engine).items()}

    monkeypatch.setattr(engine_arm.Engine, "times", counted_twice)
    good, _, err = run(replace(WISHES, target=dense.target, workloads=(two,), block="auto"), capsys)
    assert not good
    assert "fault shares: Baseline, two, concurrency 1, run 1: host took -" in err


# P9, R11: what servers tell


@contextmanager
def servers(**answers: Callable[[dict[str, Any]], Reply]) -> Iterator[Wishes]:
    """Servers as arms: `ar` a baseline, `dflash` of width 4, both llama-server's kind."""
    with ExitStack() as stack:
        fakes = {
            mode: stack.enter_context(serving(Fake(answer, owner="llamacpp")))
            for mode, answer in answers.items()
        }
        places = {"ar": "ar=", "dflash": "dflash:4="}
        urls = tuple(places[mode] + fake.url for mode, fake in fakes.items())
        yield replace(WISHES, base_urls=urls)


def says(text: str, *, drafted: int = 0, accepted: int = 0, **more: int) -> Callable[[Any], Reply]:
    """Five tokens that end by their limit, and what is told of their drafts."""
    told = {"predicted_n": 5, "draft_n": drafted, "draft_n_accepted": accepted, **more}
    return lambda _: stream(text, finish="length", timings=told)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("fault accepted: DFlash block=4", {"drafted": 3, "accepted": 4}),
        ("fault times: DFlash block=4", {"drafted": 6, "accepted": 2, "predicted_ms": 10**6}),
        ("fault times: DFlash block=4", {"drafted": 6, "accepted": 2, "prompt_ms": 10**6}),
        ("warning drafted: DFlash block=4", {"drafted": 60, "accepted": 2}),
    ],
)
def test_what_a_server_counts_wrongly_is_told(
    two: str, capsys: pytest.CaptureFixture[str], said: str, told: dict[str, int]
) -> None:
    pytest.importorskip("httpx2")
    with servers(ar=says(STORY), dflash=says(STORY, drafted=6, accepted=2)) as wishes:
        good, out, err = run(replace(wishes, workloads=(two,)), capsys)
        assert good, err
        assert "fault" not in err
    with servers(ar=says(STORY), dflash=says(STORY, **told)) as wishes:
        good, out, err = run(replace(wishes, workloads=(two,)), capsys)
    assert good == said.startswith("warning")
    assert said in err
    level, rule = said.split(":", maxsplit=1)[0].split()
    head = "Warning" if level == "warning" else "Fault, these figures cannot be trusted"
    assert f"- {head}: {rule}: DFlash block=4" in out


def test_a_server_that_drafts_is_no_baseline(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("httpx2")
    with servers(ar=says(STORY, drafted=6, accepted=2)) as wishes:
        _, out, err = run(replace(wishes, workloads=(two,)), capsys)
    assert "warning drafts: Baseline" in err
    assert "- Warning: drafts: Baseline" in out


def test_repetition_is_not_taken_for_success(two: str, capsys: pytest.CaptureFixture[str]) -> None:
    """R11: an arm that is fast as it says one word over and over, which plain decoding does not."""
    pytest.importorskip("httpx2")
    loops = says("so " * 40, drafted=6, accepted=2)
    with servers(ar=says(STORY), dflash=loops) as wishes:
        good, out, err = run(replace(wishes, workloads=(two,)), capsys)
    assert not good
    assert (
        "fault other-text: DFlash block=4, two, concurrency 1: 2 of 2 texts are not those of peer 1"
        in err
    )
    assert err.count("warning one-token-loop: DFlash block=4") == 2
    assert "Fault, these figures cannot be trusted: other-text: DFlash block=4" in out
    assert "ends in 'so' 40 times in a row" in out
    # where plain decoding loops too, the text is its own, and no measure of a drafter
    with servers(ar=says("so " * 40), dflash=loops) as wishes:
        good, out, err = run(replace(wishes, workloads=(two,)), capsys)
    assert good
    assert err.count("warning one-token-loop") == 4


# P1, P3, P6: what is measured is what it is called


def test_a_missing_template_is_told(
    dense: Pair, two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P1."""
    bare = edited(dense.target, tmp_path / "bare.gguf", drop=("tokenizer.chat_template",))
    wishes = replace(WISHES, target=dense.target, workloads=(two,))
    good, out, err = run(wishes, capsys)
    assert "template chat" in out
    assert "no-template" not in out + err
    good, out, err = run(replace(wishes, target=bare), capsys)
    assert good
    assert "warning no-template: Baseline: no chat template was used" in err
    assert "- Warning: no-template: Baseline: no chat template was used" in out
    assert "template none" in out


def test_the_modes_of_thinking_are_told_and_kept_to(
    dense: Pair, two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P1: the template opens and closes the thinking that is not wanted, which takes tokens."""
    read = {}
    for think, said in ((None, "as the template does"), (True, "yes"), (False, "no")):
        folder = tmp_path / said
        wishes = replace(WISHES, target=dense.target, workloads=(two,), think=think)
        _, out, _ = run(wishes, capsys, save_dir=folder)
        assert f"think {said}," in out
        made = saved_in(folder)
        read[think] = [turn.prompt_tokens for turn in made.cells[-1].turns]
    assert read[None] == read[True]
    assert all(wide > lean for wide, lean in zip(read[False], read[True], strict=True))


def test_prefill_first_token_and_decode_are_apart(
    dense: Pair, two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P3: each figure is its own, from the answers' own clocks."""
    wishes = replace(WISHES, target=dense.target, draft=dense.draft, workloads=(two,))
    _, out, _ = run(wishes, capsys, form="csv", save_dir=tmp_path / "runs")
    rows = {row["arm"]: row for row in csv.DictReader(io.StringIO(out))}
    for cell in saved_in(tmp_path / "runs").cells:
        if cell.run == 0:
            continue
        row, turns = rows[cell.arm], cell.turns
        for name in ("prefill_seconds", "decode_seconds"):
            mean = sum(getattr(turn, name) for turn in turns) / len(turns)
            assert float(row[name]) == pytest.approx(mean)
        waits = [(turn.first or 0) - turn.start for turn in turns]
        assert float(row["first_token"]) == pytest.approx(sum(waits) / len(waits))  # of two
        decoded = sum(turn.completion_tokens - 1 for turn in turns)
        spent = sum(turn.decode_seconds or 0 for turn in turns)
        assert float(row["decode_speed"]) == pytest.approx(decoded / spent)
        for turn in turns:
            assert turn.first is not None
            # the first token is there when the prompt is read, and nothing is decoded by then
            assert 0 < (turn.prefill_seconds or 0) <= turn.first - turn.start
            assert 0 < (turn.decode_seconds or 0) <= turn.last - turn.start
        speed = sum(turn.completion_tokens for turn in turns) / cell.seconds
        assert float(row["throughput"]) == pytest.approx(speed)
        assert speed < float(row["decode_speed"])


def test_what_was_asked_and_said_has_hashes(
    dense: Pair, two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P6: equal prompts and equal texts can be told by a run's file alone, for each arm."""

    def document(name: str, **changes: Any) -> dict[str, Any]:
        wishes = replace(WISHES, target=dense.target, draft=dense.draft, workloads=(two,))
        run(replace(wishes, **changes), capsys, save_dir=tmp_path / name)
        (folder,) = (tmp_path / name).iterdir()
        return dict(json.loads((folder / "bench.json").read_text()))

    first, again = document("first"), document("again")
    assert first["prompts"] == again["prompts"]
    texts = {(cell["arm"], cell["run"]): cell["texts"] for cell in first["cells"]}
    assert len(texts) == 4
    assert len(set(texts.values())) == 1  # greedy: both arms, both runs
    shorter = document("shorter", max_tokens=5)
    assert shorter["prompts"] != first["prompts"]
    assert shorter["cells"][0]["texts"] not in texts.values()
    assert document("fewer", questions=1)["prompts"] != first["prompts"]


def test_questions_that_come_round_again_are_told(
    dense: Pair, two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """P6: five questions of a file that has two."""
    wishes = replace(WISHES, target=dense.target, workloads=(two,), max_tokens=2)
    _, out, _ = run(replace(wishes, questions=5), capsys)
    assert "questions 5 of 2 different ones," in out
    _, out, _ = run(wishes, capsys)
    assert "questions 2," in out


@pytest.mark.parametrize("full", [3, 4, 5])
def test_a_disk_that_is_full_costs_no_figures(
    dense: Pair,
    two: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    full: int,
) -> None:
    """What was measured by then is shown, and what was saved is whole; the fifth write is that of the tables."""
    replaced, appended = saved._replace, saved._append
    calls: list[Path] = []

    def no_room(path: Path) -> None:
        calls.append(path)
        if len(calls) >= full:
            raise OSError(28, "No space left on device", str(path))

    def append(path: Path, text: str) -> None:
        no_room(path)
        appended(path, text)

    def put(path: Path, text: str) -> None:
        if path.name == "tables.md":
            no_room(path)
        replaced(path, text)

    monkeypatch.setattr(saved, "_append", append)
    monkeypatch.setattr(saved, "_replace", put)
    wishes = replace(WISHES, target=dense.target, workloads=(two,), runs=3, block="auto")
    with pytest.raises(OSError, match="No space left"):
        run(wishes, capsys, save_dir=tmp_path / "runs")
    out, err = capsys.readouterr()
    assert "| two | " in out
    if full < 5:
        assert f"Interrupted: {full} of 4 runs" in err
    made = saved_in(tmp_path / "runs")
    assert len(made.cells) == full - 1
    assert made.state == ("running" if full < 5 else "complete")

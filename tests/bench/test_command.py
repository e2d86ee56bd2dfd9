"""`dflash-gguf bench`: its wishes, what it makes of them, and the whole way on the tiny pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_gguf.bench import asked, measuring
from dflash_gguf.bench.records import Ask, Failure, Plan
from dflash_gguf.bench.saved import read_bench, save
from dflash_gguf.bench.showing import show_bench
from dflash_gguf.errors import DflashError, UsageError

from ..support.command import command
from ..support.measured import BASE, bench, cards, cell
from ..support.tiny import Tiny


@pytest.mark.parametrize(
    ("text", "draft", "mtp", "modes"),
    [
        (None, True, False, ("ar", "dflash")),
        (None, False, False, ("ar",)),
        ("dflash, ar", True, False, ("dflash", "ar")),
        ("mtp,ar", False, True, ("mtp", "ar")),
    ],
)
def test_modes(text: str | None, draft: bool, mtp: bool, modes: tuple[str, ...]) -> None:
    assert asked.parse_modes(text, draft=draft, mtp=mtp) == modes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a part is empty"),
        ("ar,ar", "stands twice"),
        ("ar,fast", "'fast' is none; expected some of ar, mtp, dflash"),
        ("dflash", "give one with --draft"),
        ("mtp", "this engine runs no MTP layers"),
    ],
)
def test_modes_that_make_no_sense(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked.parse_modes(text, draft=False, mtp=False)


def test_blocks_and_concurrencies() -> None:
    assert asked.parse_blocks("8, 4,auto") == (8, 4, "auto")
    assert asked.parse_concurrencies("32,1, 8") == (1, 8, 32)


@pytest.mark.parametrize("text", ["", "4,,8", "1", "0", "-4", "4.5", "4,4", "wide", "²"])
def test_blocks_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--block"):
        asked.parse_blocks(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1,1", "x", "1.0"])
def test_concurrencies_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--concurrency"):
        asked.parse_concurrencies(text)


def test_a_simulation_is_a_name_or_a_curve() -> None:
    assert asked.parse_simulation("0.9,0.5", 3).curve() == (0.9, 0.5)
    assert asked.parse_simulation("qwen3.5-27b-gsm8k", 3).seed == 3
    with pytest.raises(UsageError, match="no survival curve 'other'"):
        asked.parse_simulation("other", 0)
    with pytest.raises(UsageError, match="do not increase"):
        asked.parse_simulation("0.5,0.9", 0)


def test_arms_stay_open_together_where_memory_allows(tmp_path: Path) -> None:
    small, huge = tmp_path / "small", tmp_path / "huge"
    small.write_bytes(b"x" * 1000)
    with huge.open("wb") as file:
        file.truncate(1 << 43)
    assert asked.fit_together([small], 4)
    assert not asked.fit_together([small, huge], 1)


def test_nothing_measured_is_an_error_in_the_arms_own_words() -> None:
    failed = Failure("base", "w", 1, None, "no such file")
    made = replace(bench(cell(BASE, 0, 1.0)), failures=(failed,))
    with pytest.raises(DflashError, match="nothing could be measured: no such file"):
        show_bench(made, "md", None, None, quiet=True)


def test_a_saved_run_is_shown_again(tmp_path: Path) -> None:
    folder = save(cards(), tmp_path)
    done = command("bench", "--show", folder, "-o", "jsonl")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 16
    assert command("bench", "--show", folder).stdout == (folder / "tables.md").read_text()
    missing = command("bench", "--show", tmp_path)
    assert missing.returncode == 1
    assert "bench.json" in missing.stderr
    assert missing.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no model is given"),
        (("-m", "t.gguf", "-o", "xml"), "-o xml"),
        (("-m", "t.gguf", "--concurrency", "0"), "--concurrency"),
        (("-m", "t.gguf", "--block", "1"), "--block"),
        (("-m", "t.gguf", "--workload", "nothing"), "nothing"),
        (("-m", "t.gguf", "--simulate", "0.5"), "--simulate"),
        (("-m", "t.gguf", "--modes", "dflash"), "--draft"),
        (("-m", "t.gguf", "-c", "-5"), "-c -5"),
        (("-m", "t.gguf", "--sweep"), "--draft"),
    ],
)
def test_wishes_that_make_no_sense_end_with_2_and_one_line(
    options: tuple[str, ...], said: str
) -> None:
    done = command("bench", *options)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("dflash-gguf: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_pair_that_does_not_fit_is_told_before_it_is_loaded(tiny: Tiny) -> None:
    draft = tiny.draft("bf16")
    for words, code, said in (
        (("-md", draft, "--block", "4,17"), 2, f"--block 17: {draft} was trained for 16 rows"),
        (("-md", tiny.target), 3, "is not a DFlash drafter"),
        (("-md", draft, "-t", "0"), 2, "threads is 0; expected"),
        (("-md", draft, "--temp", "1", "--top-p", "1.5"), 2, "top_p is 1.5; expected"),
    ):
        done = command("bench", "-m", tiny.target, *words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_missing_target_ends_with_3() -> None:
    done = command("bench", "-m", "/nowhere/t.gguf")
    assert done.returncode == 3
    assert "/nowhere/t.gguf" in done.stderr


def test_help_groups_options_and_gives_examples() -> None:
    text = command("bench", "--help").stdout
    for part in ("The pair", "What is asked", "Output", "Examples:\n  dflash-gguf bench"):
        assert part in text


def test_the_tiny_pair_from_command_to_tables(tiny: Tiny, tmp_path: Path) -> None:
    done = command(
        *("bench", "-m", tiny.target, "-md", tiny.draft("bf16"), "--workload", "tiny"),
        *("--block", "4", "--questions", "2", "-n", "12", "--runs", "1", "--concurrency", "1,2"),
        *("--save-dir", tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    assert "| Workload | Baseline | DFlash block=4 |" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    made = read_bench(folder)
    assert [(arm.mode, arm.width) for arm in made.arms] == [("ar", None), ("dflash", 4)]
    assert (made.state, made.plan) == ("complete", Plan(("tiny",), (1, 2), 1))
    assert made.ask == Ask(12)
    assert len(made.cells) == 2 * 2 * 2  # arms, concurrencies, a warm-up and a run
    assert all(len(each.turns) == 2 for each in made.cells)
    assert made.facts["target.file"] == "target.gguf"
    assert made.facts["simulated"] is False
    assert (folder / "tables.md").read_text(encoding="utf-8") == done.stdout
    assert "[8/8] tiny" in done.stderr


def test_simulated_is_said_everywhere(tiny: Tiny, tmp_path: Path) -> None:
    done = command(
        *("bench", "-m", tiny.target, "-md", tiny.draft("bf16"), "--workload", "tiny", "-q"),
        *("--block", "4", "--questions", "1", "-n", "8", "--runs", "1", "--simulate", "1,1,1"),
        *("--save-dir", tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("## ")]
    assert titles
    assert all("simulated" in title for title in titles)
    (folder,) = (tmp_path / "runs").iterdir()
    made = read_bench(folder)
    assert made.facts["simulated"] is True
    drafting = [turn for each in made.cells if each.arm != "ar" for turn in each.turns]
    # three of three drafts are accepted, and no end token ends the answer
    assert all(turn.completion_tokens == 8 for turn in drafting)
    assert all(turn.accepted == turn.drafted for turn in drafting)


def test_a_sweep_shows_costs_and_best_widths(tiny: Tiny) -> None:
    done = command(
        *("bench", "-m", tiny.target, "-md", tiny.draft("bf16"), "--sweep", "--block", "3"),
        *("-o", "json", "--concurrency", "1"),
    )
    assert done.returncode == 0, done.stderr
    (sweep,) = json.loads(done.stdout)["sweeps"]
    assert [cost["width"] for cost in sweep["costs"]] == [1, 2, 3]
    assert all(cost["verify"] > 0 for cost in sweep["costs"])
    assert len(sweep["best"]) > 5
    assert "[15/15] rounds of blocks, 1 at a time\n" in done.stderr


def test_failures_name_files_without_their_folders_and_servers_without_their_hosts() -> None:
    error = (
        "/home/me/t.gguf: not that of /home/me/d/d.gguf; http://box.lan:8080/v1/models: status 500"
    )
    made = replace(cards(), failures=(Failure("base", "w", 1, 0, error),))
    files = [Path("/home/me/t.gguf"), Path("/home/me/d/d.gguf")]
    names = measuring._public(files, ("http://box.lan:80", "dflash:8=http://box.lan:8080/v1/"))
    (failure,) = measuring._without_places(made, names).failures
    assert failure.error == "t.gguf: not that of d.gguf; (URL 2)/v1/models: status 500"

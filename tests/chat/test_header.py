"""What stands above a chat, and where it does not: pipes, --quiet; narrow, plain and ASCII consoles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dflash_gguf.hardware import devices

from ..support.command import Terminal, command
from ..support.edited import edited
from ..support.random_pairs import Pair

KEYS = {
    "general.name": "Some\x1b[31m Target",  # which shall not colour a person's terminal
    "general.file_type": 0,
    "general.sampling.temp": 0.5,
    "general.sampling.top_p": 0.75,
}


@pytest.fixture(scope="module")
def words(dense: Pair, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    target = edited(dense.target, tmp_path_factory.mktemp("h") / "t.gguf", change=KEYS)
    pair = ["-m", target, "-md", dense.draft, "--block", 4]
    return ["run", *pair, "-c", 256, "-t", 1, "--no-history", "--no-think", "-n", 5]


def test_three_lines_and_the_sampling(words: list[object], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[run]\nrepeat-penalty = 1.5\n")
    env = {"DFLASH_GGUF_CONFIG": str(config), "DFLASH_GGUF_MIN_P": "0.125"}
    with Terminal(*words, "--top-k", 9, rows=30, columns=200, env=env) as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        lines = terminal.display()
        (cpu,) = [device for device in devices() if device.kind == "cpu"]
        first = next(i for i, line in enumerate(lines) if line.startswith("target"))
        assert re.fullmatch(
            r"target   Some\?\[31m Target · F32 · [\d.]+ .iB · context 256 tokens", lines[first]
        )
        assert re.fullmatch(r"drafter  .+ · F32 · [\d.]+ .iB · DFlash, block 4", lines[first + 1])
        assert lines[first + 2] == f"device   {cpu.name} ({cpu.description}) · 1 thread"
        assert lines[first + 3] == (
            "sampling temp 0.5, top-p 0.75 (the target's file) · top-k 9 (--top-k) · "
            "min-p 0.125 (DFLASH_GGUF_MIN_P) · repeat-penalty 1.5 (config.toml)"
        )  # fmt: skip
        assert (
            lines[first - 1].startswith("memory planned: ")
            or "memory planned: " in lines[first - 2]
        )
        assert not any("%" in line for line in lines), "the bar is gone"
        terminal.send("/set temp 0.25\r")
        terminal.send("/show\r")
        terminal.wait_for(lambda screen: ">>> " in screen.partition("stop: none")[2], "settings")
        assert "temp: 0.25 (/set)" in terminal.screen
        assert "top-p: 0.75 (the target's file)" in terminal.screen
        terminal.send("\x04")
        assert terminal.end() == 0


def test_narrow_ascii_and_without_colours(words: list[object]) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "NO_COLOR": "1"}
    with Terminal(*words, rows=60, columns=20, env=env) as terminal:
        terminal.wait_for(lambda screen: ">>> /help" in screen, "prompt")
        terminal.send("hi\r")
        terminal.wait_for(lambda screen: ">>> /help" in screen.partition("tok - ")[2], "answer")
        terminal.send("\x04")
        assert terminal.end() == 0
        assert b"\\u" not in terminal.shown, "nothing that this console cannot show"
        assert b"\\x" not in terminal.shown
        shown = "".join(line.ljust(20) for line in terminal.display())
        assert "device   CPU (" in shown
        assert "sampling temp 0.5, top-p 0.75 (the target's file)" in shown
        # what prompt_toolkit draws aside, which only hides and resets
        assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", terminal.shown), "no colours"


@pytest.mark.parametrize(
    ("env", "styled"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False),
     ({"TERM": "dumb", "FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False)],
)  # fmt: skip
def test_colours_are_wanted_or_not(
    env: dict[str, str], styled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dflash_gguf.terminal import choose_colors, plain_terminal

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, "")  # so that what is set here is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert plain_terminal() is not styled
    choose_colors(None)
    assert plain_terminal() is not styled
    for on in (True, False):
        choose_colors(on)
        assert plain_terminal() is not on


def test_nothing_of_it_off_a_terminal_or_with_quiet(words: list[object]) -> None:
    done = command(*words, "-cnv", stdin="hi\n", plan=True)
    assert done.returncode == 0
    assert re.fullmatch(r"5 tok · [^\n]*\n", done.stderr), "figures alone"
    with Terminal(*words, "-q", rows=30, columns=100) as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        assert not re.search("target|sampling|memory|%", terminal.screen)
        terminal.send("\x04")
        assert terminal.end() == 0

"""A chat that is misused on a real terminal: it says what is wrong in a line and goes on, or leaves as it was told."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_gguf.chat.conversation import Conversation, Turn

from ..support.command import Terminal, endless
from ..support.random_pairs import Pair

ASKED = "Send a message"  # what a prompt shows on an empty line
EVIL = "a \x1b[31mred\x1b]0;title\x07 one"


@pytest.fixture
def begin(dense: Pair, tmp_path: Path) -> Callable[..., Terminal]:
    """Return a function that begins a chat and waits for its first prompt."""

    def open_chat(
        *words: object, target: Path = dense.target, job: bool = False, **env: str
    ) -> Terminal:
        given = ("run", "-m", target, "-t", 1, "--no-think", *words)
        home = {"XDG_STATE_HOME": str(tmp_path / "state"), "VISUAL": "", **env}
        terminal = Terminal(*given, rows=24, columns=80, env=home, job=job)
        terminal.wait_for(lambda screen: ASKED in screen, "prompt")
        return terminal

    return open_chat


def ask(terminal: Terminal, keys: str) -> str:
    """Send a line; return what has been shown when the next one is asked for."""
    before = len(terminal.screen)
    terminal.send(keys + "\r")
    return terminal.wait_for(lambda screen: ASKED in screen[before:], f"answer to {keys!r}")[
        before:
    ]


def write(terminal: Terminal, keys: str, shown: int = 600) -> None:
    """Have an endless answer written."""
    before = len(terminal.screen)
    terminal.send(keys + "\r")
    terminal.wait_for(lambda screen: len(screen) > before + shown, "text")


def leave(terminal: Terminal, code: int = 0) -> None:
    terminal.send("\x04")
    assert terminal.end() == code
    assert_whole(terminal)


def assert_whole(terminal: Terminal) -> None:
    """No error of Python's was shown, and the terminal scrolls as a whole again."""
    for word in ("Traceback", "Unhandled exception", "Exception ignored"):
        assert word not in terminal.screen
    regions = [place for place in (terminal.shown.rfind(b"\x1b[1;"),) if place >= 0]
    assert not regions or terminal.shown.rindex(b"\x1b[r") > regions[-1]


def test_files_that_are_none_are_told_in_a_line(
    begin: Callable[..., Terminal], tmp_path: Path
) -> None:
    deep, fifo = tmp_path / "deep.json", tmp_path / "fifo"
    deep.write_text("[" * 200_000)
    os.mkfifo(fifo)
    large = tmp_path / "large.txt"
    large.write_text("x" * 600)
    with begin("-c", 512) as terminal:
        for line, told in (
            (f"/load {deep}", "deep.json is no conversation: not JSON"),
            (f"/load {tmp_path}", "Is a directory; expected a conversation"),
            (f"/load {fifo}", "is no ordinary file; expected a conversation"),
            (f"/read {fifo}", "is no ordinary file; expected a text file"),
            (f"/read {large}", "large.txt: 600 tokens; the context holds 512"),
            (f"/save {tmp_path}", "exists; choose another name"),
            (f"/save {'x' * 300}", "File name too long; expected /save FILE"),
            ("/read ~nobody-here/x", "home directory; expected /read FILE"),
            ("/set max-tokens -5", "max-tokens -5: expected a number of tokens, or -1"),
            ("/set seed " + "9" * 5000, "9: expected a whole number"),
        ):
            assert told in " ".join(ask(terminal, line).split("\n")).replace("  ", " "), line
        leave(terminal)


def test_escape_sequences_of_others_do_not_steer_the_terminal(
    begin: Callable[..., Terminal], tmp_path: Path
) -> None:
    talk, notes = tmp_path / "talk.json", tmp_path / "no\x1b[31mtes"
    Conversation(EVIL, [Turn(EVIL, EVIL, "", "stop")]).save(talk, "m")
    notes.write_text(EVIL)
    with begin("-n", 4, "--session", talk) as terminal:
        for line in (
            "/show prompt",
            "/show system",
            f"/load {talk}",
            f"/read {tmp_path}/no*",
            "/undo",
        ):
            ask(terminal, line)
        ask(terminal, "\x1b[31mx")  # typed or pasted: prompt_toolkit takes it for a mouse
        ask(terminal, "\x1b[200~/\x1b[31my\x1b[201~")
        assert "␛[31mred" in terminal.screen
        assert b"\x1b[31m" not in terminal.shown
        assert b"\x1b]0;" not in terminal.shown
        leave(terminal)


def test_editors_that_fail_leave_the_line(begin: Callable[..., Terminal], tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    with begin("-n", 4, EDITOR=str(editor)) as terminal:
        ask(terminal, "one")
        for body, told in (
            ("exit 3", "exit status 3"),
            ("printf '\\377' > \"$1\"", "can't decode byte 0xff"),
            ('rm "$1"', "No such file"),
            ("kill -9 $$", "exit status -9"),
        ):
            editor.write_text(f"#!/bin/sh\n{body}\n")
            editor.chmod(0o755)
            assert told in " ".join(ask(terminal, "/edit").split()), body
            before = len(terminal.screen)
            terminal.send("kept\x07")
            text = terminal.wait_for(lambda screen: ">>> kept" in screen[before + 9 :], "line")  # noqa: B023
            assert "set EDITOR to one that is installed" in " ".join(text[before:].split())
            terminal.send("\x15")
        editor.write_text("#!/bin/sh\necho running\nsleep 60\n")
        before = len(terminal.screen)
        terminal.send("/edit\r")
        terminal.wait_for(lambda screen: "running" in screen[before:], "editor")
        for _ in range(10):  # a shell that is about to begin `sleep` keeps the first one to itself
            terminal.send("\x03")  # is the editor's
            again = time.monotonic() + 2
            while time.monotonic() < again and ASKED not in terminal.screen[before:]:
                terminal.watch(0.1)
            if ASKED in terminal.screen[before:]:
                break
        leave(terminal)


def test_a_history_that_cannot_be_kept_is_told_once(
    begin: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "state" / "dflash-gguf" / "history").mkdir(parents=True)
    with begin("-n", 4) as terminal:
        assert "what is typed is not remembered" in ask(terminal, "one")
        assert "remembered" not in ask(terminal, "two")
        leave(terminal)


def test_two_chats_do_not_write_over_each_others_turns(
    begin: Callable[..., Terminal], tmp_path: Path
) -> None:
    talk = tmp_path / "talk.json"
    with begin("-n", 4, "--session", talk) as first, begin("-n", 4, "--session", talk) as second:
        ask(first, "one")
        assert "another program has written to it; the last turn is not in it" in " ".join(
            ask(second, "two").split()
        )
        assert [turn.user for turn in Conversation.read(talk).turns] == ["one"]
        ask(second, f"/save {tmp_path}/mine.json")
        ask(second, "three")
        assert [turn.user for turn in Conversation.read(tmp_path / "mine.json").turns] == ["two", "three"]  # fmt: skip
        talk.unlink()  # gone is not changed: it is written anew
        ask(first, "four")
        assert [turn.user for turn in Conversation.read(talk).turns] == ["one", "four"]
        assert "stays as it is" in ask(first, "/clear")
        ask(first, "five")
        assert len(Conversation.read(talk).turns) == 2
        leave(first)
        leave(second)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_it_keeps_what_was_said(
    begin: Callable[..., Terminal], dense: Pair, tmp_path: Path, number: int, code: int
) -> None:
    talk = tmp_path / "talk.json"
    words = ("-c", 50_000, "--session", talk)
    with begin(*words, target=endless(dense, tmp_path / "t.gguf")) as terminal:
        write(terminal, "hi")
        terminal.signal(number)
        assert terminal.end() == code
        assert_whole(terminal)
    (turn,) = Conversation.read(talk).turns
    assert turn.finish_reason == "cancelled"
    assert len(turn.answer) > 100


def test_ctrl_z_gives_the_terminal_back_while_it_rests(
    begin: Callable[..., Terminal], dense: Pair, tmp_path: Path
) -> None:
    with begin("-c", 50_000, target=endless(dense, tmp_path / "t.gguf"), job=True) as terminal:
        write(terminal, "hi")
        terminal.send("\x1a")
        terminal.wait_for(lambda _: terminal.stopped, "rest")
        terminal.watch(0.5)  # what it wrote before it stopped
        assert terminal.shown.rindex(b"\x1b[r") > terminal.shown.rindex(b"\x1b[1;23r")
        terminal.signal(signal.SIGCONT)
        before = len(terminal.screen)
        terminal.wait_for(lambda screen: len(screen) > before + 300, "text")
        assert terminal.shown.rindex(b"\x1b[1;23r") > terminal.shown.rindex(b"\x1b[r")
        before = len(terminal.screen)
        terminal.send("\x03")
        terminal.wait_for(lambda screen: ASKED in screen[before:], "prompt")
        leave(terminal)


def test_a_terminal_of_any_size_while_an_answer_is_written(
    begin: Callable[..., Terminal], dense: Pair, tmp_path: Path
) -> None:
    with begin("-c", 50_000, target=endless(dense, tmp_path / "t.gguf")) as terminal:
        write(terminal, "hi")
        for rows, columns in ((10, 30), (50, 200), (3, 80), (1, 1), (0, 0), (24, 80)):
            terminal.resize(rows, columns)
            before = len(terminal.screen)
            terminal.wait_for(lambda screen: len(screen) > before + 200, "text")  # noqa: B023
        shown = len(terminal.shown)
        terminal.wait_for(lambda _: b"\x1b[24;1H\x1b[2m" in terminal.shown[shown:], "figures")
        before = len(terminal.screen)
        terminal.send("\x03")
        terminal.wait_for(lambda screen: ASKED in screen[before:], "prompt")
        leave(terminal)


def test_ctrl_c_at_any_moment_of_a_turn_gives_the_prompt_back(  # H1
    begin: Callable[..., Terminal],
) -> None:
    """Behind Enter, while the prompt is rendered, while the answer begins, ends, and is kept."""
    with begin("-n", 12, "-q") as terminal:
        for number in range(24):
            before = len(terminal.screen)
            terminal.send("hi\r")
            time.sleep(0.004 * (number % 12))
            terminal.send("\x03")
            # What is typed while the terminal changes hands may be lost. It has been taken once it shows, and then
            # the next Ctrl-C is not one of two.
            shown, limit = f"top-k: {number + 1}\n", time.monotonic() + 60
            while shown not in terminal.screen[before:]:
                assert time.monotonic() < limit, terminal.screen[before:]
                terminal.send(f"/set top-k {number + 1}\r")
                again = time.monotonic() + 0.5
                while time.monotonic() < again and shown not in terminal.screen[before:]:
                    terminal.watch(0.1)
        before = -1
        while before != len(terminal.screen):  # until all that was typed has been taken
            before = len(terminal.screen)
            terminal.watch(0.5)
        leave(terminal)


def test_a_paste_of_100_kb_is_refused_and_forgotten(
    begin: Callable[..., Terminal], tmp_path: Path
) -> None:
    notes, talk = tmp_path / "notes", tmp_path / "talk.json"
    notes.write_text("remember")
    with begin("-n", 4, "--session", talk) as terminal:
        ask(terminal, f"/read {notes}")
        said = ask(terminal, "\x1b[200~" + "word\n" * 20_000 + "\x1b[201~")
        assert "the context holds 4096" in " ".join(said.split())
        ask(terminal, "hi")
        assert [turn.user for turn in Conversation.read(talk).turns] == ["remember\n\nhi"]
        leave(terminal)


def test_quotes_that_are_never_closed_are_left_by_ctrl_c(begin: Callable[..., Terminal]) -> None:
    with begin("-n", 4) as terminal:
        terminal.send('"""one\r/exit\r\x04')
        terminal.wait_for(lambda screen: "... /exit" in screen, "second line")
        before = len(terminal.screen)
        terminal.send("\x03")
        terminal.wait_for(lambda screen: ASKED in screen[before:], "prompt")
        assert " tok " in ask(terminal, "hi")
        leave(terminal)


@pytest.mark.skipif(sys.platform != "linux", reason="has another process' files limited")
def test_a_full_disk_is_told_and_the_chat_goes_on(
    begin: Callable[..., Terminal], tmp_path: Path
) -> None:
    talk = tmp_path / "talk.json"
    with begin("-n", 4, "--session", talk, EDITOR="true") as terminal:
        ask(terminal, "one")
        none = 0, resource.prlimit(terminal.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(terminal.pid, resource.RLIMIT_FSIZE, none)
        said = " ".join(ask(terminal, "two").split())
        assert "what is typed is not remembered" in said
        assert "the last turn is not in it" in said
        assert "nothing was written" in " ".join(ask(terminal, f"/save {talk}2").split())
        assert "the editor 'true' failed" in ask(terminal, "/edit")
        assert "two" in ask(terminal, "/show prompt")
        leave(terminal)
    assert [turn.user for turn in Conversation.read(talk).turns] == ["one"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "talk.json"]

"""A chat as a person sees it, on a real pseudo-terminal that a terminal emulator reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_gguf.chat.conversation import Conversation

from ..support.command import Terminal, endless
from ..support.random_pairs import Pair
from ..support.tiny import Tiny

SUM = "Anna has 12 apples. Then Anna buys 35 more. How many apples does Anna have now?"
ANSWER = "Anna has 47 apples."
THOUGHT = "The question is about the apples of Anna."
FIGURES = re.compile(r"\d+ tok · [\d,.]+ tok/s · (reused .*)?prompt [\d,]+ tok/s · accept ")


@pytest.fixture
def open_chat(tiny: Tiny, tmp_path: Path) -> Callable[..., Terminal]:
    """Return a function that begins a chat with the trained pair and options."""

    def begin(*options: object, **env: str) -> Terminal:
        return Terminal(
            *(
                "run",
                "-m",
                tiny.target,
                "-md",
                tiny.draft("bf16"),
                "-c",
                2048,
                "--block",
                8,
                *options,
            ),
            rows=30,
            columns=100,
            env={"XDG_STATE_HOME": str(tmp_path), **env},
        )

    return begin


def asked(turns: int) -> Callable[[str], bool]:
    """Whether so many answers have ended and the next message is asked for."""
    return lambda screen: (
        len(FIGURES.findall(screen)) == turns and ">>> " in FIGURES.split(screen)[-1]
    )


def test_thinking_is_dim_and_apart_and_figures_stand_below(
    open_chat: Callable[..., Terminal],
) -> None:
    with open_chat() as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        terminal.send(SUM + "\r")
        terminal.wait_for(asked(1), "answer")
        lines = terminal.display()
        first = lines.index(THOUGHT)
        assert lines.index(ANSWER) > first
        assert not any("think>" in line for line in lines)
        dim = b"".join(re.findall(rb"\x1b\[2m([^\x1b]*)\x1b\[0m", terminal.shown))
        assert THOUGHT[:20].encode() in dim
        # while it was written, the last row had figures; afterwards it is free
        live = re.findall(rb"\x1b\[30;1H\x1b\[2m(\d+ tok[^\x1b]*)\x1b", terminal.shown)
        assert live
        assert sum(bool(FIGURES.search(line)) for line in lines) == 1
        assert b"\x1b[1;29r" in terminal.shown
        assert terminal.shown.rindex(b"\x1b[r") > terminal.shown.rindex(b"\x1b[1;29r")
        terminal.send("\x04")
        assert terminal.end() == 0


@pytest.mark.parametrize(
    ("options", "env", "seen", "unseen"),
    [
        (["--hide-thinking"], {}, [], [THOUGHT, "[thinking]"]),
        ([], {"NO_COLOR": "1"}, ["[thinking]", THOUGHT, "[answer]"], []),
        ([], {"TERM": "dumb"}, ["[thinking]", THOUGHT, "[answer]"], []),
        (["--no-think"], {}, [], [THOUGHT]),
    ],
)
def test_how_thinking_is_shown(
    open_chat: Callable[..., Terminal],
    options: list[str],
    env: dict[str, str],
    seen: list[str],
    unseen: list[str],
) -> None:
    with open_chat(*options, "-p", SUM, **env) as terminal:
        assert terminal.end() == 0
        text = terminal.shown.decode()
        assert re.search(r"Anna has \d\d apples\.", text)
        assert all(each in text for each in seen)
        assert not any(each in text for each in unseen)
        assert bool(re.search("\x1b\\[[0-9;]*[1-9][0-9;]*m", text)) == (not env), "styles"


def test_accepted_text_is_tinted(open_chat: Callable[..., Terminal]) -> None:
    with open_chat("--show-accepted", "-p", SUM) as terminal:
        assert terminal.end() == 0
        tinted = re.findall("\x1b\\[36m([^\x1b]*)\x1b\\[0m", terminal.shown.decode())
        assert tinted
        assert ANSWER in "\n".join(terminal.display()), "tints leave the text as it is"
        assert len("".join(tinted)) < len(ANSWER), "each round's last token is the target's own"


def test_lines_commands_and_history(open_chat: Callable[..., Terminal], tmp_path: Path) -> None:
    with open_chat("--no-think", "-n", 4) as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        terminal.send('"""one\rtwo"""\r')  # Enter is a line end between quotes
        terminal.wait_for(asked(1), "answer")
        terminal.send("three\x1b\rfour\r")  # and behind Alt
        terminal.wait_for(asked(2), "second answer")
        terminal.send("\x1b[200~five\nsix\x1b[201~\r")  # and in what is pasted
        terminal.wait_for(asked(3), "third answer")
        talk = tmp_path / "talk.json"
        terminal.send(f"/save {talk}\r")
        terminal.wait_for(lambda screen: "saved 3 turns" in screen, "the file")
        users = [turn.user for turn in Conversation.read(talk).turns]
        assert users == ["one\ntwo", "three\nfour", "five\nsix"]
        terminal.send("/thi\t")
        terminal.wait_for(lambda screen: "/think" in screen.rsplit(">>> ", 1)[1], "completion")
        terminal.send(" hide\r")
        terminal.wait_for(lambda screen: "thinking is hidden" in screen, "word")
        terminal.send("/nothing\r")
        terminal.wait_for(lambda screen: "unknown command /nothing" in screen, "word")
        terminal.send("\x1b[A\x1b[A\r")  # up, twice: the last command but one
        terminal.wait_for(lambda screen: screen.count("thinking is hidden") == 2, "history")
        terminal.send("/exit\r")
        assert terminal.end() == 0
    history = tmp_path / "dflash-gguf" / "history"
    assert "/think hide" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0, "for its owner alone"


def test_nothing_typed_is_kept_if_it_shall_not(
    open_chat: Callable[..., Terminal], tmp_path: Path
) -> None:
    with open_chat("--no-history") as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        terminal.send("/help\r")
        terminal.wait_for(lambda screen: ">>> " in screen.rpartition("this list")[2], "help")
        terminal.send("\x04")
        assert terminal.end() == 0
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_clears_the_line_and_leaves_on_an_empty_one(
    open_chat: Callable[..., Terminal],
) -> None:
    with open_chat() as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        terminal.send("not sent\x03")
        terminal.wait_for(lambda screen: screen.count(">>> ") >= 2, "new prompt")
        terminal.send("\x03")
        terminal.wait_for(lambda screen: "Ctrl-C again" in screen, "hint")
        terminal.send("\x03")
        assert terminal.end() == 130
        assert "Traceback" not in terminal.screen


def test_an_interrupted_turn_is_what_the_screen_shows(  # H5
    dense: Pair, tmp_path: Path
) -> None:
    """In three rows there is no status row, which would stand between the letters."""
    target = endless(dense, tmp_path / "t.gguf")
    talk = tmp_path / "talk.json"
    with Terminal(
        "run", "-m", target, "-c", 100_000, "--no-think", "-q", rows=3, columns=100,
        env={"XDG_STATE_HOME": str(tmp_path)},
    ) as terminal:  # fmt: skip
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        terminal.send("hi\r")
        terminal.wait_for(lambda screen: len(screen) > 3000, "text")
        terminal.send("\x03")
        terminal.wait_for(lambda screen: screen.count(">>> ") >= 3, "prompt")
        terminal.send(f"/save {talk}\r")
        terminal.wait_for(lambda screen: "saved 1 turns" in screen, "the file")
        terminal.send("/exit\r")
        assert terminal.end() == 0
    (turn,) = Conversation.read(talk).turns
    assert turn.finish_reason == "cancelled"
    letters = re.sub(r"[^a-zA-Z0-9]", "", turn.answer)
    assert len(letters) > 50
    assert letters[-40:] in re.sub(r"[^a-zA-Z0-9]", "", terminal.screen)


def test_a_session_goes_on(open_chat: Callable[..., Terminal], tmp_path: Path) -> None:
    talk = tmp_path / "talk.json"
    for turns in (1, 2):
        with open_chat("--session", talk, "--no-think", "-n", 8) as terminal:
            terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
            terminal.send("hello\r")
            terminal.wait_for(asked(1), "answer")
            terminal.send("\x04")
            assert terminal.end() == 0
        assert len(Conversation.read(talk).turns) == turns

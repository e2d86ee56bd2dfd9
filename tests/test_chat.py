"""Conversations: from a pipe, and on a real pseudo-terminal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import dflash_gguf
from dflash_gguf.terminal import interrupts

from .support.command import UNTHINKING, Terminal, command, endless
from .support.edited import edited
from .support.random_pairs import Pair

END = " tok/s · no drafts"


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        *((stdin, []) for stdin in (None, "", "\n", "\n  \n\n")),
        *((stdin, ["-cnv"]) for stdin in (None, "", "\n  \n\n", "/exit\n", "/bye\nnot read\n")),
    ],
)
def test_no_input_is_no_answer(dense: Pair, stdin: str | None, words: list[str]) -> None:  # H2
    result = command("run", "-m", dense.target, "-n", 4, *words, stdin=stdin)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_every_line_of_a_pipe_is_a_turn_of_one_conversation(pair: Pair) -> None:
    lines = ["Hello", "日本 <|im_end|>", "bye"]
    messages: list[dict[str, str]] = []
    expected = ""
    with dflash_gguf.load(pair.target, pair.draft) as engine:
        for line in lines:
            messages.append({"role": "user", "content": line})
            answer = engine.generate(messages, max_tokens=12, template=UNTHINKING)
            messages.append({"role": "assistant", "content": answer.text})
            expected += answer.text + "\n"
    stdin = "\n" + "\r\n\n".join(lines)  # without a line end at the end, and with those of Windows
    arguments = ["run", "-m", pair.target, "--draft", pair.draft, "-n", 12, "-cnv", "--no-think"]
    result = command(*arguments, stdin=stdin)
    assert result.returncode == 0
    assert result.stdout == expected.replace("\r\n", "\n").replace("\r", "\n")
    assert result.stderr.count(" tok · ") == result.stderr.count("\n") == 3


def test_a_pipes_message_that_does_not_fit_is_an_error(dense: Pair) -> None:
    result = command(
        "run",
        "-m",
        dense.target,
        "-c",
        60,
        "-n",
        2,
        "-q",
        "-cnv",
        stdin="hi\n" + "x" * 80 + "\nhi\n",
    )
    assert result.returncode == 4
    assert result.stderr.startswith("dflash-gguf: the prompt has ")
    assert result.stderr.count("\n") == 1


def test_without_a_template_each_line_stands_alone(dense: Pair, tmp_path: Path) -> None:
    target = edited(dense.target, tmp_path / "t.gguf", drop=("tokenizer.chat_template",))
    result = command("run", "-m", target, "-n", 6, "-cnv", stdin="hi\nhi\n")
    assert result.returncode == 0
    assert result.stderr.count("warning: the target has no chat template") == 1
    with dflash_gguf.load(target) as engine:
        text = engine.generate("hi", max_tokens=6).text
    assert result.stdout == 2 * (text + "\n").replace("\r", "\n")


def ended(turns: int) -> Callable[[str], bool]:
    """Whether so many answers have ended and the next message is asked for."""
    return lambda screen: screen.count(END) == turns and ">>> " in screen.rsplit(END, 1)[1]


def test_a_conversation_on_a_terminal(dense: Pair) -> None:
    with Terminal("run", "-m", dense.target, "-n", 5) as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        assert "Send a message" in terminal.screen
        terminal.send("hi\r")
        terminal.wait_for(ended(1), "answer")
        terminal.send("   \rnot sent\x03and again\r")
        terminal.wait_for(ended(2), "second answer")
        terminal.send("x" * 9000 + "\r")
        terminal.wait_for(lambda screen: "; /exit leaves" in screen, "refusal")
        assert "tokens, the context holds 4096" in terminal.screen
        terminal.send("once more\r")
        terminal.wait_for(ended(3), "third answer")
        terminal.send("\x04")
        assert terminal.end() == 0
        assert "Traceback" not in terminal.screen


def test_ctrl_c_stops_the_turn_and_keeps_the_model(dense: Pair, tmp_path: Path) -> None:  # H1
    target = endless(dense, tmp_path / "t.gguf")
    with Terminal("run", "-m", target, "-c", 100_000) as terminal:
        terminal.wait_for(lambda screen: ">>> " in screen, "prompt")
        for turn in range(2):
            shown = len(terminal.screen)
            terminal.send("hi\r")
            terminal.wait_for(lambda screen, shown=shown: len(screen) > shown + 500, "text")
            terminal.send("\x03")
            terminal.wait_for(ended(turn + 1), "prompt after Ctrl-C")
        terminal.send("/exit\r")
        assert terminal.end() == 0
        assert "Traceback" not in terminal.screen


def test_a_second_interrupt_is_raised_and_the_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts() as pressed:
        assert not pressed()
        os.kill(os.getpid(), signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_ignored_interrupts_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts() as pressed:
            os.kill(os.getpid(), signal.SIGINT)
            assert not pressed()
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_interrupts_are_left_alone() -> None:
    seen: list[bool] = []

    def enter() -> None:
        with interrupts() as pressed:
            seen.append(pressed())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [False]

"""Ctrl-C: no round is torn or lost, and what it is to stop hears of it at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf.signals import Whole, told_at_once
from dflash_gguf.terminal import interrupts

from .support.random_pairs import Pair

PROMPT = [72, 101, 108, 108, 111]
PACKAGE = str(Path(dflash_gguf.__file__).parent)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_block_is_done_before_the_exception() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []

    def work() -> None:
        with Whole() as block:
            press()
            done.append(block.pressed)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [True]
    assert signal.getsignal(signal.SIGINT) is before
    with Whole() as block:
        pass
    assert not block.pressed


def test_ignored_and_foreign_handlers_are_kept() -> None:
    seen: list[int] = []

    def note(number: int, _frame: object) -> None:
        seen.append(number)

    for handler in (signal.SIG_IGN, note):
        before = signal.signal(signal.SIGINT, handler)
        try:
            with Whole():
                press()
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_an_error_in_the_block_is_not_lost() -> None:
    def work(*, pressed: bool) -> None:
        with Whole():
            if pressed:
                press()
            raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt) as caught:
        work(pressed=True)
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        work(pressed=False)


class Presses:
    """Presses Ctrl-C after the given number of lines that the package runs within a call."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.lines = 0

    def __call__(self, frame: types.FrameType, event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.line:
                press()
        return self


def interrupted_at(line: int, action: Callable[[], object]) -> bool:
    """Whether there was such a line, at which Ctrl-C was pressed."""
    presses = Presses(line)
    before = sys.gettrace()
    sys.settrace(presses)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    assert presses.lines < line, "Ctrl-C was pressed and nothing came of it"
    return False


def test_no_line_of_a_step_loses_a_round_to_ctrl_c(dense: Pair) -> None:
    options: dict[str, Any] = {"max_tokens": 200, "block": 4, "ignore_end": True, "logprobs": 1}
    with dflash_gguf.load(
        dense.target, dense.draft, threads=1, context=512, kv_type="f32"
    ) as engine:
        expected = engine.generate(PROMPT, **options)
        answer = engine.start(PROMPT, **options)
        engine.step()
        line = 1
        while interrupted_at(line, engine.step):
            line += 1
            assert answer.finish_reason is None
        assert line > 30
        while answer.finish_reason is None:
            engine.step()
        assert answer.tokens == expected.tokens
        assert answer.text == expected.text
        assert len(answer.logprobs) == len(answer.tokens)
        assert answer.stats is not None
        assert answer.stats.emitted == len(answer.tokens)


@pytest.mark.parametrize("name", ["start", "generate", "create_chat_completion"])
def test_ctrl_c_leaves_no_sequence_taken(dense: Pair, name: str) -> None:
    with dflash_gguf.load(dense.target, threads=1, context=256, sequences=1) as engine:
        call: Any = getattr(engine, name)
        prompt: Any = (
            PROMPT if name != "create_chat_completion" else [{"role": "user", "content": "hi"}]
        )
        line = 1
        while interrupted_at(line, lambda: call(prompt, max_tokens=2)):
            line += 1
            assert engine.free == 1, f"line {line}"
        assert line > 20


def test_no_line_of_a_cancel_tears_it(dense: Pair) -> None:
    with dflash_gguf.load(dense.target, threads=1, context=256, sequences=1) as engine:
        line, whole = 0, False
        while not whole:
            answer = engine.start(PROMPT, max_tokens=4)
            line += 1
            whole = not interrupted_at(line, lambda answer=answer: engine.cancel(answer))
            engine.cancel(answer)
            assert engine.free == 1
            assert answer.finish_reason == "cancelled"
            assert answer.stats is not None
        assert line > 10


def test_what_is_to_stop_hears_of_it_in_another_thread() -> None:
    told: list[threading.Thread] = []
    heard = threading.Event()

    def note() -> None:
        told.append(threading.current_thread())
        heard.set()

    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    with interrupts(note) as pressed:
        press()
        assert heard.wait(30)
        assert pressed()
    assert told[0] is not threading.main_thread()
    assert signal.set_wakeup_fd(wakeup) == wakeup
    assert not told[0].is_alive()


def test_other_signals_stop_nothing() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with told_at_once(lambda: told.append(1)):
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == []

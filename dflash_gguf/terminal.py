"""All drawing on the terminal. stdout is the answer; everything else goes to stderr."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from .signals import told_at_once
from .text import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

_ROOM_FOR_WORDS = 50  # columns
_PLAIN_SIGNS = {ord("·"): "-", ord("…"): "..."}


def encodable(text: str, stream: TextIO) -> str:
    """Return a text of ours as a stream can write it: with plain signs where it has no others."""
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return text.translate(_PLAIN_SIGNS)
    return text


def say(text: str) -> None:
    """Print a line on stderr, which may quote what others wrote; if that is lost, nobody can be told."""
    with suppress(OSError):
        print(encodable(visible(text), sys.stderr), file=sys.stderr, flush=True)  # noqa: T201


def write(text: str) -> None:
    """Print a piece of the answer on stdout, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def choose_colors(on: bool | None) -> None:
    """Turn colours and styles on or off for this process and what it starts; None: as the environment has it."""
    if on is None:
        return
    wanted, other = ("FORCE_COLOR", "NO_COLOR") if on else ("NO_COLOR", "FORCE_COLOR")
    os.environ.pop(other, None)
    os.environ[wanted] = "1"


def plain_terminal() -> bool:
    """Whether escape sequences are unwanted: NO_COLOR, or TERM=dumb unless FORCE_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return True
    return os.environ.get("TERM") == "dumb" and not os.environ.get("FORCE_COLOR")


def drop_stdout() -> None:
    """Throw away what stdout still holds, as its reader has gone: Python would complain once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def no_reader_needed() -> Iterator[None]:
    """Do something whose output may have lost its reader, without an error."""
    try:
        yield
    except BrokenPipeError:
        drop_stdout()


def error_console() -> Console:
    """Return a rich console on stderr; NO_COLOR is honoured."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def show_notes(*, quiet: bool, verbose: bool = False, plan: bool = True) -> None:
    """Let the package's log lines (what was found, converted or planned) appear on stderr, unless quiet.

    plan: the memory plan too.
    """
    log = logging.getLogger("dflash_gguf")
    log.handlers = [_Notes()]
    loud = logging.DEBUG if verbose else logging.INFO
    log.setLevel(logging.WARNING if quiet else loud)
    log.propagate = False
    logging.getLogger("dflash_gguf.fitting").setLevel(logging.NOTSET if plan else logging.WARNING)


class Again(KeyboardInterrupt):
    """Ctrl-C was pressed again, before the first one has had its effect."""


@contextmanager
def interrupts(at_once: Callable[[], object] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed since; pressed again, it raises Again.

    `at_once` is called in another thread, since this one may be in a decode.
    """
    pressed: list[int] = []

    def note(number: int, _frame: object) -> None:
        if pressed:
            raise Again
        pressed.append(number)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        with told_at_once(at_once):
            yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def suspensions(*, noted: bool) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-Z was pressed since it was last asked; unless `noted`, it stops at once."""
    asked: list[int] = []

    def take() -> bool:
        was, asked[:] = bool(asked), []
        return was

    here = threading.current_thread() is threading.main_thread()
    if not noted or not here or signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:
        yield lambda: False
        return
    before = signal.signal(signal.SIGTSTP, lambda number, _frame: asked.append(number))
    try:
        yield take
    finally:
        signal.signal(signal.SIGTSTP, before)
        if asked:
            signal.raise_signal(signal.SIGTSTP)


def stop_here() -> None:
    """Stop the process as Ctrl-Z does; returns when it is continued."""
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        signal.raise_signal(signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)


@contextmanager
def progress_bar(title: str, *, quiet: bool) -> Iterator[Callable[[float, str], None]]:
    """Yield a function of (fraction 0..1, what is being done) that moves a bar; nothing off a terminal."""
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _fraction, _what: None
        return
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    console = error_console()
    said = title, "{task.percentage:>3.0f}% {task.description}"
    if console.width < _ROOM_FOR_WORDS:
        said = "", "{task.percentage:>3.0f}%"
    # cropped: what is cut gets a sign otherwise that not every encoding has
    text: Any = [
        TextColumn(each, table_column=Column(no_wrap=True, overflow="crop")) for each in said
    ]
    columns: Any = (text[0], BarColumn(), text[1])
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, what: bar.update(task, completed=fraction, description=what)

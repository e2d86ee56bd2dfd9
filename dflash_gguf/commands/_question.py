"""What `run` is to answer: words of the command line, a file, what is piped in, or nothing, which means a chat."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TextIO

from ..errors import UsageError

_STDIN = Path("-")


def question(
    words: list[str], prompt: str | None, file: Path | None, *, conversation: bool
) -> str | None:
    """Return the prompt of one answer, None for a chat.

    Text that is piped in goes before a prompt, or is the prompt; not where the chat wants its lines. Raises
    UsageError, naming the options, if several are given or a file is no text.
    """
    given = {"a positional prompt": words or None, "-p": prompt, "-f": file}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        text = f"{' and '.join(names)} are given; expected one of them"
        raise UsageError(text)
    asked = _read(file) if file is not None else prompt if prompt is not None else " ".join(words)
    if conversation:
        if names:
            text = f"--conversation and {names[0]} are given; expected one of them"
            raise UsageError(text)
        return None
    piped = "" if file == _STDIN else _piped(asked=bool(names))
    parts = [part for part in (piped, asked) if part.strip()]
    if names and not parts:
        text = f"the prompt ({names[0]}) is empty; expected some text"
        raise UsageError(text)
    return "\n\n".join(parts) or None


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if file == _STDIN else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        text = (
            f"-f {file}: {getattr(error, 'strerror', None) or error}; expected a text file in UTF-8"
        )
        raise UsageError(text) from None


def _piped(*, asked: bool) -> str:
    """Text on stdin, without the line end behind it.

    With a prompt only that of a pipe or a file: anything else may be a stream that never ends, which a script
    has inherited.
    """
    if sys.stdin.isatty():
        return ""
    return "" if asked and not _ends(sys.stdin) else sys.stdin.read().rstrip("\r\n")


def _ends(stream: TextIO) -> bool:
    try:
        kind = os.fstat(stream.fileno()).st_mode
    except OSError:  # none of the system's
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)

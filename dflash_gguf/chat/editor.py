"""A text in the person's own editor."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError


def edited(text: str) -> str:
    """Return a text as a person leaves it in $VISUAL, $EDITOR or vi, without line ends behind it.

    Raises UsageError, naming the editor, if it cannot be started or fails.
    """
    name = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        with tempfile.TemporaryDirectory() as folder, _undisturbed():
            file = Path(folder) / "message.md"
            file.write_text(text, encoding="utf-8", errors="replace")
            status = subprocess.run([*shlex.split(name), str(file)], check=False).returncode
            if not status:
                return file.read_text(encoding="utf-8").rstrip("\n")
            reason = f"exit status {status}"
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    problem = f"the editor {name!r} failed ({reason}); set EDITOR to one that is installed"
    raise UsageError(problem) from None


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C in an editor is for the editor: a handler, unlike ignoring it, is not passed on to that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

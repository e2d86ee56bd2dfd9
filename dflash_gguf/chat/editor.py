"""A text in the person's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from ..errors import UsageError


def edited(text: str) -> str:
    """Return a text as a person leaves it in $VISUAL, $EDITOR or vi, without line ends behind it.

    Raises UsageError, naming the editor, if it cannot be started or fails.
    """
    name = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8", errors="replace")
        try:
            subprocess.run([*shlex.split(name), str(file)], check=True)
            return file.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            problem = f"the editor {name!r} failed ({error}); set EDITOR to one that is installed"
            raise UsageError(problem) from None

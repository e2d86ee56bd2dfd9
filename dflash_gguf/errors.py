"""What can go wrong, by kind.

Every message is one line: what was expected, what was found and what to do. The command line prints it
and ends with the kind's `exit_code`; `DFLASH_GGUF_DEBUG=1` shows the traceback instead.
"""

from __future__ import annotations

NOT_INSTALLED = (
    "the compiled and installed parts of dflash_gguf are missing here: this looks like the source folder, not "
    "an installed package; run 'pip install .' in it, then start Python in another folder"
)


class DflashError(Exception):
    """Base of everything this package raises on purpose; exit code 1."""

    exit_code = 1

    def __init__(self, text: str) -> None:
        # texts of llama.cpp, of templates and of the system end up in ours, with line breaks of their own
        super().__init__(" ".join(text.split("\n")).strip())


class UsageError(DflashError):
    """The request itself makes no sense (an option out of its range, a closed engine); exit code 2."""

    exit_code = 2


class ModelError(DflashError):
    """A model file is missing its parts, broken, or does not fit the other one; exit code 3."""

    exit_code = 3


class ConvertError(ModelError):
    """A checkpoint cannot be converted; nothing has been written; exit code 3."""


class ResourceError(DflashError):
    """Not enough memory, context, disk or devices for what was asked; exit code 4."""

    exit_code = 4


class ContextError(ResourceError):
    """A prompt is too long for the context; exit code 4."""

"""`--show-completion` and `--install-completion`: scripts by which a shell completes commands and options.

typer has both, but cannot be told the shell, which it finds by its parent process; in containers and under
other programs it finds none. Here the shell may be named, and SHELL is looked at where there is no other hint.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..terminal import say, write

SHELLS = ("bash", "zsh", "fish")
DETECT = "detect"
OPTIONS = {"--show-completion", "--install-completion"}
_PROGRAM = "dflash-gguf"
VARIABLE = "_DFLASH_GGUF_COMPLETE"  # the scripts ask the program by it


def with_shells(args: list[str]) -> list[str]:
    """Return the words of a command line in which an option that names no shell asks for detection."""
    made: list[str] = []
    for number, word in enumerate(args):
        made.append(word)
        if word not in OPTIONS:
            if not word.startswith("-"):
                return made + args[number + 1 :]  # a command, whose words are its own
        elif not args[number + 1 : number + 2] or args[number + 1].startswith("-"):
            made.append(DETECT)
        else:
            return made + args[number + 1 :]
    return made


def show(shell: str) -> None:
    """Print a shell's script. Raises UsageError for a shell that is not known."""
    script = _typer().get_completion_script(
        prog_name=_PROGRAM, complete_var=VARIABLE, shell=_known(shell)
    )
    write(script + "\n")


def install(shell: str) -> None:
    """Write a shell's script where it finds it, and a line into its start-up file where it needs one.

    Raises UsageError for a shell that is not known.
    """
    name, path = _typer().install(shell=_known(shell), prog_name=_PROGRAM, complete_var=VARIABLE)
    say(f"completion for {name} is in {path}; it works in shells that are started from now on")


def answer_shell() -> None:
    """Make what asks for completions ready, if a shell does; typer answers as the command begins."""
    if os.environ.get(VARIABLE):
        _typer().completion_init()


def _typer() -> Any:
    return import_module("typer.completion")


def _known(shell: str) -> str:
    if shell == DETECT:
        shell = _detected() or ""
    if shell not in SHELLS:
        text = (
            f"completion is for {', '.join(SHELLS)}, and the shell is {shell or 'not known'}; "
            "name one: --show-completion bash"
        )
        raise UsageError(text)
    return shell


def _detected() -> str | None:
    import shellingham

    try:
        name, _ = shellingham.detect_shell()
    except (shellingham.ShellDetectionFailure, OSError):
        name = Path(os.environ.get("SHELL", "")).name
    return str(name) or None

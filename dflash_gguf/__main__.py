"""The command line: `dflash-gguf COMMAND`. Errors become one line on stderr and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

import typer

from . import __version__
from .commands import _completion
from .commands._help import Helped, HelpedGroup
from .commands._translated import Translated
from .commands.bench import bench
from .commands.convert import convert
from .commands.devices import devices
from .commands.doctor import doctor
from .commands.inspect import inspect
from .commands.models import models
from .commands.quantize import quantize
from .commands.recipe import recipe
from .commands.run import run
from .commands.serve import serve
from .commands.shape import shape
from .config import defaults, name_variables
from .errors import NOT_INSTALLED, DflashError
from .terminal import drop_stdout

# a closed terminal's, too, where there is one
_LEAVE = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

app = typer.Typer(
    cls=HelpedGroup,
    name="dflash-gguf",
    help="DFlash speculative decoding for GGUF models: the same text as the target alone, faster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,  # there are options of our own for it
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=Helped)(convert)
app.command(cls=Helped)(quantize)
app.command(cls=Helped)(inspect)
app.command(cls=Translated)(run)
app.command(cls=Translated)(serve)
app.command(cls=Helped)(bench)
app.command(cls=Helped)(models)
app.command(cls=Helped)(doctor)
app.command(cls=Helped)(devices)
app.command(cls=Helped)(shape)
app.command(cls=Helped)(recipe)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dflash-gguf {__version__}")
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell:
        _completion.show(shell)
        raise typer.Exit


def _install_completion(shell: str | None) -> None:
    if shell:
        _completion.install(shell)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
    show_completion: str | None = typer.Option(
        None,
        metavar="[SHELL]",
        callback=_show_completion,
        is_eager=True,
        help="Print the script by which bash, zsh or fish completes commands and options.",
        show_default="the shell that runs this",
    ),
    install_completion: str | None = typer.Option(
        None,
        metavar="[SHELL]",
        callback=_install_completion,
        is_eager=True,
        help="Install it for shells that are started from now on.",
        show_default="the shell that runs this",
    ),
) -> None:
    del version, show_completion, install_completion  # have been seen to
    commands = getattr(context.command, "commands", {})
    try:
        context.default_map = defaults(commands)
    except Exception:
        if context.invoked_subcommand != "doctor":  # which says it as one of its findings
            raise


def main() -> None:
    """Run a command and exit: 0, or 1 error, 2 usage, 3 model, 4 resources, or 128 + a signal's number."""
    _steady_streams()
    for number in _LEAVE:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one of them
            signal.signal(number, _terminate)
    try:
        command = typer.main.get_command(app)
        _completion.answer_shell()
        name_variables(getattr(command, "commands", {}))
        command()
    except DflashError as error:
        _fail(error, str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{__package__}."):
            raise
        _fail(error, NOT_INSTALLED, 1)
    except BrokenPipeError:
        drop_stdout()
        sys.exit(1)
    except MemoryError as error:
        _fail(error, "out of memory; give a smaller context (-c) or a smaller model", 4)
    except OSError as error:
        _fail(error, f"{error.filename or 'input or output'}: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _terminate(number: int, frame: object) -> NoReturn:
    """Leave as by an exception, so that half-written files go; a second signal ends the process at once."""
    del frame
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _fail(error: Exception, text: str, code: int) -> NoReturn:
    if os.environ.get("DFLASH_GGUF_DEBUG"):
        raise error
    print(f"dflash-gguf: {text}", file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _steady_streams() -> None:
    """Keep closed streams and narrow encodings from ending an answer."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace" if name != "stderr" else "backslashreplace")


if __name__ == "__main__":
    main()

"""The command line: `dflash-gguf COMMAND`. Errors become one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys

import typer

from . import __version__
from .commands.convert import convert
from .commands.devices import devices
from .commands.run import run
from .errors import DflashError

app = typer.Typer(
    name="dflash-gguf",
    help="DFlash speculative decoding for GGUF models: the same text as the target alone, faster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(convert)
app.command()(run)
app.command()(devices)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dflash-gguf {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print it."
    ),
) -> None:
    pass


def main() -> None:
    """Run a command and exit: 0, or 1 error, 2 usage, 3 model, 4 resources, 130 interrupted."""
    try:
        app()
    except DflashError as error:
        if os.environ.get("DFLASH_GGUF_DEBUG"):
            raise
        print(f"dflash-gguf: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader has gone; keep Python from complaining once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()

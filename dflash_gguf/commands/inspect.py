"""`dflash-gguf inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    file: Annotated[Path, typer.Argument(help="A drafter's GGUF.", show_default=False)],
    target: Annotated[
        Path | None,
        typer.Option(
            "--target", "-m", help="GGUF of a target: do the two fit?", show_default=False
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what a drafter's GGUF is, what each layer sees, and what is missing or odd.

    Ends with exit code 3 if a target is given and the two do not fit.

    Example: dflash-gguf inspect Qwen3.5-9B-DFlash-BF16.gguf --target Qwen3.5-9B.gguf
    """
    from ..inspection import inspect_file, render
    from ..terminal import write

    report = inspect_file(file, target)
    if json:
        import json as encoder

        write(encoder.dumps(report.as_dict(), indent=2) + "\n")
    else:
        write(render(report))
    if report.fit is not None and not report.fit.fits:
        raise typer.Exit(3)

"""`dflash-gguf inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._fetched import complete_model, fetching


def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            help="A drafter's GGUF, or user/repo[:QUANT].",
            show_default=False,
            autocompletion=complete_model,
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            "--target",
            "-m",
            help="GGUF of a target, or a name likewise: do the two fit?",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what a drafter's GGUF is, what each layer sees, and what is missing or odd.

    Ends with exit code 3 if a target is given and the two do not fit.

    Examples:
        dflash-gguf inspect Qwen3.5-9B-DFlash-BF16.gguf --target Qwen3.5-9B.gguf
    """
    from ..inspection import inspect_file, render
    from ..model_names import find_drafter, find_target
    from ..terminal import write

    with fetching() as progress:
        found = find_drafter(file, progress)
        target = None if target is None else find_target(target, progress)
    report = inspect_file(found, target)
    if json:
        import json as encoder

        write(encoder.dumps(report.as_dict(), indent=2) + "\n")
    else:
        write(render(report))
    if report.fit is not None and not report.fit.fits:
        raise typer.Exit(3)

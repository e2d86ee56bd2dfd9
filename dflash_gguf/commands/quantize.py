"""`dflash-gguf quantize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def quantize(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="A drafter's GGUF, best in bf16.", show_default=False),
    ],
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write.", show_default=False)
    ],
    kind: Annotated[
        str, typer.Argument(metavar="TYPE", help="Such as q5_k_m or q8_0.", show_default=False)
    ],
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE",
            help="Another type for the tensors whose name has a match of the regular expression NAME.",
            show_default=False,
        ),
    ] = None,
    imatrix: Annotated[
        Path | None,
        typer.Option(help="Importance matrix of llama-imatrix.", show_default=False),
    ] = None,
    allow_requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Take tensors that are quantised already.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", help="Threads.", show_default="all cores")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Write a drafter's GGUF in another type, with llama-quantize's types and bytes.

    Examples:
        dflash-gguf quantize draft-BF16.gguf draft-Q4_K_M.gguf q4_k_m
    """
    from ..convert import quantize as run
    from ..terminal import progress_bar
    from ._written import say_written

    with progress_bar("quantising", quiet=quiet) as move:
        written = run(
            source,
            output,
            kind,
            tensor_types=tensor_type or [],
            imatrix=imatrix,
            allow_requantize=allow_requantize,
            force=force,
            threads=threads,
            progress=lambda done, total, what: move(done / max(total, 1), what),
        )
    say_written([written], quiet=quiet)

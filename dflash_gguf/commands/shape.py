"""`dflash-gguf shape`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer


def shape(
    name: Annotated[
        str,
        typer.Argument(help="Qwen3.5-0.8B, Qwen3.5-4B or Qwen3.5-9B.", show_default=False),
    ],
    outdir: Annotated[Path, typer.Option(help="Folder for the files.")] = Path(),
    outtype: Annotated[str, typer.Option(help="Type of both files.")] = "bf16",
    draft_outtype: Annotated[
        str | None, typer.Option(help="Type of the drafter.", show_default="the same")
    ] = None,
    draft_vocab: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Give the drafter a head of its own for N tokens.",
            show_default="it borrows the target's whole head",
        ),
    ] = None,
    mtp: Annotated[
        bool,
        typer.Option(
            "--mtp", help="Give the target its next-token layer, which other engines draft with."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the weights.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", help="Threads.", show_default="all cores")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Write a pair of a real model's shape with random weights: its speed is real, its text is noise.

    Examples:
        dflash-gguf shape Qwen3.5-0.8B --outdir shapes --draft-vocab 32768
    """
    from ..shapes import find_shape, write_shape
    from ..terminal import progress_bar, say
    from ._written import say_written

    with progress_bar("writing", quiet=quiet) as move:
        pair = write_shape(
            replace(find_shape(name), mtp=mtp),
            outdir,
            outtype=outtype,
            draft_outtype=draft_outtype,
            draft_vocab=draft_vocab,
            seed=seed,
            force=force,
            threads=threads,
            progress=lambda done, total, what: move(done / max(total, 1), what),
        )
    if pair.target is None and not quiet:
        say(f"{pair.target_path}  kept: it is the same")
    files = [file for file in (pair.target, pair.draft) if file is not None]
    say_written(files, quiet=quiet)

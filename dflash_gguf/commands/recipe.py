"""`dflash-gguf recipe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._fetched import complete_model, fetching


def recipe(
    engine: Annotated[str, typer.Option(help="sglang, vllm or llama-server.", show_default=False)],
    target: Annotated[
        Path,
        typer.Option(
            "--target",
            "-m",
            help="The target: a GGUF, a Hugging Face folder, a repository, or user/repo:QUANT for a GGUF in one.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ],
    draft: Annotated[
        Path,
        typer.Option(
            "--draft",
            "-md",
            help="The drafter, likewise.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ],
    concurrency: Annotated[
        int, typer.Option(metavar="N", help="Requests that are answered at once.")
    ] = 1,
    block: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows of a verify.", show_default="the drafter's block"),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Tokens that each request may have.", show_default="the model's"
        ),
    ] = None,
) -> None:
    """Print the line that serves a pair with another engine, its options read from the files.

    What we have not verified is marked so in a comment.

    Examples:
        dflash-gguf recipe --engine llama-server -m Qwen3.5-9B.gguf -md Qwen3.5-9B-DFlash-Q5_K_M.gguf
        dflash-gguf recipe --engine sglang -m Qwen3.5-9B.gguf -md Qwen3.5-9B-DFlash-BF16.gguf --concurrency 32 --block 8
    """
    from ..recipe import make_recipe, named_files
    from ..terminal import write

    with fetching() as progress:
        target, draft = named_files(engine, target, draft, progress)
    made = make_recipe(engine, target, draft, concurrency=concurrency, block=block, context=context)
    write(made.render())

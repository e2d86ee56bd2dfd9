"""`dflash-gguf convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="The drafter's model.safetensors, its index, its folder or its repository owner/name.",
            show_default=False,
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            "--target",
            "-m",
            help="GGUF of the target model (also as user/repo:QUANT), or its Hugging Face folder or repository.",
            show_default="found by a tokenizer beside the source, by the only GGUF beside it or in the Hugging "
            "Face cache that fits, or by the names of known pairs",
        ),
    ] = None,
    outtype: Annotated[
        str, typer.Option(help="Types to write, separated by commas.")
    ] = "bf16,q5_k_m",
    outdir: Annotated[
        Path | None, typer.Option(help="Folder for the files.", show_default="beside the source")
    ] = None,
    outfile: Annotated[
        Path | None,
        typer.Option("--outfile", "-o", help="The file, if it is one type.", show_default=False),
    ] = None,
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE",
            help="Another type for the tensors of quantised outputs whose name has a match of the regular "
            "expression NAME, such as fc=q8_0; may be given several times, the first match counts.",
            show_default=False,
        ),
    ] = None,
    imatrix: Annotated[
        Path | None,
        typer.Option(
            help="Importance matrix of llama-imatrix, for quantised outputs.", show_default=False
        ),
    ] = None,
    draft_vocab: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Give the drafter a head of its own for N tokens, made from the target's: drafting gets "
            "faster, the answers stay the same. --tensor-type ^output=TYPE sets its type.",
            show_default="it borrows the target's whole head",
        ),
    ] = None,
    draft_vocab_text: Annotated[
        Path | None,
        typer.Option(
            help="A text whose most frequent tokens these are to be.",
            show_default="the tokens the tokenizer found first",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Files are called NAME-TYPE.gguf.", show_default="the source's name"),
    ] = None,
    model_card: Annotated[
        bool,
        typer.Option(
            "--model-card", help="Write a README.md beside the files, to publish them with."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", help="Threads.", show_default="all cores")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Convert a DFlash drafter's checkpoint to GGUF files that llama.cpp reads.

    Examples:
        dflash-gguf convert model.safetensors --target Qwen3.5-9B.gguf
    """
    from ..convert import convert as run
    from ..terminal import progress_bar, say
    from ._fetched import fetched
    from ._written import say_written

    if target is not None and ":" in target.name:  # without a quant, the checkpoint of that name
        target, _ = fetched(target, quiet=quiet)
    with progress_bar("converting", quiet=quiet) as move:
        written = run(
            source,
            target,
            outdir=outdir,
            outfile=outfile,
            tensor_types=tensor_type or [],
            imatrix=imatrix,
            draft_vocab=draft_vocab,
            draft_vocab_text=draft_vocab_text,
            outtypes=[item.strip() for item in outtype.split(",") if item.strip()],
            name=name,
            model_card=model_card,
            force=force,
            threads=threads,
            progress=lambda done, total, what: move(done / max(total, 1), what),
        )
    say_written(written, quiet=quiet)
    if model_card and not quiet:
        say(str(written[0].path.parent / "README.md"))

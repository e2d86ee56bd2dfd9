"""`dflash-gguf run`: one answer, or a chat."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    target: Annotated[
        Path,
        typer.Option(
            "--target", "-m", "--model", help="GGUF of the target model.", show_default=False
        ),
    ],
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft",
            "-md",
            "--draft-model",
            help="The drafter: a GGUF, or a folder with one or with its checkpoint.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Answer this and end; without it, chat.")
    ] = None,
    no_draft: Annotated[bool, typer.Option("--no-draft", help="Leave the drafter out.")] = False,
    block: Annotated[
        int | None,
        typer.Option(
            help="Rows of a verify, 1 to the drafter's block.", show_default="the drafter's"
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", help="Tokens to write; -1: until the model ends.")
    ] = -1,
    temp: Annotated[
        float, typer.Option("--temp", help="Temperature; 0 is greedy, the only one so far.")
    ] = 0.0,
    context: Annotated[
        int,
        typer.Option(
            "--ctx-size", "-c", help="Context in tokens; 0: up to 8192, as the model allows."
        ),
    ] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", help="Threads.", show_default="physical cores")
    ] = None,
    gpu_layers: Annotated[
        int | None,
        typer.Option(
            "--gpu-layers", "-ngl", help="Target layers on the GPU.", show_default="all, if any GPU"
        ),
    ] = None,
    draft_gpu_layers: Annotated[
        int | None,
        typer.Option(
            "--draft-gpu-layers", "-ngld", help="Draft layers on the GPU.", show_default="as above"
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", "-dev", help="Devices of the target, separated by commas.")
    ] = "",
    draft_device: Annotated[
        str, typer.Option("--draft-device", "-devd", help="Devices of the drafter.")
    ] = "",
    think: Annotated[
        bool | None, typer.Option("--think/--no-think", help="The template's switch.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No statistics, no notes.")] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="llama.cpp's log.")
    ] = 0,
) -> None:
    """Answer a prompt, or chat, with a target model and its DFlash drafter.

    Example: dflash-gguf run --target Qwen3.5-9B.gguf --draft draft.gguf -p "Why is the sky blue?"
    """
    from ..chat import Turns, answer_once, chat
    from ..errors import UsageError
    from ..loading import Options, load
    from ..terminal import progress_bar, show_notes

    if temp != 0:
        text = f"--temp {temp:g}: only greedy decoding (--temp 0) is built so far"
        raise UsageError(text)
    show_notes(quiet=quiet)
    _log_level(verbose)
    options = Options(
        context=context or None,
        max_block=None if no_draft or block is None else max(block, 2),
        threads=threads,
        gpu_layers=gpu_layers,
        draft_gpu_layers=draft_gpu_layers,
        devices=_names(device),
        draft_devices=_names(draft_device),
    )
    turns = Turns(
        max_tokens=None if max_tokens < 0 else max_tokens,
        block=None if no_draft else block,
        template={} if think is None else {"enable_thinking": think},
        quiet=quiet,
    )
    with progress_bar("loading", quiet=quiet) as move:

        def progress(fraction: float) -> bool:
            move(fraction, target.name)
            return True

        engine = load(target, None if no_draft else draft, options=options, progress=progress)
    with engine:
        if prompt is not None:
            answer = answer_once(engine, prompt, turns)
            if answer.finish_reason == "cancelled":
                raise typer.Exit(130)
        else:
            chat(engine, turns)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _log_level(verbose: int) -> None:
    if verbose:
        from .._native import core

        core().capture_log(min(verbose, 2))

"""`dflash-gguf run`: one answer, or a chat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import _limits, _values

if TYPE_CHECKING:
    from ..engine import Engine
    from ..options import Options


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
        str | None,
        typer.Option(
            "--prompt", "-p", help="Answer this and end; without it, chat.", show_default=False
        ),
    ] = None,
    no_draft: Annotated[bool, typer.Option("--no-draft", help="Leave the drafter out.")] = False,
    block: Annotated[
        str,
        typer.Option(
            help="Rows of a verify: auto (what is fastest), or 1 (no drafts) to the drafter's block."
        ),
    ] = "auto",
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            "-n",
            "--n-predict",
            help="Tokens to write; -1: until the model ends or the context is full.",
        ),
    ] = -1,
    temp: Annotated[
        float,
        typer.Option(
            "--temp", "--temperature", help="Temperature of sampling; 0: the most likely token."
        ),
    ] = 0.0,
    top_k: Annotated[int, typer.Option(help="Sample from the most likely tokens; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample from the most likely tokens up to this probability.")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Drop tokens below this share of the most likely one's chance.")
    ] = 0.0,
    typical: Annotated[float, typer.Option(help="Locally typical sampling; 1: off.")] = 1.0,
    repeat_penalty: Annotated[
        float, typer.Option(help="Divides the logits of recent tokens; 1: off.")
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option(help="Subtracted once from the logits of recent tokens.")
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="Subtracted for every occurrence of a recent token.")
    ] = 0.0,
    repeat_last_n: Annotated[
        int, typer.Option(help="Tokens that count as recent; -1: all, 0: none.")
    ] = 64,
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            "--logit-bias",
            "-l",
            help="TOKEN_ID(+/-)BIAS, such as 15043-1 or 2-inf; may be given again.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option("--seed", "-s", help="Of sampling; a seed gives one text. -1: any."),
    ] = -1,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="End the answer before this text; may be given again.", show_default=False
        ),
    ] = None,
    draft_sampling: Annotated[
        str,
        typer.Option(
            help="How drafted tokens are sampled: gumbel (with the target's own noise: a seed gives one "
            "text) or rejection (from the draft's distribution; may keep more, and the text of a seed then "
            "depends on the drafter and the block)."
        ),
    ] = "gumbel",
    grammar: Annotated[
        str | None,
        typer.Option(help="GBNF that answers must keep to.", show_default=False),
    ] = None,
    grammar_file: Annotated[
        Path | None, typer.Option(help="A file with such a grammar.", show_default=False)
    ] = None,
    json_schema: Annotated[
        str | None,
        typer.Option(
            "--json-schema",
            "-j",
            help="JSON schema that answers must be a value of; {} for any JSON.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        int,
        typer.Option(
            "--ctx-size", "-c", help="Context in tokens; 0: up to 8192, as the model allows."
        ),
    ] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", "-t", help="CPU threads; -1: the default.", show_default="physical cores"
        ),
    ] = None,
    gpu_layers: Annotated[
        str,
        typer.Option(
            "--gpu-layers",
            "-ngl",
            "--n-gpu-layers",
            help="Target layers on the GPU: a number, all, or auto (all if there is one).",
        ),
    ] = "auto",
    draft_gpu_layers: Annotated[
        str,
        typer.Option("--draft-gpu-layers", "-ngld", help="Draft layers on the GPU, likewise."),
    ] = "auto",
    device: Annotated[
        str,
        typer.Option(
            "--device",
            "-dev",
            help="Devices of the target, by comma; `dflash-gguf devices` lists them.",
        ),
    ] = "",
    draft_device: Annotated[
        str, typer.Option("--draft-device", "-devd", help="Devices of the drafter.")
    ] = "",
    memory_limit: _limits.MemoryLimit = None,
    draft_context: _limits.DraftContext = 0,
    draft_window: _limits.DraftWindow = 0,
    cache_k: _limits.CacheK = "f16",
    cache_v: _limits.CacheV = "f16",
    draft_cache_k: _limits.DraftCacheK = None,
    draft_cache_v: _limits.DraftCacheV = None,
    flash_attn: _limits.FlashAttention = "auto",
    mmap: _limits.Mmap = None,
    batch: _limits.Batch = None,
    ubatch: _limits.Ubatch = None,
    draft_batch: _limits.DraftBatch = None,
    batch_threads: _limits.BatchThreads = None,
    draft_threads: _limits.DraftThreads = None,
    think: Annotated[
        bool | None,
        typer.Option(
            "--think/--no-think",
            help="Whether the chat template lets the model think first.",
            show_default="the template's",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Nothing on stderr but warnings and errors.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Every line of the memory plan, llama.cpp's warnings; twice: its whole log.",
        ),
    ] = 0,
) -> None:
    """Answer a prompt, or chat, with a target model and its DFlash drafter.

    Example: dflash-gguf run --target Qwen3.5-9B.gguf --draft draft.gguf -p "Why is the sky blue?"
    """
    from ..chat import answer_once, chat, warn_without_template
    from ..options import Options
    from ..params import Params
    from ..sampling import Sampling
    from ..terminal import say, show_notes

    _values.check(max_tokens=max_tokens, context=context)
    width = _values.width(block)
    drafter = None if no_draft else draft
    show_notes(quiet=quiet, verbose=verbose > 0)
    _log_level(verbose)
    limits = _limits.Limits(
        memory_limit,
        draft_context,
        draft_window,
        cache_k,
        cache_v,
        draft_cache_k,
        draft_cache_v,
        flash_attn,
        mmap,
        batch,
        ubatch,
        draft_batch,
        batch_threads,
        draft_threads,
    )
    options = Options(
        **limits.options(),
        context=context or None,
        # a narrower block needs less memory; 2 is the least that a drafter can be opened for
        block="auto" if width is None or drafter is None else width,
        max_block=None if drafter is None or width is None else max(width, 2),
        threads=None if threads == -1 else threads,
        gpu_layers=_values.layers("-ngl", gpu_layers),
        draft_gpu_layers=_values.layers("-ngld", draft_gpu_layers),
        devices=_values.names(device),
        draft_devices=_values.names(draft_device),
    )
    params = Params(
        max_tokens=None if max_tokens < 0 else max_tokens,
        template={} if think is None else {"enable_thinking": think},
        sampling=Sampling(
            temperature=temp,
            top_k=top_k,
            typical=typical,
            top_p=top_p,
            min_p=min_p,
            repeat_penalty=repeat_penalty,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repeat_last_n=repeat_last_n,
            logit_bias=_values.biases(logit_bias or []),
            seed=None if seed == -1 else seed,
            draft_sampling=draft_sampling,
        ),
        grammar=_values.grammar(grammar, grammar_file, json_schema),
        json_schema=json_schema,
        stop=stop,
    )
    with _open(target, drafter, options, quiet) as engine:
        for warning in engine.warnings:
            say(f"warning: {warning}")
        if prompt is None:
            chat(engine, params, quiet=quiet)
            return
        warn_without_template(engine, quiet=quiet)
        if answer_once(engine, prompt, params, quiet=quiet).finish_reason == "cancelled":
            raise typer.Exit(130)


def _open(target: Path, draft: Path | None, options: Options, quiet: bool) -> Engine:
    from ..loading import load
    from ..terminal import progress_bar

    with progress_bar("loading", quiet=quiet) as move:

        def progress(fraction: float) -> bool:
            move(fraction, target.name)
            return True

        return load(target, draft, options=options, progress=progress)


def _log_level(verbose: int) -> None:
    if verbose:
        from .._native import core

        core().capture_log(min(verbose, 2))

"""`dflash-gguf run`: one answer, or a chat."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from . import _asked, _limits, _question, _values

if TYPE_CHECKING:
    from ..engine import Engine
    from ..options import Options


def run(
    target: _asked.Target,
    draft: _asked.Draft = None,
    words: _asked.Words = None,
    prompt: _asked.Prompt = None,
    file: _asked.File = None,
    system: _asked.System = "",
    conversation: _asked.Conversation = False,
    session: _asked.Session = None,
    json_output: _asked.JsonOutput = False,
    show_thinking: _asked.ShowThinking = True,
    show_accepted: _asked.ShowAccepted = False,
    no_draft: _asked.NoDraft = False,
    block: _asked.Block = "auto",
    max_tokens: _asked.MaxTokens = -1,
    temp: _asked.Temp = 0.0,
    top_k: _asked.TopK = 0,
    top_p: _asked.TopP = 1.0,
    min_p: _asked.MinP = 0.0,
    typical: _asked.Typical = 1.0,
    repeat_penalty: _asked.RepeatPenalty = 1.0,
    presence_penalty: _asked.PresencePenalty = 0.0,
    frequency_penalty: _asked.FrequencyPenalty = 0.0,
    repeat_last_n: _asked.RepeatLastN = 64,
    logit_bias: _asked.LogitBias = None,
    seed: _asked.Seed = -1,
    stop: _asked.Stop = None,
    draft_sampling: _asked.DraftSampling = "gumbel",
    grammar: _asked.Grammar = None,
    grammar_file: _asked.GrammarFile = None,
    json_schema: _asked.JsonSchema = None,
    context: _asked.Context = 0,
    threads: _asked.Threads = None,
    gpu_layers: _asked.GpuLayers = "auto",
    draft_gpu_layers: _asked.DraftGpuLayers = "auto",
    device: _asked.Device = "",
    draft_device: _asked.DraftDevice = "",
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
    think: _asked.Think = None,
    no_history: _asked.NoHistory = False,
    quiet: _asked.Quiet = False,
    verbose: _asked.Verbose = 0,
) -> None:
    """Answer a prompt, or chat, with a target model and its DFlash drafter.

    Example: dflash-gguf run --target Qwen3.5-9B.gguf --draft draft.gguf -p "Why is the sky blue?"
    """
    from ..chat import Screen
    from ..errors import UsageError
    from ..options import Options
    from ..params import Params
    from ..sampling import Sampling
    from ..terminal import say, show_notes
    from ._talk import Talk

    _values.check(max_tokens=max_tokens, context=context)
    asked = _question.question(words or [], prompt, file, conversation=conversation)
    if json_output and asked is None:
        text = "--json is for one answer; give a prompt"
        raise UsageError(text)
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
    screen = (
        None
        if json_output
        else Screen(quiet=quiet, thinking_shown=show_thinking, tinted=show_accepted)
    )
    talk = Talk(system, session, history=not no_history, quiet=quiet or json_output)
    with _open(target, drafter, options, quiet) as engine:
        for warning in engine.warnings:
            say(f"warning: {warning}")
        state = talk.begin(engine, params, screen, seeded=seed != -1)
        code = talk.chat(state) if asked is None else talk.answer(state, asked)
    raise typer.Exit(code)


def _open(target: Path, draft: Path | None, options: Options, quiet: bool) -> Engine:
    from ..loading import load
    from ..terminal import progress_bar
    from ._fetched import fetched

    target, draft = fetched(target, draft, quiet=quiet)
    with progress_bar("loading", quiet=quiet) as move:

        def progress(fraction: float) -> bool:
            move(fraction, target.name)
            return True

        return load(target, draft, options=options, progress=progress)


def _log_level(verbose: int) -> None:
    if verbose:
        from .._native import core

        core().capture_log(min(verbose, 2))

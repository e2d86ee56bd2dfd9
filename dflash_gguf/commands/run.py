"""`dflash-gguf run`: one answer, or a chat."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from . import _asked, _limits, _question, _sampled, _values
from ._given import Given

if TYPE_CHECKING:
    from ..engine import Engine
    from ..options import Options


def run(
    command: typer.Context,
    target: _asked.Target,
    draft: _asked.Draft = None,
    words: _asked.Words = None,
    prompt: _asked.Prompt = None,
    file: _asked.File = None,
    escape: _asked.Escape = False,
    system: _asked.System = "",
    system_file: _asked.SystemFile = None,
    conversation: _asked.Conversation = False,
    single_turn: _asked.SingleTurn = False,
    session: _asked.Session = None,
    max_tokens: _asked.MaxTokens = -1,
    stop: _asked.Stop = None,
    think: _asked.Think = None,
    reasoning: _asked.Reasoning = "auto",
    template_arguments: _asked.TemplateArguments = None,
    json_output: _asked.JsonOutput = False,
    show_thinking: _asked.ShowThinking = True,
    show_accepted: _asked.ShowAccepted = False,
    color: _asked.Color = "auto",
    no_history: _asked.NoHistory = False,
    quiet: _asked.Quiet = False,
    verbose: _asked.Verbose = 0,
    temp: _sampled.Temp = None,
    top_k: _sampled.TopK = None,
    top_p: _sampled.TopP = None,
    min_p: _sampled.MinP = None,
    typical: _sampled.Typical = None,
    repeat_penalty: _sampled.RepeatPenalty = None,
    presence_penalty: _sampled.PresencePenalty = None,
    frequency_penalty: _sampled.FrequencyPenalty = None,
    repeat_last_n: _sampled.RepeatLastN = None,
    logit_bias: _sampled.LogitBias = None,
    seed: _sampled.Seed = -1,
    grammar: _sampled.Grammar = None,
    grammar_file: _sampled.GrammarFile = None,
    json_schema: _sampled.JsonSchema = None,
    json_schema_file: _sampled.JsonSchemaFile = None,
    no_draft: _asked.NoDraft = False,
    block: _asked.Block = "auto",
    draft_sampling: _asked.DraftSampling = "gumbel",
    draft_window: _limits.DraftWindow = 0,
    draft_context: _limits.DraftContext = 0,
    draft_cache_k: _limits.DraftCacheK = None,
    draft_cache_v: _limits.DraftCacheV = None,
    draft_batch: _limits.DraftBatch = None,
    draft_threads: _limits.DraftThreads = None,
    context: _asked.Context = 0,
    threads: _asked.Threads = None,
    batch_threads: _limits.BatchThreads = None,
    gpu_layers: _asked.GpuLayers = "auto",
    draft_gpu_layers: _asked.DraftGpuLayers = "auto",
    device: _asked.Device = "",
    draft_device: _asked.DraftDevice = "",
    memory_limit: _limits.MemoryLimit = None,
    cache_ram: _limits.CacheRam = None,
    cache_k: _limits.CacheK = "f16",
    cache_v: _limits.CacheV = "f16",
    flash_attn: _limits.FlashAttention = "auto",
    mmap: _limits.Mmap = None,
    batch: _limits.Batch = None,
    ubatch: _limits.Ubatch = None,
) -> None:
    """Answer a prompt, or chat, with a target model and its DFlash drafter.

    Examples:
        dflash-gguf run -m Qwen3.5-9B.gguf -md draft.gguf -p "Why is the sky blue?"
        dflash-gguf run -m Qwen3.5-9B.gguf -md draft.gguf
        git diff | dflash-gguf run -m Qwen3.5-9B.gguf -md draft.gguf "Write a commit message."
        dflash-gguf run -m Qwen3.5-9B.gguf -md draft.gguf --temp 0.6 --top-p 0.95 --reasoning off --json -f question.txt
    """
    from ..chat import Screen
    from ..errors import UsageError
    from ..options import Options
    from ..params import Params
    from ..sampling import Sampling
    from ..terminal import choose_colors, say, show_notes
    from ._talk import Talk

    _values.check(max_tokens=max_tokens, context=context)
    given = Given(command)
    choose_colors(_values.switch("--color", color))
    read = _values.unescaped if escape else str
    asked = _question.question(
        [read(word) for word in words or []],
        None if prompt is None else read(prompt),
        file,
        conversation=conversation,
    )
    if asked is None and (json_output or single_turn):
        text = f"{'--json' if json_output else '--single-turn'} is for one answer; give a prompt"
        raise UsageError(text)
    from_file = given.first("system", "system_file") == "system_file"
    if from_file and system_file is not None:
        system = _values.text_of("--system-prompt-file", system_file)
    thinking = _values.switch("--reasoning", reasoning)
    if given.first("think", "reasoning") == "think":
        thinking = think
    form = given.first("grammar", "grammar_file", "json_schema", "json_schema_file")
    width = _values.width(block)
    drafter = None if no_draft else draft
    show_notes(quiet=quiet, verbose=verbose > 0, plan=verbose > 0 or sys.stderr.isatty())
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
        **_values.kept_memory(cache_ram, one_answer=asked is not None),
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
    chosen: dict[str, Any] = {
        "temperature": temp,
        "top_k": top_k,
        "typical": typical,
        "top_p": top_p,
        "min_p": min_p,
        "repeat_penalty": repeat_penalty,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "repeat_last_n": repeat_last_n,
        "logit_bias": _values.biases(logit_bias or []),
        "seed": None if seed == -1 else seed,
        "draft_sampling": draft_sampling,
    }
    said = {name: value for name, value in chosen.items() if value is not None}
    params = Params(
        max_tokens=None if max_tokens < 0 else max_tokens,
        template=_values.template(template_arguments or [], thinking=thinking),
        sampling=Sampling(**said),
        grammar=_values.text_or_file(form, grammar=grammar, grammar_file=grammar_file),
        json_schema=_values.text_or_file(
            form, json_schema=json_schema, json_schema_file=json_schema_file
        ),
        stop=[read(text) for text in stop or []],
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
        params = replace(params, sampling=engine.suggested_sampling(**said))
        origins = _sampled.origins(given, engine.suggested.values)
        state = talk.begin(engine, params, screen, seeded=seed != -1, origins=origins)
        talk.introduce(state, options.threads, chat=asked is None)
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

"""`dflash-gguf serve`: an OpenAI-compatible server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _asked, _limits, _serving, _values

if TYPE_CHECKING:
    from types import ModuleType

    from ..serve.requests import Rules
    from ..serve.service import About, Limits


def serve(
    target: _asked.Target,
    draft: _asked.Draft = None,
    host: _serving.Host = "127.0.0.1",
    port: _serving.Port = 30000,
    parallel: _serving.Parallel = 4,
    queue: _serving.Queue = 64,
    api_key: _serving.ApiKey = None,
    api_key_file: _serving.ApiKeyFile = None,
    allow_host: _serving.AllowHost = None,
    drain: _serving.Drain = 30.0,
    max_output: _serving.MaxOutput = None,
    max_body: _serving.MaxBody = 4 * 2**20,
    alias: _serving.Alias = None,
    strict_model: _serving.StrictModel = False,
    temp: _serving.Temp = None,
    top_k: _serving.TopK = None,
    top_p: _serving.TopP = None,
    min_p: _serving.MinP = None,
    think: _asked.Think = None,
    no_draft: _asked.NoDraft = False,
    block: _asked.Block = "auto",
    context: _asked.Context = 0,
    threads: _asked.Threads = None,
    gpu_layers: _asked.GpuLayers = "auto",
    draft_gpu_layers: _asked.DraftGpuLayers = "auto",
    device: _asked.Device = "",
    draft_device: _asked.DraftDevice = "",
    memory_limit: _limits.MemoryLimit = None,
    cache_ram: _limits.CacheRam = None,
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
    quiet: _asked.Quiet = False,
    verbose: _asked.Verbose = 0,
) -> None:
    """Answer over HTTP, as OpenAI's API does, until Ctrl-C or SIGTERM.

    Examples:
        dflash-gguf serve --target Qwen3.5-9B.gguf --draft draft.gguf --parallel 8
    """
    import asyncio

    process, rules, clients = _parts()
    own = _serving.keys(api_key or [], api_key_file)
    _expect_key(process.is_local(process.resolve(host, port)[1]), host, own)
    listening = process.listen(host, port)

    from ..loading import load
    from ..options import Options
    from ..terminal import say, show_notes
    from ._fetched import fetched

    _values.check(max_tokens=-1, context=context)
    width = _values.width(block)
    show_notes(quiet=quiet, verbose=verbose > 0)
    target, drafter = fetched(target, None if no_draft else draft, quiet=quiet)
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
        **_values.kept_memory(cache_ram, one_answer=False),
        context=context or None,
        block="auto" if width is None or drafter is None else width,
        max_block=None if drafter is None or width is None else max(width, 2),
        sequences=parallel,
        threads=None if threads == -1 else threads,
        gpu_layers=_values.layers("-ngl", gpu_layers),
        draft_gpu_layers=_values.layers("-ngld", draft_gpu_layers),
        devices=_values.names(device),
        draft_devices=_values.names(draft_device),
    )

    usual = {"temperature": temp, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    launch = process.Launch(
        open_engine=lambda progress: load(target, drafter, options=options, progress=progress),
        rules=rules(
            sampling={name: value for name, value in usual.items() if value is not None},
            max_output=max_output,
            parallel=parallel,
            model=alias or target.name,
            strict=strict_model,
            template={} if think is None else {"enable_thinking": think},
        ),
        limits=clients(queue=queue, body=max_body),
        keys=own,
        names=tuple(allow_host or ()),
        drain=drain,
    )

    def began() -> None:
        if not quiet:
            say(f"listening on {process.url(listening)}")

    def ready(about: About) -> None:
        for warning in about.warnings:
            say(f"warning: {warning}")
        if not quiet:
            for note in about.notes:
                say(f"note: {note}")
            where, model = process.url(listening), launch.rules.model
            each = f"{parallel} at a time, {about.context} tokens each"
            say(f"ready: {where}/v1 answers as {model}, {each}")

    asyncio.run(process.Process(launch, listening, ready, began).run())


def _parts() -> tuple[ModuleType, type[Rules], type[Limits]]:
    from ..errors import UsageError

    try:
        from ..serve import process
        from ..serve.requests import Rules
        from ..serve.service import Limits
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dflash_gguf"):
            raise
        text = f"serving needs {error.name}; install it with: pip install 'dflash-gguf[serve]'"
        raise UsageError(text) from None
    return process, Rules, Limits


def _expect_key(local: bool, host: str, keys: tuple[str, ...]) -> None:
    from ..errors import UsageError
    from ..terminal import say

    if local:
        return
    if not keys:
        text = f"other machines reach --host {host}; give an --api-key, or keep to 127.0.0.1"
        raise UsageError(text)
    say(f"warning: other machines reach {host}, and what they send is not encrypted")

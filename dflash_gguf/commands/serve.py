"""`dflash-gguf serve`: an OpenAI-compatible server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import _asked, _limits, _values

if TYPE_CHECKING:
    from types import ModuleType

    from ..serve.requests import Rules
    from ..serve.service import Limits, Service

Host = Annotated[
    str, typer.Option(help="Address to listen at; another than this machine's own wants a key.")
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any that is free.")
]
Parallel = Annotated[
    int, typer.Option("--parallel", "-np", min=1, max=256, help="Answers at the same time.")
]
Queue = Annotated[int, typer.Option(min=0, help="Answers that may wait for one of them to end.")]
ApiKey = Annotated[
    list[str] | None,
    typer.Option(help="Key that clients must send; may be given again.", show_default=False),
]
ApiKeyFile = Annotated[
    Path | None, typer.Option(help="A file with such keys, one a line.", show_default=False)
]
Drain = Annotated[
    float,
    typer.Option(min=0, help="Seconds that answers have to end when the server is told to."),
]
MaxOutput = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens of an answer.", show_default="what the context holds"),
]
MaxBody = Annotated[int, typer.Option(min=1024, help="Most bytes of a request.")]
Alias = Annotated[
    str | None,
    typer.Option("--alias", "-a", help="Name of the model.", show_default="the target's file name"),
]
StrictModel = Annotated[
    bool, typer.Option("--strict-model", help="Refuse requests that name another model.")
]
Temp = Annotated[
    float, typer.Option("--temp", "--temperature", min=0, help="Of requests that give none.")
]
TopK = Annotated[int, typer.Option(min=0, help="Likewise.")]
TopP = Annotated[float, typer.Option(min=0, max=1, help="Likewise.")]
MinP = Annotated[float, typer.Option(min=0, max=1, help="Likewise.")]


def serve(
    target: _asked.Target,
    draft: _asked.Draft = None,
    host: Host = "127.0.0.1",
    port: Port = 30000,
    parallel: Parallel = 4,
    queue: Queue = 64,
    api_key: ApiKey = None,
    api_key_file: ApiKeyFile = None,
    drain: Drain = 30.0,
    max_output: MaxOutput = None,
    max_body: MaxBody = 4 * 2**20,
    alias: Alias = None,
    strict_model: StrictModel = False,
    temp: Temp = 0.8,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    min_p: MinP = 0.05,
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

    from ..loading import load
    from ..options import Options
    from ..terminal import say, show_notes
    from ._fetched import fetched

    _values.check(max_tokens=-1, context=context)
    width = _values.width(block)
    target, drafter = fetched(target, None if no_draft else draft, quiet=quiet)
    show_notes(quiet=quiet, verbose=verbose > 0)
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
        block="auto" if width is None or drafter is None else width,
        max_block=None if drafter is None or width is None else max(width, 2),
        sequences=parallel,
        threads=None if threads == -1 else threads,
        gpu_layers=_values.layers("-ngl", gpu_layers),
        draft_gpu_layers=_values.layers("-ngld", draft_gpu_layers),
        devices=_values.names(device),
        draft_devices=_values.names(draft_device),
    )

    process, rules, clients = _parts()
    launch = process.Launch(
        open_engine=lambda progress: load(target, drafter, options=options, progress=progress),
        rules=rules(
            sampling={"temperature": temp, "top_k": top_k, "top_p": top_p, "min_p": min_p},
            max_output=max_output,
            parallel=parallel,
            model=alias or target.name,
            strict=strict_model,
            template={} if think is None else {"enable_thinking": think},
        ),
        limits=clients(queue=queue, body=max_body),
        keys=_keys(api_key or [], api_key_file),
        drain=drain,
    )
    _expect_key(process.is_local(process.resolve(host, port)[1]), host, launch.keys)
    listening = process.listen(host, port)
    if not quiet:
        say(f"listening on {process.url(listening)}")

    def ready(service: Service) -> None:
        for warning in service.about.warnings if service.about else ():
            say(f"warning: {warning}")
        if not quiet:
            where, model = process.url(listening), launch.rules.model
            say(f"ready: {where}/v1 answers as {model}, {parallel} requests at a time")

    asyncio.run(process.Process(launch, listening, ready).run())


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


def _keys(given: list[str], path: Path | None) -> tuple[str, ...]:
    from ..errors import UsageError

    keys = [key.strip() for key in given]
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            text = f"--api-key-file {path}: {getattr(error, 'strerror', None) or error}"
            raise UsageError(text) from None
        keys += [line.strip() for line in lines if line.strip()]
    if "" in keys or (path is not None and not keys):
        text = "an API key is empty; expected at least one character"
        raise UsageError(text)
    return tuple(keys)

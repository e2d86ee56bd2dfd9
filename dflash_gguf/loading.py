"""Opening a pair: files -> checks -> models -> contexts -> engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ._native import core
from .calibration import Notebook, identity, learn, prefill_rows
from .convert.target import read_target
from .draft_family import make_drafter
from .engine import AUTO, Engine, Parts
from .errors import DflashError, ModelError, ResourceError, UsageError
from .gguf_file import GgufFile
from .hardware import check_devices, default_threads, devices, gpu_layers
from .memory import check_context
from .pair import Draft, check_draft
from .prefix_file import ModelFile, Origin
from .simulation import Simulation

if TYPE_CHECKING:
    from . import _core

_DEFAULT_CTX = 8192
_PREFIX_MEMORY = 512 * 2**20
_PREFILL_ROWS = 256  # each tap reserves n_embd floats per row of a batch
_INJECT_ROWS = 128
_INT_MAX = 2**31 - 1
_BYTES_MAX = 2**62
_MAX_SEQUENCES = 256  # llama.cpp's own limit
_LEAST_MEASURED = 16  # positions; a smaller context reads its prompts in a moment
_MAX_THREADS = 512  # and ggml's
_MAX_BLOCK = 1024  # a file may claim any; each row of a block takes memory
_KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # ggml_type

_KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32}


@dataclass(frozen=True, slots=True)
class Options:
    """How to open a pair.

    Attributes:
        context: positions of a sequence; None: 8192 or what the target was trained for, if less.
        block: rows of a verify of requests that ask for none: a number, or "auto": what is fastest here, which
            is measured while loading.
        max_block: widest block that may be asked for; None: the drafter's trained one. Hybrid targets keep
            max_block - 1 copies of their recurrent state per sequence to go back to.
        sequences: answers that may run at the same time.
        threads: None: the physical cores.
        gpu_layers, draft_gpu_layers: layers on the GPU; None: all if there is one.
        devices, draft_devices: names as `dflash-gguf devices` lists them.
        kv_type: "f16", "f32" or "q8_0", of both caches.
        prefix_memory: bytes of host memory for states of texts that later prompts may begin with, beyond
            those that stay in the caches; 0: every prompt is read from its start.
        causal: rows of a block see only what is before them; None: as the drafter's file says.
        simulate: draw how many drafted tokens are accepted, for measurements; see simulation.py.
    """

    context: int | None = None
    block: int | str = AUTO
    max_block: int | None = None
    sequences: int = 1
    threads: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    devices: tuple[str, ...] = ()
    draft_devices: tuple[str, ...] = ()
    kv_type: str = "f16"
    prefix_memory: int = _PREFIX_MEMORY
    causal: bool | None = None
    simulate: Simulation | None = None


def load(
    target: Path | str,
    draft: Path | str | None = None,
    *,
    options: Options | None = None,
    progress: Callable[[float], bool] | None = None,
    **settings: object,
) -> Engine:
    """Open a target GGUF, with a drafter if one is given, and return the Engine.

    Args:
        target: GGUF file of the target.
        draft: GGUF file of its drafter, or a folder with one or with the drafter's checkpoint.
        options: how; single fields may be given as keywords instead, e.g. `load(t, d, threads=4)`.
        progress: called with 0..1 while the target's weights load; returning False stops the load with a
            DflashError.

    Raises ModelError if a file is broken or the two do not fit, ResourceError for context or devices that
    cannot be had, UsageError for options that make no sense.
    """
    began = time.monotonic()
    chosen = _settle(options or Options(), settings)
    target_path = Path(target)
    if chosen.simulate is not None and draft is None:
        text = "simulate is given without a drafter; expected one, whose work is to be timed"
        raise UsageError(text)
    facts: Draft | None = None
    # open throughout: walking the header of a large vocabulary takes a tenth of a second
    with GgufFile(target_path) as target_file:
        read_target(target_file)
        if draft is not None:
            from .draft_file import find_draft

            facts = check_draft(target_file, find_draft(Path(draft), target_path))
        _check_devices(chosen)
        model = _open_model(target_path, chosen.gpu_layers, chosen.devices, progress)
        _check_memory(target_file, model, chosen)
    parts = _assemble(model, facts, chosen)
    parts.origin = Origin(
        ModelFile.of(target_path.absolute()),
        None if facts is None else ModelFile.of(Path(facts.path).absolute()),
        {"kv_type": chosen.kv_type, "sequences": chosen.sequences},
    )
    if facts is not None and parts.drafter is not None and chosen.block == AUTO:
        files, seconds = (target_path, facts.path), time.monotonic() - began
        parts.notebook = _steer(parts, parts.drafter, files, chosen, seconds)
    if gpu_layers(chosen.gpu_layers) == 0 and parts.session.n_ctx > _LEAST_MEASURED:
        parts.session.prefill_rows = prefill_rows(parts.target, parts.session.prefill_rows)
    engine = Engine(parts)
    if engine.n_ctx > model.n_ctx_train:
        engine.warnings.append(
            f"a context of {engine.n_ctx} tokens is longer than the {model.n_ctx_train} that the target was "
            "trained for; text beyond may make no sense"
        )
    return engine


def _settle(options: Options, settings: dict[str, object]) -> Options:
    known = [field.name for field in fields(Options)]
    for name in settings:
        if name not in known:
            text = f"there is no option '{name}'; expected one of {', '.join(known)}"
            raise UsageError(text)
    chosen = replace(options, **settings)  # type: ignore[arg-type]
    _check_number("sequences", chosen.sequences, 1, _MAX_SEQUENCES)
    _check_number("threads", chosen.threads, 1, _MAX_THREADS)
    _check_number("context", chosen.context, 1, _INT_MAX // chosen.sequences)
    if chosen.block != AUTO:
        _check_number("block", chosen.block, 1, _INT_MAX // chosen.sequences)
    _check_number("max_block", chosen.max_block, 1, _INT_MAX // chosen.sequences)
    _check_number("gpu_layers", chosen.gpu_layers, -1, _INT_MAX)
    _check_number("draft_gpu_layers", chosen.draft_gpu_layers, -1, _INT_MAX)
    _check_number("prefix_memory", chosen.prefix_memory, 0, _BYTES_MAX)
    if chosen.simulate is not None and not isinstance(chosen.simulate, Simulation):
        text = f"simulate is {chosen.simulate!r}; expected a dflash_gguf.Simulation"
        raise UsageError(text)
    if chosen.kv_type not in _KV_TYPES:
        text = f"kv_type is {chosen.kv_type!r}; expected one of {', '.join(_KV_TYPES)}"
        raise UsageError(text)
    return chosen


def _check_number(name: str, number: object, least: int, most: int) -> None:
    if number is not None and not (isinstance(number, int) and least <= number <= most):
        text = f"{name} is {number!r}; expected a whole number from {least} to {most}"
        raise UsageError(text)


def _check_devices(options: Options) -> None:
    names = [*options.devices, *options.draft_devices]
    check_devices(names)
    for name in names:
        if name.startswith("RPC"):
            text = f"device '{name}' is remote; drafting needs both models on this machine"
            raise ResourceError(text)


def _check_memory(target: GgufFile, model: _core.Model, options: Options) -> None:
    positions = options.sequences * _context(model, options)
    on_host = gpu_layers(options.gpu_layers) == 0
    check_context(target, positions, _KV_BYTES[options.kv_type], on_host=on_host)


def _context(model: _core.Model, options: Options) -> int:
    return options.context or min(_DEFAULT_CTX, model.n_ctx_train)


def _open_model(
    path: Path,
    layers: int | None,
    devices: tuple[str, ...],
    progress: Callable[[float], bool] | None = None,
) -> _core.Model:
    stopped: list[BaseException | None] = []

    # always given, since Python sees a Ctrl-C only while Python code runs
    def report(fraction: float) -> bool:
        try:
            if progress is None or progress(fraction) is not False:
                return True
            stopped.append(None)
        except BaseException as error:  # noqa: BLE001 (raised again behind llama.cpp)
            stopped.append(error)
        return False

    try:
        model: _core.Model = core().Model(
            str(path), n_gpu_layers=gpu_layers(layers), devices=list(devices), progress=report
        )
    except RuntimeError as error:
        if stopped:
            text = f"{path}: the load was stopped"
            raise stopped[0] or DflashError(text) from None
        text = f"{path}: llama.cpp cannot load it ({error}); is the file complete?"
        raise ModelError(text) from error
    return model


def _assemble(model: _core.Model, draft: Draft | None, options: Options) -> Parts:
    native = core()
    block = 1 if draft is None else options.max_block or draft.block
    if draft is not None and block > draft.block:
        text = f"block {block} is wider than the {draft.block} that {draft.path} was trained for"
        raise UsageError(text)
    if block > _MAX_BLOCK:
        text = f"block {block} is more than {_MAX_BLOCK}; load with a narrower max_block"
        raise UsageError(text)
    params = _target_params(model, block, options)
    context = _open_context(model, params)
    drafter: _core.Drafter | None = None
    taps: list[int] = []
    wanted = block if isinstance(options.block, str) else options.block
    if draft is not None and wanted > block:
        text = f"block {wanted} is wider than the {block} rows that the engine is loaded for"
        raise UsageError(text)
    if draft is not None:
        draft_model = _open_model(draft.path, options.draft_gpu_layers, options.draft_devices)
        taps = draft_model.taps
        drafter = _open_drafter(
            draft,
            draft_model,
            _draft_params(params, block),
            _anchor(model, params, context),
            options,
        )
        if options.simulate is not None:
            drafter = options.simulate.around(drafter)
    target = native.Target(context, taps)
    try:
        session = native.Session(target, drafter, block, prefix_memory=options.prefix_memory)
    except ValueError as error:
        text = f"this target cannot verify blocks: {error}; run it without a drafter or with a narrower block"
        raise ModelError(text) from None
    default = AUTO if draft and options.block == AUTO else wanted if draft else 1
    simulated = options.simulate is not None
    return Parts(model, target, drafter, default, session, options.sequences, simulated)


def _anchor(
    model: _core.Model, params: _core.ContextParams, context: _core.Context
) -> _core.Context:
    """Return the context whose model the draft borrows embeddings and head from.

    A context with snapshots is remade at times, and the draft must not depend on it then.
    """
    if params.n_rollback == 0:
        return context
    small: _core.ContextParams = core().ContextParams()
    small.n_ctx = small.n_batch = small.n_ubatch = small.n_outputs = small.n_seq = 1
    return _open_context(model, small)


def _steer(
    parts: Parts,
    drafter: _core.Drafter,
    files: tuple[Path, Path],
    options: Options,
    load_seconds: float,
) -> Notebook:
    """Let the engine choose the widths of blocks, by costs measured now or on an earlier load."""
    ignored = ("block", "causal", "simulate")
    notebook = Notebook(
        {
            "files": [identity(file) for file in files],
            "devices": [device.name for device in devices()],
            "threads": options.threads or default_threads(),
            "simulated": options.simulate is not None,  # its outcomes are not the drafter's
            **{f.name: getattr(options, f.name) for f in fields(Options) if f.name not in ignored},
        }
    )
    learnt = notebook.read()
    if learnt is None:
        learnt = learn(
            parts.target,
            drafter,
            widest=parts.session.max_block,
            context=parts.session.n_ctx,
            load_seconds=load_seconds,
        )
        notebook.write(learnt)
    parts.session.steer(
        learnt.points,
        depth=learnt.depth,
        slots=learnt.slots,
        rebuild=learnt.rebuild,
        shift=learnt.shift,
        outcomes=learnt.outcomes,
    )
    return notebook


def _target_params(model: _core.Model, block: int, options: Options) -> _core.ContextParams:
    params: _core.ContextParams = core().ContextParams()
    params.n_ctx = _context(model, options)
    params.n_seq = options.sequences
    rows = options.sequences * block
    # llama.cpp keeps a block's states only if a ubatch has room for one more row
    params.n_batch = params.n_ubatch = max(_PREFILL_ROWS, rows + 1)
    params.n_outputs = rows
    params.n_rollback = block - 1 if model.has_state else 0
    params.n_threads = params.n_threads_batch = options.threads or default_threads()
    params.type_kv = _KV_TYPES[options.kv_type]
    return params


def _draft_params(target: _core.ContextParams, block: int) -> _core.ContextParams:
    params: _core.ContextParams = core().ContextParams()
    params.n_ctx = target.n_ctx
    params.n_seq = target.n_seq
    # a non-causal decode must fit one ubatch, and the graph computes logits for every row
    params.n_batch = params.n_ubatch = params.n_outputs = max(_INJECT_ROWS, target.n_seq * block)
    params.n_threads = params.n_threads_batch = target.n_threads
    params.unified = True
    params.type_kv = target.type_kv
    return params


def _open_context(model: _core.Model, params: _core.ContextParams) -> _core.Context:
    with _no_memory(params):
        context: _core.Context = core().Context(model, params)
    return context


def _open_drafter(
    draft: Draft,
    model: _core.Model,
    params: _core.ContextParams,
    target: _core.Context,
    options: Options,
) -> _core.ModelDrafter:
    causal = draft.causal
    if options.causal is not None:
        causal = (options.causal,) * len(causal)
    with _no_memory(params):
        drafter = make_drafter(draft.layout, model, params, target, draft.mask, causal)
    try:
        drafter.probe()
    except RuntimeError as error:
        text = f"{draft.path}: {error}; run it with one mask for all layers (causal=False)"
        raise ModelError(text) from error
    return drafter


@contextmanager
def _no_memory(params: _core.ContextParams) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = (
            f"no memory for a context of {params.n_ctx} tokens ({error}); give a smaller one (-c)"
        )
        raise ResourceError(text) from error

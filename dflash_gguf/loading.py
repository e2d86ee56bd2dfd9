"""Opening a pair: files -> checks -> models -> contexts -> engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ._native import core
from .engine import Engine, Parts
from .errors import ModelError, ResourceError, UsageError
from .hardware import check_devices, default_threads, gpu_layers
from .pair import Draft, check_pair, check_target

if TYPE_CHECKING:
    from . import _core

_DEFAULT_CTX = 8192
_PREFILL_ROWS = 256  # each tap reserves n_embd floats per row of a batch
_INJECT_ROWS = 128
_KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # ggml_type


@dataclass(frozen=True, slots=True)
class Options:
    """How to open a pair.

    Attributes:
        context: positions of a sequence; None: 8192 or what the target was trained for, if less.
        max_block: widest block that may be asked for; None: the drafter's trained one. Hybrid targets keep
            max_block - 1 copies of their recurrent state per sequence to go back to.
        sequences: answers that may run at the same time.
        threads: None: the physical cores.
        gpu_layers, draft_gpu_layers: layers on the GPU; None: all if there is one.
        devices, draft_devices: names as `dflash-gguf devices` lists them.
        kv_type: "f16", "f32" or "q8_0", of both caches.
        causal: rows of a block see only what is before them; None: as the drafter's file says.
    """

    context: int | None = None
    max_block: int | None = None
    sequences: int = 1
    threads: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    devices: tuple[str, ...] = ()
    draft_devices: tuple[str, ...] = ()
    kv_type: str = "f16"
    causal: bool | None = None


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
        progress: called with 0..1 while the target's weights load; returning False stops the load.

    Raises ModelError if a file is broken or the two do not fit, ResourceError for context or devices that
    cannot be had, UsageError for options that make no sense.
    """
    chosen = _settle(options or Options(), settings)
    target_path = Path(target)
    facts: Draft | None = None
    if draft is None:
        check_target(target_path)
    else:
        from .draft_file import find_draft

        facts = check_pair(target_path, find_draft(Path(draft), target_path))
    _check_devices(chosen)
    model = _open_model(target_path, chosen.gpu_layers, chosen.devices, progress)
    return Engine(_assemble(model, facts, chosen))


def _settle(options: Options, settings: dict[str, object]) -> Options:
    try:
        chosen = replace(options, **settings)  # type: ignore[arg-type]
    except TypeError as error:
        text = f"unknown option: {error}"
        raise UsageError(text) from None
    numbers = {
        "context": chosen.context,
        "max_block": chosen.max_block,
        "sequences": chosen.sequences,
        "threads": chosen.threads,
    }
    for name, number in numbers.items():
        if number is not None and number < 1:
            text = f"{name} is {number}; at least 1 is needed"
            raise UsageError(text)
    if chosen.kv_type not in _KV_TYPES:
        text = f"kv_type is '{chosen.kv_type}'; expected one of {', '.join(_KV_TYPES)}"
        raise UsageError(text)
    return chosen


def _check_devices(options: Options) -> None:
    names = [*options.devices, *options.draft_devices]
    check_devices(names)
    for name in names:
        if name.startswith("RPC"):
            text = f"device '{name}' is remote; drafting needs both models on this machine"
            raise ResourceError(text)


def _open_model(
    path: Path,
    layers: int | None,
    devices: tuple[str, ...],
    progress: Callable[[float], bool] | None = None,
) -> _core.Model:
    try:
        model: _core.Model = core().Model(
            str(path), n_gpu_layers=gpu_layers(layers), devices=list(devices), progress=progress
        )
    except RuntimeError as error:
        text = f"{path}: llama.cpp cannot load it ({error}); is the file complete?"
        raise ModelError(text) from error
    return model


def _assemble(model: _core.Model, draft: Draft | None, options: Options) -> Parts:
    native = core()
    block = 1 if draft is None else options.max_block or draft.block
    if draft is not None and block > draft.block:
        text = f"block {block} is wider than the {draft.block} that {draft.path} was trained for"
        raise UsageError(text)
    params = _target_params(model, block, options)
    context = _open_context(model, params)
    target = native.Target(
        context, draft_model.taps if (draft_model := _draft_model(draft, options)) else []
    )
    drafter = None
    if draft is not None and draft_model is not None:
        causal = draft.causal if options.causal is None else options.causal
        child = _open_context(draft_model, _draft_params(params, block), parent=context)
        drafter = native.ModelDrafter(child, draft.mask, causal)
    try:
        session = native.Session(target, drafter, block)
    except ValueError as error:
        text = f"this target cannot verify blocks: {error}; run it without a drafter or with a narrower block"
        raise ModelError(text) from None
    return Parts(model, target, drafter, draft.block if draft else 1, session)


def _draft_model(draft: Draft | None, options: Options) -> _core.Model | None:
    if draft is None:
        return None
    return _open_model(draft.path, options.draft_gpu_layers, options.draft_devices)


def _target_params(model: _core.Model, block: int, options: Options) -> _core.ContextParams:
    params: _core.ContextParams = core().ContextParams()
    params.n_ctx = options.context or min(_DEFAULT_CTX, model.n_ctx_train)
    params.n_seq = options.sequences
    rows = options.sequences * block
    params.n_batch = params.n_ubatch = max(_PREFILL_ROWS, rows)
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


def _open_context(
    model: _core.Model, params: _core.ContextParams, parent: _core.Context | None = None
) -> _core.Context:
    try:
        context: _core.Context = core().Context(model, params, parent)
    except RuntimeError as error:
        text = (
            f"no memory for a context of {params.n_ctx} tokens ({error}); give a smaller one (-c)"
        )
        raise ResourceError(text) from error
    return context

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
from .engine import Engine, Parts
from .errors import DflashError, ModelError, ResourceError, UsageError
from .fitting import Fitted, fit, open_trial, parse_size, say
from .gguf_file import GgufFile
from .hardware import check_devices, default_threads, devices, gpu_layers
from .pair import Draft, check_draft
from .params import AUTO
from .prefix_file import ModelFile, Origin
from .simulation import Simulation
from .sizes import (
    Sizes,
    anchor_params,
    check_caches,
    draft_params,
    kv_types,
    target_params,
)

if TYPE_CHECKING:
    from . import _core

_PREFIX_MEMORY = 512 * 2**20
_INT_MAX = 2**31 - 1
_BYTES_MAX = 2**62
_MAX_SEQUENCES = 256  # llama.cpp's own limit
_LEAST_MEASURED = 16  # positions; a smaller context reads its prompts in a moment
_MAX_THREADS = 512  # and ggml's
_MAX_BLOCK = 1024  # a file may claim any; each row of a block takes memory


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
        threads: None: the physical cores. threads_batch: of decodes of several rows, a verify among them; None:
            the same. draft_threads: of the drafter; None: the same.
        gpu_layers, draft_gpu_layers: layers on the GPU; None: all if there is one.
        devices, draft_devices: names as `dflash-gguf devices` lists them.
        kv_type: llama.cpp's name of the numbers in the target's cache, such as "f16" or "q8_0", or two, of keys
            and of values. draft_kv_type: of the draft's cache; None: the same.
        flash_attn: None: where it pays. Values of a quantised type need it.
        batch, ubatch: rows of a decode of the target, as it is asked for and as it is computed; None: 256 or what
            a verify of all sequences takes.
        draft_context: positions of a sequence in the draft's cache; None: as many as the target's. Of a longer
            text the newest rows are kept.
        draft_window: newest context rows of a sequence that are injected and kept in the draft; None: all.
        draft_batch: rows of a decode of the draft; None: 128 or what its blocks take.
        memory_limit: most memory to take, everywhere together, such as "8G" or "500M" or a number of MiB; None:
            what is free now.
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
    kv_type: str | tuple[str, str] = "f16"
    draft_kv_type: str | tuple[str, str] | None = None
    flash_attn: bool | None = None
    batch: int | None = None
    ubatch: int | None = None
    threads_batch: int | None = None
    draft_threads: int | None = None
    draft_context: int | None = None
    draft_window: int | None = None
    draft_batch: int | None = None
    memory_limit: int | str | None = None
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
        fitted = _fit(target_path, facts, chosen)
        model = _open_model(target_path, chosen.gpu_layers, chosen.devices, progress)
    parts = _assemble(model, facts, chosen, fitted)
    parts.origin = Origin(
        ModelFile.of(target_path.absolute()),
        None if facts is None else ModelFile.of(Path(facts.path).absolute()),
        {"kv_type": " and ".join(dict.fromkeys(kv_types(chosen))), "sequences": chosen.sequences},
    )
    if facts is not None and parts.drafter is not None and chosen.block == AUTO:
        files, seconds = (target_path, facts.path), time.monotonic() - began
        parts.notebook = _steer(parts, parts.drafter, files, chosen, seconds)
    if gpu_layers(chosen.gpu_layers) == 0 and parts.session.n_ctx > _LEAST_MEASURED:
        parts.session.prefill_rows = prefill_rows(parts.target, parts.session.prefill_rows)
    engine = Engine(parts)
    engine.plan = fitted.plan
    engine.warnings.extend(fitted.notes)
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
    for name in ("threads_batch", "draft_threads"):
        _check_number(name, getattr(chosen, name), 1, _MAX_THREADS)
    for name in ("batch", "ubatch", "draft_context", "draft_window", "draft_batch"):
        _check_number(name, getattr(chosen, name), 1, _INT_MAX // chosen.sequences)
    check_caches(chosen)
    if chosen.memory_limit is not None:
        parse_size(chosen.memory_limit)
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


def _fit(target: Path, draft: Draft | None, options: Options) -> Fitted:
    """Plan the memory before anything is loaded, and say it."""
    trial = open_trial(target, None if draft is None else draft.path, options)
    fitted = fit(trial, options, _block(draft, options), drafts=draft is not None)
    say(fitted)
    return fitted


def _block(draft: Draft | None, options: Options) -> int:
    """Rows of the widest verify that is wanted."""
    block = 1 if draft is None else options.max_block or draft.block
    if draft is not None and block > draft.block:
        text = f"block {block} is wider than the {draft.block} that {draft.path} was trained for"
        raise UsageError(text)
    if block > _MAX_BLOCK:
        text = f"block {block} is more than {_MAX_BLOCK}; load with a narrower max_block"
        raise UsageError(text)
    if draft is not None and isinstance(options.block, int) and options.block > block:
        text = f"block {options.block} is wider than the {block} rows that the engine is loaded for"
        raise UsageError(text)
    return block


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


def _assemble(model: _core.Model, draft: Draft | None, options: Options, fitted: Fitted) -> Parts:
    native = core()
    sizes = fitted.sizes
    context = _open_context(model, target_params(options, sizes))
    drafter: _core.Drafter | None = None
    taps: list[int] = []
    if draft is not None:
        draft_model = _open_model(draft.path, options.draft_gpu_layers, options.draft_devices)
        taps = draft_model.taps
        anchor = _open_context(model, anchor_params()) if sizes.snapshots else context
        drafter = _open_drafter(draft, draft_model, anchor, options, sizes)
        if options.simulate is not None:
            drafter = options.simulate.around(drafter)
    target = native.Target(context, taps)
    try:
        session = native.Session(
            target,
            drafter,
            sizes.block,
            replay=sizes.replay,
            prefix_memory=fitted.prefix_memory,
        )
    except ValueError as error:
        text = f"this target cannot verify blocks: {error}; run it without a drafter or with a narrower block"
        raise ModelError(text) from None
    default: int | str = 1
    if draft is not None:
        default = (
            options.block if isinstance(options.block, str) else min(options.block, sizes.block)
        )
    simulated = options.simulate is not None
    return Parts(model, target, drafter, default, session, options.sequences, simulated)


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


def _open_context(model: _core.Model, params: _core.ContextParams) -> _core.Context:
    with _no_memory(params):
        context: _core.Context = core().Context(model, params)
    return context


def _open_drafter(
    draft: Draft,
    model: _core.Model,
    target: _core.Context,
    options: Options,
    sizes: Sizes,
) -> _core.ModelDrafter:
    params = draft_params(options, sizes)
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

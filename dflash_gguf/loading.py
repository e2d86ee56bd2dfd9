"""Opening a pair: files -> checks -> models -> contexts -> engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ._native import core
from .calibration import Effort, Learnt, Notebook, identity, learn, prefill_rows
from .convert.target import read_target
from .draft_family import make_drafter
from .engine import Engine
from .errors import DflashError, ModelError, ResourceError, UsageError
from .fitting import Fitted, fit, open_trial, say
from .gguf_file import GgufFile
from .hardware import check_devices, default_threads, devices, gpu_layers, maps
from .model_names import find_drafter, find_target
from .options import OptionKeywords, Options, settled
from .pair import Draft, check_draft
from .params import AUTO
from .parts import Parts
from .prefix_file import ModelFile, Origin
from .sizes import (
    Sizes,
    anchor_params,
    draft_params,
    kv_types,
    target_params,
)

if TYPE_CHECKING:
    from . import _core

_LOG = logging.getLogger(__name__)
_LEAST_MEASURED = 16  # positions; a smaller context reads its prompts in a moment
_MAX_BLOCK = 1024  # a file may claim any; each row of a block takes memory


def load(
    target: Path | str,
    draft: Path | str | None = None,
    *,
    options: Options | None = None,
    progress: Callable[[float], bool] | None = None,
    **keywords: Unpack[OptionKeywords],
) -> Engine:
    """Open a target GGUF, with a drafter if one is given, and return the Engine.

    Args:
        target: GGUF file of the target, or `user/repo[:QUANT]`, see model_names.py.
        draft: GGUF file of its drafter, or a folder with one or with the drafter's checkpoint, or a name likewise.
        options: how; None: the defaults.
        keywords: fields of Options, which go before those of `options`: `load(t, d, threads=4)`.
        progress: called with 0..1 while the target's weights load; returning False stops the load with a
            DflashError.

    Raises ModelError if a file is broken or the two do not fit, ResourceError for context or devices that
    cannot be had, UsageError for options that make no sense.
    """
    began = time.monotonic()
    chosen = settled(options or Options(), keywords)
    target_path = find_target(Path(target))
    if chosen.simulate is not None and draft is None:
        text = "simulate is given without a drafter; expected one, whose work is to be timed"
        raise UsageError(text)
    facts: Draft | None = None
    # open throughout: walking the header of a large vocabulary takes a tenth of a second
    with GgufFile(target_path) as target_file:
        read_target(target_file)
        if draft is not None:
            from .draft_file import find_draft

            given = find_drafter(Path(draft))
            facts = check_draft(target_file, find_draft(given, target_path))
        asked = {"devices (-dev)": chosen.devices}
        if draft is not None or chosen.draft_devices:
            asked["draft_devices (-devd)"] = chosen.draft_devices
        check_devices(asked)
        fitted = plan_pair(target_path, facts, chosen)
        say(fitted)
        model = _open_model(target_path, chosen.gpu_layers, chosen.devices, chosen.mmap, progress)
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


def plan_pair(target: Path, draft: Draft | None, options: Options) -> Fitted:
    """Return what fits in memory, before anything is loaded. Errors as of `load`."""
    trial = open_trial(target, None if draft is None else draft.path, options)
    unified = draft is not None and draft.layout.unified
    return fit(trial, options, _block(draft, options), drafts=draft is not None, unified=unified)


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
    mmap: bool | None,
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
            str(path),
            n_gpu_layers=gpu_layers(layers),
            devices=list(devices),
            progress=report,
            mmap=maps(path, mmap),
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
        draft_model = _open_model(
            draft.path, options.draft_gpu_layers, options.draft_devices, options.mmap
        )
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
    ignored = ("block", "causal", "simulate", "prefix_memory")
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
    if learnt is None or not _steered(parts.session, learnt):
        before = Effort.now()
        learnt = learn(
            parts.target,
            drafter,
            widest=parts.session.max_block,
            context=parts.session.n_ctx,
            load_seconds=load_seconds,
        )
        rough = before.disturbed_until(Effort.now(), options.threads or default_threads())
        if rough:
            _LOG.debug("other programs disturbed the measuring of costs, which is not kept")
        else:
            notebook.write(learnt)
        _hand_over(parts.session, learnt, rough=rough)
    return notebook


def _steered(session: _core.Session, learnt: Learnt) -> bool:
    """Hand over what was kept; False if it is none, since a file may have been damaged."""
    try:
        _hand_over(session, learnt)
    except (TypeError, ValueError) as error:
        _LOG.debug("the costs that were kept are of no use: %s", error)
        return False
    return True


def _hand_over(session: _core.Session, learnt: Learnt, *, rough: bool = False) -> None:
    session.steer(
        learnt.points,
        depth=learnt.depth,
        slots=learnt.slots,
        rebuild=learnt.rebuild,
        shift=learnt.shift,
        outcomes=learnt.outcomes,
        rough=rough,
    )


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

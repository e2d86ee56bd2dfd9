"""What contexts are made for: rows, positions and caches, from the options and from what fits in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._native import core
from .errors import UsageError
from .hardware import default_threads

if TYPE_CHECKING:
    from . import _core
    from .options import Options

# ggml_type of the caches that llama.cpp's tools offer
KV_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q4_0": 2,
    "q4_1": 3,
    "iq4_nl": 20,
    "q5_0": 6,
    "q5_1": 7,
}
_PLAIN = ("f32", "f16", "bf16")
_PREFILL_ROWS = 256  # each tap reserves n_embd floats per row of a batch
_INJECT_ROWS = 128
# llama_flash_attn_type
_FLASH = {None: -1, False: 0, True: 1}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What memory decides.

    Attributes:
        context: positions of a sequence.
        block: rows of the widest verify; 1 without a drafter.
        snapshots: states of a sequence that llama.cpp keeps for going back.
        replay: a recurrent state is kept once and accepted tokens are decoded again instead.
        unified: the draft's cache is one for all sequences, not in parts.
    """

    context: int
    block: int
    snapshots: int = 0
    replay: bool = False
    unified: bool = False


def kv_types(options: Options, *, draft: bool = False) -> tuple[str, str]:
    """Return the names of the types of keys and values in a cache."""
    given = options.kv_type
    if draft and options.draft_kv_type is not None:
        given = options.draft_kv_type
    return (given, given) if isinstance(given, str) else given


def check_caches(options: Options) -> None:
    """Raise UsageError for caches that llama.cpp does not have or would end the process on."""
    for name in ("kv_type", "draft_kv_type"):
        given = getattr(options, name)
        if given is None and name == "draft_kv_type":
            continue
        both = (given, given) if isinstance(given, str) else given
        if (
            not isinstance(both, tuple)
            or len(both) != 2
            or any(not isinstance(kind, str) or kind not in KV_TYPES for kind in both)
        ):
            text = (
                f"{name} is {given!r}; expected one of {', '.join(KV_TYPES)}, or two: keys, values"
            )
            raise UsageError(text)
        if options.flash_attn is False and both[1] not in _PLAIN:
            text = (
                f"{name} has values of {both[1]}, which need flash attention (-fa on or auto); without it "
                f"expected one of {', '.join(_PLAIN)}"
            )
            raise UsageError(text)


def draft_rows(options: Options, sizes: Sizes) -> tuple[int, int]:
    """Return the positions of a sequence in the draft's cache, and the newest context rows it keeps (0: all).

    A block needs room beside the kept rows. Raises UsageError for a draft context without any.
    """
    positions = options.draft_context or sizes.context
    if positions <= sizes.block and positions < sizes.context:
        text = (
            f"draft_context is {positions}; expected more than the {sizes.block} rows of a block, of which "
            "at least one of context"
        )
        raise UsageError(text)
    room = positions - sizes.block if positions < sizes.context else sizes.context
    kept = min(options.draft_window or room, room)
    if kept >= sizes.context:
        return sizes.context, 0
    return min(kept + sizes.block, sizes.context), kept


def target_params(options: Options, sizes: Sizes) -> _core.ContextParams:
    """Parameters of the target's context. Raises UsageError for batches that a verify does not fit in."""
    params: _core.ContextParams = core().ContextParams()
    params.n_ctx = sizes.context
    params.n_seq = options.sequences
    rows = options.sequences * sizes.block
    # llama.cpp keeps a block's states only if a ubatch has room for one more row
    least = sizes.block + 1
    params.n_batch = options.batch or max(_PREFILL_ROWS, rows + 1)
    params.n_ubatch = min(options.ubatch or params.n_batch, params.n_batch)
    if params.n_batch < rows or params.n_ubatch < least:
        name, found, wanted = (
            ("batch", params.n_batch, max(rows, least))
            if params.n_batch < max(rows, least)
            else ("ubatch", params.n_ubatch, least)
        )
        text = (
            f"{name} is {found}; expected at least {wanted} for {options.sequences} sequences with blocks of "
            f"{sizes.block}"
        )
        raise UsageError(text)
    params.n_outputs = rows
    params.n_rollback = sizes.snapshots
    params.n_threads = options.threads or default_threads()
    params.n_threads_batch = options.threads_batch or params.n_threads
    _set_caches(params, options, draft=False)
    return params


def anchor_params() -> _core.ContextParams:
    """Parameters of a context whose model the draft borrows embeddings and head from.

    A target's context with snapshots is remade at times, and the draft must not depend on it then.
    """
    params: _core.ContextParams = core().ContextParams()
    params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs = params.n_seq = 1
    return params


def draft_params(options: Options, sizes: Sizes) -> _core.ContextParams:
    """Parameters of the draft's context. Raises UsageError for batches that its blocks do not fit in."""
    params: _core.ContextParams = core().ContextParams()
    params.n_ctx, params.window = draft_rows(options, sizes)
    params.n_seq = options.sequences
    rows = options.sequences * sizes.block
    if options.draft_batch is not None and options.draft_batch < rows:
        text = (
            f"draft_batch is {options.draft_batch}; expected at least {rows} for {options.sequences} sequences "
            f"with blocks of {sizes.block}"
        )
        raise UsageError(text)
    # a non-causal decode must fit one ubatch, and the graph computes logits for every row
    params.n_batch = params.n_ubatch = params.n_outputs = options.draft_batch or max(
        _INJECT_ROWS, rows
    )
    params.n_threads = params.n_threads_batch = (
        options.draft_threads or options.threads or default_threads()
    )
    params.unified = sizes.unified
    _set_caches(params, options, draft=True)
    return params


def _set_caches(params: _core.ContextParams, options: Options, *, draft: bool) -> None:
    keys, values = kv_types(options, draft=draft)
    params.type_k, params.type_v = KV_TYPES[keys], KV_TYPES[values]
    params.flash_attn = _FLASH[options.flash_attn]

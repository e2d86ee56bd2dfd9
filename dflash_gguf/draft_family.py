"""The families of drafters: what tells them apart in a GGUF, and which part of the engine drives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._native import core
from .errors import ModelError
from .gguf_file import GgufFile

if TYPE_CHECKING:
    from . import _core

DFLASH, DFLASH2, DSPARK = "DFlash", "DFlash2", "DSpark"

# a tensor that only this family has
_MARKS = {"selector_hidden.weight": DFLASH2, "markov_w1.weight": DSPARK}
_CONFIDENCE = "conf_proj.weight"
_DFLASH2_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a drafter's block is laid out and read.

    Attributes:
        family: DFlash, DFlash2 or DSpark.
        from_anchor: the block's first row, the anchor's, drafts a token too (DSpark).
        confidence: it has a head that says how likely each drafted token is to be accepted (DSpark).
    """

    family: str = DFLASH
    from_anchor: bool = False
    confidence: bool = False

    @property
    def unified(self) -> bool:
        """Whether all sequences must share one cache: else llama.cpp may take their blocks in another order.

        Of a cache in parts each block attends to its own part alone: with 32 sequences a draft takes 0.4 of the
        time.
        """
        return self.family == DSPARK

    def widest(self, block_size: int) -> int:
        """Return the rows of the widest verify: the anchor and what a block of `block_size` drafts."""
        return block_size + 1 if self.from_anchor else block_size


def family_of(file: GgufFile) -> str:
    """Return the family that a drafter's tensors belong to."""
    return next((name for tensor, name in _MARKS.items() if tensor in file.tensors), DFLASH)


def read_layout(file: GgufFile) -> Layout:
    """Read how a drafter drafts. Raises ModelError, naming it, for what the engine cannot drive."""
    found = [name for tensor, name in _MARKS.items() if tensor in file.tensors]
    if len(found) > 1:
        _fail(file, f"it has tensors of {' and '.join(found)} drafters; expected those of one")
    if "dflash.hyper_connection_count" in file.fields:
        _fail(
            file, "DeepSeek-V4's DSpark drafters are not driven; expected a DSpark of plain layers"
        )
    family = found[0] if found else DFLASH
    if family == DFLASH2:
        _check_selector(file)
    elif "dflash.selector_top_k" in file.fields:
        _fail(file, "dflash.selector_top_k is set, but there is no selector_hidden.weight")
    if family != DSPARK:
        return Layout(family)
    confidence = _CONFIDENCE in file.tensors
    if file.boolean("dflash.has_confidence_head", confidence) and not confidence:
        _fail(file, f"dflash.has_confidence_head is true, but there is no {_CONFIDENCE}")
    # absent in files of early converters, which knew this layout only
    return Layout(family, file.boolean("dflash.sample_from_anchor", True), confidence)


def make_drafter(
    layout: Layout,
    model: _core.Model,
    params: _core.ContextParams,
    target: _core.Context,
    mask: int,
    causal: Sequence[bool],
) -> _core.ModelDrafter:
    """Make what drives a drafter of this layout, with a context of its own; errors are `_core`'s."""
    native, parts = core(), (model, params, target, mask, causal)
    drafter: _core.ModelDrafter
    if layout.family == DFLASH2:
        drafter = native.LatticeDrafter(*parts)
    elif layout.family == DSPARK:
        drafter = native.DsparkDrafter(
            *parts, from_anchor=layout.from_anchor, confidence=layout.confidence
        )
    else:
        drafter = native.ModelDrafter(*parts)
    return drafter


def _check_selector(file: GgufFile) -> None:
    """Check what llama.cpp's graph takes for granted and would end the process on."""
    for key in _DFLASH2_KEYS:
        if file.integer(f"dflash.{key}", 0) < 1:
            _fail(file, f"dflash.{key} is missing or below 1, which a DFlash2 drafter needs")
    top_k, hidden = file.integer("dflash.selector_top_k"), file.integer("dflash.embedding_length")
    tokens = file.count("tokenizer.ggml.tokens")
    if top_k > tokens or top_k * (top_k + 1) > hidden:
        _fail(
            file,
            f"dflash.selector_top_k is {top_k}; expected k of at most {tokens} tokens, with k * (k + 1) at most "
            f"dflash.embedding_length = {hidden}",
        )


def _fail(file: GgufFile, text: str) -> None:
    message = f"{file.path}: {text}; convert the drafter's checkpoint with 'dflash-gguf convert'"
    raise ModelError(message)

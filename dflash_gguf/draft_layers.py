"""What each layer of a drafter sees: as it was trained, and as llama.cpp runs it."""

from __future__ import annotations

from dataclasses import dataclass

from .gguf_file import GgufFile

_MAX_LAYERS = 512
_OURS = "dflash_gguf.layer_causal"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: `window` in tokens, None for all; whether it is causal inside the block."""

    index: int
    window: int | None
    trained_causal: bool
    llama_cpp_causal: bool


def effective_layers(file: GgufFile) -> tuple[list[Layer], bool]:
    """Return the layers, and whether the file itself tells how they were trained.

    Where it does not, as with other converters' files, the reference's rule holds: sliding layers are
    causal inside the block, full ones are not, unless one value is given for all.
    """
    count = min(file.integer("dflash.block_count", 0), _MAX_LAYERS)
    window = file.integer("dflash.attention.sliding_window", 0)
    pattern = [bool(flag) for flag in file.array("dflash.attention.sliding_window_pattern", [])]
    slides = [window > 0 and index < len(pattern) and pattern[index] for index in range(count)]
    one_mask = file.boolean("dflash.attention.causal", False)
    stated = [bool(flag) for flag in file.array(_OURS, [])]
    known = len(stated) == count
    if "dflash.attention.causal" in file.fields:
        trained, known = [one_mask] * count, True
    else:
        trained = stated if known else slides
    layers = [
        Layer(index, window if slides[index] else None, trained[index], one_mask)
        for index in range(count)
    ]
    return layers, known

"""From a DFlash drafter's checkpoint to GGUF: `convert(source, target)`; from GGUF to GGUF: `quantize`.

A conversion goes hub.py with download.py (fetch a repository), source.py with files.py, pickles.py and reader.py (find
and read the files), config.py with families.py, variants.py, keys.py, layers.py and rope.py (read config.json),
lookup.py, registry.py, folder_target.py and target.py (which target, and does it fit?), tensors.py with expected.py and
recipes.py (names, shapes and how each is made), borrowed.py (what comes from the target's weights), names.py (where
to), types.py (a type for each tensor) with wishes.py and importance.py, metadata.py, card.py, digests.py, vocabulary.py
and fields.py (key/values; gguf_package.py gives what PyPI's gguf knows), output.py, stream.py and writer.py (the
files), model_card.py (their README.md), driven by pipeline.py. `quantize` is in requantize.py. Errors are made in
faults.py.

A new family gets its entry in families.py, its keys in variants.py and metadata.py, its tensors in expected.py.
"""

from __future__ import annotations

from .output import Written, WrittenTensor
from .pipeline import convert
from .requantize import quantize
from .stream import Progress
from .types import OUTPUT_TYPES

__all__ = ["OUTPUT_TYPES", "Progress", "Written", "WrittenTensor", "convert", "quantize"]

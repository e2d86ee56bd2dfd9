"""From a DFlash drafter's checkpoint to GGUF: `convert(source, target)`.

A conversion goes source.py (find the files), config.py with families.py, layers.py and rope.py (read
config.json), target.py (does it fit?), tensors.py (names and shapes), types.py (a type for each tensor),
metadata.py and vocabulary.py (key/values), writer.py (the file), driven by pipeline.py.
"""

from __future__ import annotations

from .pipeline import Progress, Written, WrittenTensor, convert
from .types import OUTPUT_TYPES

__all__ = ["OUTPUT_TYPES", "Progress", "Written", "WrittenTensor", "convert"]

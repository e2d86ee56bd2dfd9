"""From a DFlash drafter's checkpoint to GGUF: `convert(source, target)`.

A conversion goes source.py (find the files), config.py with families.py, keys.py, layers.py and rope.py
(read config.json), target.py (does it fit?), tensors.py (names and shapes), names.py (where to), types.py (a
type for each tensor), metadata.py, vocabulary.py and fields.py (key/values), writer.py (the file), driven by
pipeline.py. Errors are made in faults.py.

A new family gets its entry in families.py, its keys in config.py and metadata.py, its tensors in tensors.py.
"""

from __future__ import annotations

from .pipeline import Progress, Written, WrittenTensor, convert
from .types import OUTPUT_TYPES

__all__ = ["OUTPUT_TYPES", "Progress", "Written", "WrittenTensor", "convert"]

"""From a DFlash drafter's checkpoint to GGUF: `convert(source, target)`.

A conversion goes source.py (find the files), config.py with families.py, variants.py, keys.py, layers.py and
rope.py (read config.json), target.py (does it fit?), tensors.py with expected.py and recipes.py (names, shapes
and how each is made), borrowed.py (what comes from the target's weights), names.py (where to), types.py (a type
for each tensor), metadata.py, vocabulary.py and fields.py (key/values), stream.py and writer.py (the files),
driven by pipeline.py. Errors are made in faults.py.

A new family gets its entry in families.py, its keys in variants.py and metadata.py, its tensors in expected.py.
"""

from __future__ import annotations

from .pipeline import Written, WrittenTensor, convert
from .stream import Progress
from .types import OUTPUT_TYPES

__all__ = ["OUTPUT_TYPES", "Progress", "Written", "WrittenTensor", "convert"]

"""GGUF pairs of real shapes with random weights: their speed and memory are real, their text is noise.

catalogue.py has the sizes, noise.py the weights, vocabulary.py the tokenizer, target.py and drafter.py what stands in
each file, writing.py writes them.
"""

from __future__ import annotations

from .catalogue import SHAPES, DrafterShape, Shape, find_shape
from .writing import WrittenPair, write_shape

__all__ = ["SHAPES", "DrafterShape", "Shape", "WrittenPair", "find_shape", "write_shape"]

"""What a GGUF says about a drafter: `inspect_file(path, target)`, shown by `dflash-gguf inspect`.

report.py puts together what keys.py (metadata in words), layers.py (what each layer sees) and oddities.py (what
is missing or strange) find; text.py writes it for people.
"""

from __future__ import annotations

from .report import Fit, Report, TypeShare, inspect_file
from .text import render

__all__ = ["Fit", "Report", "TypeShare", "inspect_file", "render"]

"""`dflash-gguf doctor`: what is installed, what the machine offers, and whether a pair works, finding by finding.

What loads llama.cpp runs in a process of its own (child.py), which a broken build may end without taking this one along.
"""

from __future__ import annotations

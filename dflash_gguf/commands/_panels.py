"""Headings of the groups that `--help` and REFERENCE.md show options in."""

from __future__ import annotations

PAIR = "The pair"
QUESTION = "What is asked"
SAMPLING = "How tokens are chosen"
SHOWN = "How it is shown"
DRAFTING = "Drafting"
PLACES = "Context, threads and devices"
MEMORY = "Memory, caches and batches"
OUTPUT = "Output"

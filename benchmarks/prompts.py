"""The prompts that benchmarks ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def spread(path: Path, count: int) -> list[Any]:
    """Return about `count` conversations of a file of JSON lines, spread over it, never more."""
    lines = path.read_text(encoding="utf-8").splitlines()
    step = max(1, len(lines) // count)
    return [json.loads(line)["messages"] for line in lines[::step]][:count]

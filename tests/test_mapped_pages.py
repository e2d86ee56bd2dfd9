"""Of a mapped file only what is computed with stays in memory, not what llama.cpp has copied elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import dflash_gguf

from .support.tiny import Tiny


def resident(file: Path) -> tuple[int, int]:
    """Bytes of a file that are mapped into this process, and of them in memory."""
    found = (0, 0)
    regions = re.split(
        r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE
    )
    for region in regions:
        if region.partition("\n")[0].endswith(str(file)):
            size, rss = (
                int(re.findall(rf"^{name}: +(\d+) kB", region, re.MULTILINE)[0]) * 1024
                for name in ("Size", "Rss")
            )
            found = (found[0] + size, found[1] + rss)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_pages_of_repacked_weights_are_given_back(tiny: Tiny) -> None:
    draft = tiny.draft("q4_0")
    with dflash_gguf.load(tiny.target, draft, context=256, mmap=True, prefix_memory=0) as engine:
        assert engine.plan is not None
        lines = [line for line in engine.plan.lines if line.name == "draft weights"]
        if sum(line.size for line in lines if line.mapped) > sum(line.size for line in lines) / 2:
            pytest.skip("this processor computes with the file's own q4_0")
        mapped, in_memory = resident(draft)
        assert engine.generate("Hm?", max_tokens=20, block=8).tokens
        read_again = resident(draft)[1]
    assert mapped > 0
    assert in_memory < mapped / 2
    assert read_again < mapped / 2

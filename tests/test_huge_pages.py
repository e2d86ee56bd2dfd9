"""What is computed with lies in large pages, where the system has them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf._native import core

TINY = Path(__file__).parents[1] / "models" / "tiny" / "target.gguf"
TABLE = """\
55aa00000000-55aa00200000 r-xp 00000000 fe:00 7 /usr/bin/python
55ab00000000-55ab00400000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
7f0000800000-7f0000801000 ---p 00000000 00:00 0
7f0001000000-7f0001200000 rw-p 00000000 fe:00 9 /models/target.gguf
7f0002000000-7f0002200000 rw-s 00000000 00:00 0
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0 [stack]
"""


def test_only_anonymous_memory_counts() -> None:
    heap, large = (0x55AB00000000, 0x55AB00400000), (0x7F0000000000, 0x7F0000800000)
    assert core().added_memory("", TABLE) == [heap, large]
    assert core().added_memory(TABLE, TABLE) == []
    assert core().added_memory(TABLE, "") == []


REGIONS = st.sets(st.integers(1, 60)).map(
    lambda pages: "".join(f"{page:x}000-{page + 1:x}000 rw-p 0 00:00 0\n" for page in sorted(pages))
)


@given(REGIONS, REGIONS)
def test_what_was_added_is_what_was_not_there(before: str, now: str) -> None:
    def pages(table: str) -> set[int]:
        return {int(line.split("-")[0], 16) >> 12 for line in table.splitlines()}

    found = core().added_memory(before, now)
    covered = {page for start, end in found for page in range(start >> 12, end >> 12)}
    assert covered == pages(now) - pages(before)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_contexts_buffers_are_in_large_pages() -> None:
    if "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("this system has no large pages")

    def advised() -> int:
        table = Path("/proc/self/smaps").read_text()
        regions = re.findall(
            r"^Size: +(\d+) kB$.*?^VmFlags:([^\n]*)$", table, re.MULTILINE | re.DOTALL
        )
        return sum(int(size) * 1024 for size, flags in regions if " hg" in flags)

    with dflash_gguf.load(TINY, context=4096, prefix_memory=0, mmap=True):
        before = advised()
        # its cache takes 32 MiB: 32,768 positions of 2 layers, 128 keys and 128 values of 2 bytes
        with dflash_gguf.load(TINY, context=32768, prefix_memory=0, mmap=True):
            assert advised() - before > 24 << 20

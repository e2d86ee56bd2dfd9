"""Will a context fit? Asked before it is made: the system kills a process that takes too much."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ResourceError
from .gguf_file import GgufFile

_CELL = 48  # llama.cpp's bookkeeping of a position: its place, its shift and a bit per sequence


def check_context(target: GgufFile, positions: int, value_bytes: float, *, on_host: bool) -> None:
    """Raise ResourceError, with a context that would fit, if caches of `positions` are too large.

    A lower bound is compared with what is free, so that nothing is refused that could run.

    Args:
        target: the target, open.
        positions: of all sequences together.
        value_bytes: of one number in the cache.
        on_host: whether the caches are in this machine's own memory.
    """
    free = available()
    if free is None:
        return
    each = _CELL + (int(_cached_values(target) * value_bytes) if on_host else 0)
    if positions * each > free:
        text = (
            f"a context of {positions:,} tokens takes at least {positions * each / 2**30:,.1f} GiB, "
            f"{free / 2**30:,.1f} GiB are free; at most {free // each:,} tokens would fit (-c)"
        )
        raise ResourceError(text)


def available() -> int | None:
    """Return the bytes this process may still take without swapping; None if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (n.partition(":") for n in lines)}
        free = sizes["MemAvailable"] * 1024
    except (OSError, KeyError, ValueError, IndexError):
        try:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        free = min(free, max(int(limit) - int(used), 0))
    except (OSError, ValueError):  # no such group, or its limit is "max"
        pass
    return free


def _cached_values(file: GgufFile) -> int:
    """Return how many numbers every position surely keeps, 0 for layouts that are not plain attention."""
    arch = file.architecture
    keys = {key: f"{arch}.{key}" for key in ("block_count", "full_attention_interval")}
    heads, length = f"{arch}.attention.head_count_kv", f"{arch}.attention.key_length"
    unusual = ("attention.sliding_window", "attention.kv_lora_rank", "ssm.conv_kernel")
    interval = file.integer(keys["full_attention_interval"], 0)
    if any(f"{arch}.{key}" in file.fields for key in unusual) and not interval:
        return 0
    if heads not in file.fields or length not in file.fields:
        return 0
    number = file.value(heads)
    if not isinstance(number, int):
        return 0
    layers = file.integer(keys["block_count"], 0) // max(interval, 1)
    return 2 * layers * number * file.integer(length)

"""How much memory is there."""

from __future__ import annotations

import os
from pathlib import Path


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

"""Cores, memory, large pages and disk room: what decides how fast a pair is, or whether it runs at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from .. import memory
from .findings import Finding, note, of_error, ok

_GROUP = Path("/sys/fs/cgroup")
_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LITTLE_DISK = 2 << 30
_LITTLE_MEMORY = 1 << 30
_GIB = 2**30


def cores() -> Iterator[Finding]:
    """Count what may compute, and what limits it."""
    from ..hardware import default_threads, usable_cpus

    physical, usable, all_of = default_threads(), len(usable_cpus()), os.cpu_count() or 1
    facts = {"physical": physical, "usable": usable, "logical": all_of}
    text = f"{physical} physical of {usable} logical ones that this process may use"
    if usable < all_of:
        text += f" ({all_of} are there)"
    quota = cpu_quota(_GROUP)
    if quota is not None and quota < physical:
        text += f", but its group may use only {quota:g} at a time"
        threads = max(1, int(quota))
        yield note("cores", text, f"give -t {threads}, or threads wait for each other", **facts)
    else:
        yield ok("cores", text, **facts)
    load = os.getloadavg()[0]
    if load > physical:
        yield note(
            "cores",
            f"{load:.1f} programs want {physical} cores now",
            "end other programs before you measure",
        )


def cpu_quota(group: Path) -> float | None:
    """Return how many cores a control group may use at a time; None if it has no limit."""
    try:
        limit, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:  # version 1 of control groups
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            limit, period = ((group / "cpu" / name).read_text().strip() for name in names)
        except OSError:
            return None
    try:
        cores = int(limit) / int(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return cores if cores > 0 else None


def host_memory() -> Iterator[Finding]:
    """Say what may still be taken."""
    free = memory.available()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if free is None:
        yield note("memory", f"{total / _GIB:.1f} GiB; the system does not tell what is free")
        return
    text = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB may be taken"
    if free < _LITTLE_MEMORY:
        yield note("memory", text, "end other programs, or take a small model", free=free)
    else:
        yield ok("memory", text, free=free, total=total)


def huge_pages() -> Iterator[Finding]:
    """Say whether weights can lie in large pages."""
    try:
        setting = re.search(r"\[(\w+)\]", _PAGES.read_text())
    except OSError:
        return
    chosen = setting[1] if setting else "unknown"
    if chosen == "never":
        yield note(
            "large pages",
            "transparent huge pages are off; models that fit the processor's caches are slower",
            f"echo madvise | sudo tee {_PAGES}",
        )
    else:
        yield ok("large pages", f"transparent huge pages: {chosen}", setting=chosen)


def disk() -> Iterator[Finding]:
    """Look for room where files are kept."""
    from ..draft_file import cache_folder

    try:
        yield _room("converted drafters", cache_folder(), "DFLASH_GGUF_CACHE")
    except Exception as error:  # noqa: BLE001  the other folder is looked at all the same
        yield of_error("disk", error)
    from ..convert import hub_cache

    if folder := hub_cache.cache_folder():
        yield _room("models of the Hub", folder, "HF_HUB_CACHE")


def _room(what: str, folder: Path, variable: str) -> Finding:
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{free / _GIB:.1f} GiB free for {what} ({folder})"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return note(
            "disk",
            f"{folder}, for {what}, cannot be written to",
            f"set {variable} to a folder of yours",
        )
    if free < _LITTLE_DISK:
        return note("disk", text, f"free some, or set {variable} to a folder on another disk")
    return ok("disk", text, folder=str(folder), free=free)

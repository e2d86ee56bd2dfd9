"""The most memory that this process has taken."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_PEAK = "5"  # what makes Linux forget the peak: proc(5), clear_refs


def peak_memory() -> int | None:
    """Return the bytes that were resident at most, since the start or `forget_peak`; None if nobody tells.

    Pages of files that are mapped count as long as they stay.
    """
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def forget_peak() -> None:
    """Let the peak begin anew with what is resident now, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_PEAK)

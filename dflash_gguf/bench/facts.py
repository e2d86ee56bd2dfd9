"""What a measurement was made with: machine, files, versions, settings. No host names, no paths, no users."""

from __future__ import annotations

import filecmp
import json
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .. import __version__, hardware
from .._native import LLAMA_CPP, LLAMA_CPP_PYTHON, core
from ..gguf_file import GgufFile

Fact = str | int | float | bool

# what measurements themselves change in our source is no change of what they measure
_RESULTS = (":(exclude)BENCHMARKS.md", ":(exclude)benchmarks/runs")


def collect(
    *,
    target: Path | None,
    draft: Path | None,
    threads: int | None,
    simulated: str,
    settings: Mapping[str, Fact],
) -> dict[str, Fact]:
    """Return the facts of a measurement, with keys such as machine.cpu, target.types, settings.temperature.

    Args:
        target: GGUF; None if a server has it.
        draft: GGUF; None if there is none here.
        threads: that were asked for; None: the default.
        simulated: the survival curve that acceptance is drawn from; empty: none, it is found out.
        settings: what else decides what is measured.

    Raises ModelError for a file that is no whole GGUF.
    """
    facts: dict[str, Fact] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "simulated": bool(simulated),
        **({"simulated.curve": simulated} if simulated else {}),
        **machine(),
        "threads": threads or hardware.default_threads(),
        **versions(),
    }
    for role, path in (("target", target), ("draft", draft)):
        if path is not None:
            facts |= {f"{role}.{key}": value for key, value in about_file(path).items()}
    return facts | {f"settings.{key}": value for key, value in settings.items()}


def machine() -> dict[str, Fact]:
    """Return what the machine is: CPU, cores this process may use, memory, system, llama.cpp's devices."""
    found = hardware.devices()
    return {
        "machine.cpu": _cpu(),
        "machine.cores": hardware.default_threads(),
        "machine.memory": _size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 1 << 30),
        # what a distribution or a host adds to the kernel's version is left out
        "machine.os": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "machine.devices": "; ".join(
            device.name if device.kind == "CPU" else f"{device.name} {device.description}"
            for device in found
        ),
    }


def _cpu() -> str:
    """The processor's name, as Linux or macOS gives it; the machine's kind if neither does."""
    try:
        listing = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        listing = _told(["sysctl", "-n", "machdep.cpu.brand_string"])
        return listing or platform.processor() or platform.machine()
    name = re.search(r"^model name\s*:\s*(.+)$", listing, re.MULTILINE)
    return " ".join(name[1].split()) if name else platform.machine()


def about_file(path: Path) -> dict[str, Fact]:
    """Return a GGUF's name, size and types: the type that most of its matrices' bytes have, then the others.

    Raises ModelError for a file that is no whole GGUF.
    """
    with GgufFile(path) as file:
        by_type: Counter[str] = Counter()
        for info in file.tensors.values():
            if len(info.shape) > 1:
                by_type[info.type.name] += info.length
        return {
            "file": path.name,
            "bytes": file.size,
            "size": _size(file.size, 10**6),
            "types": "+".join(name for name, _ in by_type.most_common()),
        }


def _size(count: int, unit: int) -> str:
    return f"{count / unit:,.1f} {'GiB' if unit == 1 << 30 else 'MB'}"


def versions() -> dict[str, Fact]:
    """Return the versions of this package, with the revision of its source if that is known, and of others."""
    return {
        "version": __version__,
        "revision": revision(),
        "llama.cpp": f"{LLAMA_CPP} (llama-cpp-python {LLAMA_CPP_PYTHON})",
        "llama.cpp.build": str(core().system_info()).strip(),
        "python": platform.python_version(),
    }


def revision() -> str:
    """Return the git revision that this package was installed from; "" if it is a release or cannot be known.

    Of a folder its revision now, with "-dirty" for changes in it, and with "-other" if its Python files are not
    those that run.
    """
    package = Path(__file__).parents[1]
    origin = _origin()
    commit = origin.get("vcs_info", {}).get("commit_id", "")
    if commit:
        return str(commit)[:12]
    url = urlsplit(origin.get("url", ""))
    source = Path(unquote(url.path)) if url.scheme == "file" else package.parent
    if not (source / ".git").exists():
        return ""
    git = ("git", "-C", str(source))
    found = _told([*git, "rev-parse", "--short=12", "HEAD"])
    if found and _told(
        [*git, "status", "--porcelain", "--untracked-files=no", "--", ".", *_RESULTS]
    ):
        found += "-dirty"
    return found if not found or _same(package, source / package.name) else f"{found}-other"


def _origin() -> dict[str, Any]:
    """What pip noted of where the package came from."""
    try:
        text = metadata.distribution("dflash-gguf").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    return dict(json.loads(text)) if text else {}


def _same(package: Path, source: Path) -> bool:
    if not source.is_dir():
        return False
    names = [str(p.relative_to(package)) for p in package.rglob("*.py") if "convert" not in p.parts]
    _, other, missing = filecmp.cmpfiles(package, source, names, shallow=False)
    return not other and not missing


def _told(command: list[str]) -> str:
    """A command's answer; "" if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

"""What this machine and this build of llama.cpp offer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ._native import LLAMA_CPP_PYTHON, core
from .errors import ResourceError
from .memory import available

_COPIED = 256 * 2**20  # bytes of a file

REBUILD = (
    'CMAKE_ARGS="-DGGML_CUDA=on" pip install --no-cache-dir --force-reinstall '
    f"llama-cpp-python=={LLAMA_CPP_PYTHON} (macOS: Metal is on by default)"
)


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a compiled backend; memory in bytes, 0 where it is remote (on another machine)."""

    name: str
    description: str
    backend: str
    kind: str
    remote: bool
    memory_free: int
    memory_total: int


def devices() -> list[Device]:
    """List the devices that this build of llama.cpp can use."""
    found = []
    for d in core().devices():
        free = d.memory_free
        if d.kind == "cpu":  # of which llama.cpp says that all is free
            free = min(available() or free, free)
        found.append(
            Device(d.name, d.description, d.backend, d.kind, d.remote, free, d.memory_total)
        )
    return found


def build_features() -> dict[str, dict[str, str]]:
    """Return what llama.cpp was compiled with, by backend: {"CPU": {"AVX2": "1", ...}}."""
    features: dict[str, dict[str, str]] = {}
    backend = ""
    for part in str(core().system_info()).split("|"):
        head, colon, rest = part.rpartition(" : ")
        backend = head.strip() if colon else backend
        name, equals, value = (rest if colon else part).partition("=")
        if equals:
            features.setdefault(backend, {})[name.strip()] = value.strip()
    return features


def features_line(features: dict[str, str]) -> str:
    """Return one backend's features in words, those that are off left out."""
    return " ".join(
        name if value == "1" else f"{name}={value}"
        for name, value in features.items()
        if value != "0"
    )


def check_devices(asked: dict[str, tuple[str, ...]]) -> None:
    """Raise ResourceError for a device that this build does not have, or that is on another machine.

    Args:
        asked: names of devices by the option that asks for them. None named: all that there are, remote ones
            first, as llama.cpp has it.
    """
    known = {device.name: device for device in devices()}
    local = ", ".join(name for name, device in known.items() if not device.remote)
    for option, names in asked.items():
        for name in names or known:
            if name not in known:
                text = f"device '{name}' is not available; this build has: {', '.join(known)}"
                raise ResourceError(text)
            if known[name].remote:
                text = (
                    f"device '{name}' ({known[name].description}) is remote; drafting needs both models on this "
                    f"machine: name others as {option}; there are {local}"
                )
                raise ResourceError(text)


def gpu_layers(asked: int | None) -> int:
    """Layers to put on the GPU: as asked, all by default, none without a GPU.

    Raises ResourceError, with the line that rebuilds, if layers are asked for and there is no GPU backend.
    """
    offload = bool(core().supports_gpu_offload())
    if asked is None:
        return -1 if offload else 0
    if asked != 0 and not offload:
        text = (
            f"{'all' if asked < 0 else asked} layers are to go to the GPU (-ngl, -ngld), but this llama.cpp "
            f"was built without a GPU backend; rebuild it: {REBUILD}"
        )
        raise ResourceError(text)
    return asked


def maps(path: Path, asked: bool | None) -> bool:
    """Whether a file's weights are mapped: as asked, by default those of large files."""
    return path.stat().st_size > _COPIED if asked is None else asked


def usable_cpus() -> set[int]:
    """CPUs this process may run on, hardware threads counted apart."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def default_threads() -> int:
    """Physical cores this process may use: a second thread on a core slows matrix kernels down."""
    allowed = usable_cpus()
    siblings = set()
    for cpu in allowed:
        listing = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            siblings.add(listing.read_text())
        except OSError:
            return len(allowed)
    return max(1, len(siblings))

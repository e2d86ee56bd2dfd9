"""llama.cpp and the extension: which files are loaded, of which revision, for which devices. Runs in child.py."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

from .findings import Finding, fault, note, ok

_MAPS = Path("/proc/self/maps")
_NVIDIA, _AMD = Path("/dev/nvidiactl"), Path("/dev/kfd")


def library() -> Iterator[Finding]:
    """Load both and say which files they are. Raises DflashError, saying why, if they do not load."""
    from .._native import LLAMA_CPP, LLAMA_CPP_PYTHON, core

    extension = core().__file__
    libraries = mapped("libllama")
    if libraries is None:
        yield ok("libllama", f"loaded by {extension}; the system does not tell from where")
    elif len(libraries) == 1:
        yield ok("libllama", f"{libraries[0]}, once", path=libraries[0], extension=extension)
    else:
        yield fault(
            "libllama",
            f"{len(libraries)} copies are loaded: {', '.join(libraries)}; expected one",
            "take other builds of llama.cpp out of LD_LIBRARY_PATH and LD_PRELOAD, then reinstall: "
            "pip install --force-reinstall --no-cache-dir dflash-gguf",
        )
    built = _built_from()
    text = f"{LLAMA_CPP}, as llama-cpp-python {LLAMA_CPP_PYTHON} packages it"
    if built is None or LLAMA_CPP.startswith(built.partition("-")[0]):
        yield ok("llama.cpp", text, revision=LLAMA_CPP, built_from=built)
    else:
        yield note(
            "llama.cpp",
            f"expected {text}; it says that it is {built}",
            f"pip install --no-cache-dir --force-reinstall llama-cpp-python=={LLAMA_CPP_PYTHON}",
        )


def devices() -> Iterator[Finding]:
    """List what it can compute on."""
    from .. import hardware
    from .._native import core

    found = hardware.devices()
    features = hardware.build_features()
    backends = list(dict.fromkeys(device.backend for device in found))
    words = "; ".join(
        f"{backend}: {hardware.features_line(values)}" for backend, values in features.items()
    )
    yield ok("backends", f"{', '.join(backends)} ({words})", backends=backends, features=features)
    for device in found:
        if device.remote:
            yield note("device", f"{device.name} is remote", "name others as -dev and -devd")
            continue
        text = f"{device.name}, {device.description}: {device.memory_free / 2**30:.1f} of "
        text += f"{device.memory_total / 2**30:.1f} GiB free"
        facts = {"name": device.name, "kind": device.kind}
        yield ok("device", text, **facts, free=device.memory_free, total=device.memory_total)
    if not core().supports_gpu_offload():
        cards = [name for name, path in (("NVIDIA", _NVIDIA), ("AMD", _AMD)) if path.exists()]
        if cards:
            text = f"there is a GPU ({', '.join(cards)}), but llama.cpp was built without a backend for one"
            yield note("device", text, hardware.REBUILD)


def mapped(name: str) -> list[str] | None:
    """Return the files of this process's memory whose name begins so; None if the system does not tell."""
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/" in line}
    return sorted(path for path in paths if Path(path).name.startswith(name))


def _built_from() -> str | None:
    """Return the revision that ggml was built from, as it says itself; None if it does not."""
    for path in mapped("libggml-base") or []:
        try:
            told = ctypes.CDLL(path).ggml_commit
        except (OSError, AttributeError):
            continue
        told.restype = ctypes.c_char_p
        text = (told() or b"").decode("utf-8", "replace")
        return None if text in {"", "unknown"} else text
    return None

"""`dflash-gguf devices`."""

from __future__ import annotations

from typing import Annotated

import typer


def devices(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the devices that this build of llama.cpp can use, and how to build for a GPU.

    Their names are for -dev and -devd.

    Examples:
        dflash-gguf devices
    """
    from .. import hardware
    from .._native import LLAMA_CPP, LLAMA_CPP_PYTHON, core
    from ..terminal import say, write

    found = hardware.devices()
    features = hardware.build_features()
    backends = list(dict.fromkeys(device.backend for device in found))
    offload = bool(core().supports_gpu_offload())
    if json:
        import json as encoder
        from dataclasses import asdict

        document = {
            "llama_cpp": LLAMA_CPP,
            "llama_cpp_python": LLAMA_CPP_PYTHON,
            "backends": backends,
            "gpu_offload": offload,
            "features": features,
            "devices": [asdict(device) for device in found],
        }
        write(encoder.dumps(document, indent=2) + "\n")
    else:
        write(f"llama.cpp {LLAMA_CPP} (llama-cpp-python {LLAMA_CPP_PYTHON})\n")
        write(f"backends compiled into llama.cpp: {', '.join(backends)}\n")
        for backend, values in features.items():
            write(f"{backend} features: {hardware.features_line(values)}\n")
        for device in found:
            memory = (
                f"{device.memory_free / 2**30:.1f} of {device.memory_total / 2**30:.1f} GiB free"
            )
            if device.remote:
                memory = "remote, not for drafting"
            write(f"{device.name}\t{device.kind}\t{device.description}\t{memory}\n")
    if not offload:
        say(f"no GPU backend; to build one: {hardware.REBUILD}")

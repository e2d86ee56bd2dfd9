"""`dflash-gguf devices`."""

from __future__ import annotations


def devices() -> None:
    """List the devices that this build of llama.cpp can use, and how to build for a GPU."""
    from .. import hardware
    from .._native import core
    from ..terminal import say, write

    found = hardware.devices()
    backends = ", ".join(dict.fromkeys(device.backend for device in found))
    write(f"backends compiled into llama.cpp: {backends}\n")
    for device in found:
        memory = f"{device.memory_free / 2**30:.1f} of {device.memory_total / 2**30:.1f} GiB free"
        if device.remote:
            memory = "remote, not for drafting"
        write(f"{device.name}\t{device.kind}\t{device.description}\t{memory}\n")
    if not core().supports_gpu_offload():
        say(f"no GPU backend; to build one: {hardware.REBUILD}")

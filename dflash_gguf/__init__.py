"""DFlash speculative decoding for GGUF models.

>>> import dflash_gguf
>>> with dflash_gguf.load("Qwen3.5-9B.gguf", "draft.gguf") as engine:
...     print(engine.generate("Why is the sky blue?").text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .asynchronous import AsyncEngine
    from .engine import Engine
    from .errors import ConvertError, DflashError, ModelError, ResourceError, UsageError
    from .loading import load
    from .options import Options
    from .params import Params
    from .sampling import Sampling
    from .sequence import Chunk, Sequence, TokenLogprobs
    from .simulation import Simulation
    from .stats import Stats
    from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "AsyncEngine",
    "Chunk",
    "ConvertError",
    "DflashError",
    "Engine",
    "ModelError",
    "Options",
    "Params",
    "ResourceError",
    "Sampling",
    "Sequence",
    "Simulation",
    "Stats",
    "TokenLogprobs",
    "UsageError",
    "Worker",
    "load",
]

_HOMES = {
    "Sequence": "sequence",
    "AsyncEngine": "asynchronous",
    "Chunk": "sequence",
    "Engine": "engine",
    "Sampling": "sampling",
    "Simulation": "simulation",
    "Stats": "stats",
    "TokenLogprobs": "sequence",
    "Worker": "worker",
    "load": "loading",
    "Options": "options",
    "Params": "params",
}


def __getattr__(name: str) -> object:
    # imported when asked for, so that `--help` loads neither numpy nor llama.cpp
    if name not in __all__:
        text = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(text)
    try:
        home = import_module(f".{_HOMES.get(name, 'errors')}", __name__)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{__name__}."):
            raise
        from .errors import NOT_INSTALLED, DflashError

        raise DflashError(NOT_INSTALLED) from None
    return getattr(home, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

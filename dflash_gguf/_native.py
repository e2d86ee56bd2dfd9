"""The one door to the C++ extension.

`llama_cpp` must be imported before `_core`: its wheel holds libllama under three names that are separate
files, and only this order makes the loader map a single copy.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from types import ModuleType

from .errors import NOT_INSTALLED, DflashError

LLAMA_CPP_PYTHON = "0.3.36"
LLAMA_CPP = "0c1e57098"  # the revision that it is made from


@cache
def core() -> ModuleType:
    """Return the extension module, with llama.cpp loaded and its symbols checked.

    Raises DflashError if llama-cpp-python is absent or of another version (its ABI is ours), if the
    extension was not built, or if a needed llama.cpp symbol does not resolve.
    """
    _check_version()
    import_module("llama_cpp")
    try:
        module = import_module("._core", __package__)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}._core":
            raise
        raise DflashError(NOT_INSTALLED) from None
    except ImportError as error:
        text = (
            f"dflash_gguf._core does not load with the installed llama-cpp-python ({error}); "
            "reinstall both: pip install --force-reinstall --no-cache-dir dflash-gguf"
        )
        raise DflashError(text) from error
    missing = module.missing_symbols()
    if missing:
        text = (
            f"libllama lacks {', '.join(missing)}: expected llama-cpp-python {LLAMA_CPP_PYTHON} as built from its "
            f"sdist; run 'pip install --force-reinstall --no-cache-dir llama-cpp-python=={LLAMA_CPP_PYTHON}'"
        )
        raise DflashError(text)
    return module


def _check_version() -> None:
    remedy = f"run 'pip install llama-cpp-python=={LLAMA_CPP_PYTHON}'"
    try:
        found = metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        text = f"llama-cpp-python {LLAMA_CPP_PYTHON} is needed and not installed; {remedy}"
        raise DflashError(text) from None
    if found != LLAMA_CPP_PYTHON:
        text = f"llama-cpp-python {LLAMA_CPP_PYTHON} is needed (its ABI is ours), {found} is installed; {remedy}"
        raise DflashError(text)

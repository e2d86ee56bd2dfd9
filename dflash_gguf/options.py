"""How a pair may be opened: the one list of settings that `load` takes, and what they may be."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from .errors import UsageError
from .fitting import parse_size
from .params import AUTO
from .simulation import Simulation
from .sizes import check_caches

_PREFIX_MEMORY = 512 * 2**20
_INT_MAX = 2**31 - 1
_BYTES_MAX = 2**62
_MAX_SEQUENCES = 256  # llama.cpp's own limit
_MAX_THREADS = 512  # and ggml's


class OptionKeywords(TypedDict, total=False):
    """The fields of Options, for those who give them as keywords."""

    context: int | None
    block: int | str
    max_block: int | None
    sequences: int
    threads: int | None
    gpu_layers: int | None
    draft_gpu_layers: int | None
    devices: tuple[str, ...]
    draft_devices: tuple[str, ...]
    kv_type: str | tuple[str, str]
    draft_kv_type: str | tuple[str, str] | None
    mmap: bool | None
    flash_attn: bool | None
    batch: int | None
    ubatch: int | None
    threads_batch: int | None
    draft_threads: int | None
    draft_context: int | None
    draft_window: int | None
    draft_batch: int | None
    memory_limit: int | str | None
    prefix_memory: int
    causal: bool | None
    simulate: Simulation | None


@dataclass(frozen=True, slots=True)
class Options:
    """How to open a pair.

    Attributes:
        context: positions of a sequence; None: 8192 or what the target was trained for, if less.
        block: rows of a verify of requests that ask for none: a number, or "auto": what is fastest here, which
            is measured while loading.
        max_block: widest block that may be asked for; None: the drafter's trained one. Hybrid targets keep
            max_block - 1 copies of their recurrent state per sequence to go back to.
        sequences: answers that may run at the same time.
        threads: None: the physical cores. threads_batch: of decodes of several rows, a verify among them; None:
            the same. draft_threads: of the drafter; None: the same.
        gpu_layers, draft_gpu_layers: layers on the GPU; None: all if there is one.
        devices, draft_devices: names as `dflash-gguf devices` lists them.
        kv_type: llama.cpp's name of the numbers in the target's cache, such as "f16" or "q8_0", or two, of keys
            and of values. draft_kv_type: of the draft's cache; None: the same.
        mmap: whether weights on the host are pages of the file, which the system may drop and read again; None:
            only of files over 256 MiB: what fits the caches is faster from memory of its own.
        flash_attn: None: where it pays. Values of a quantised type need it.
        batch, ubatch: rows of a decode of the target, as it is asked for and as it is computed; None: 256 or what
            a verify of all sequences takes.
        draft_context: positions of a sequence in the draft's cache; None: as many as the target's. Of a longer
            text the newest rows are kept.
        draft_window: newest context rows of a sequence that are injected and kept in the draft; None: all.
        draft_batch: rows of a decode of the draft; None: 128 or what its blocks take.
        memory_limit: most memory to take, everywhere together, such as "8G" or "500M" or a number of MiB; None:
            what is free now.
        prefix_memory: bytes of host memory for states of texts that later prompts may begin with, beyond
            those that stay in the caches; 0: every prompt is read from its start.
        causal: rows of a block see only what is before them; None: as the drafter's file says.
        simulate: draw how many drafted tokens are accepted, for measurements; see simulation.py.
    """

    context: int | None = None
    block: int | str = AUTO
    max_block: int | None = None
    sequences: int = 1
    threads: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    devices: tuple[str, ...] = ()
    draft_devices: tuple[str, ...] = ()
    kv_type: str | tuple[str, str] = "f16"
    draft_kv_type: str | tuple[str, str] | None = None
    mmap: bool | None = None
    flash_attn: bool | None = None
    batch: int | None = None
    ubatch: int | None = None
    threads_batch: int | None = None
    draft_threads: int | None = None
    draft_context: int | None = None
    draft_window: int | None = None
    draft_batch: int | None = None
    memory_limit: int | str | None = None
    prefix_memory: int = _PREFIX_MEMORY
    causal: bool | None = None
    simulate: Simulation | None = None


def settled(options: Options, keywords: OptionKeywords) -> Options:
    """Return the options with the fields that are given as keywords, checked as far as that needs no files.

    Raises UsageError naming the option and what was expected.
    """
    if not isinstance(options, Options):
        text = (
            f"options is {type(options).__name__}; expected an Options, or its fields as keywords"
        )
        raise UsageError(text)
    known = [field.name for field in fields(Options)]
    for name in keywords:
        if name not in known:
            text = f"there is no option '{name}'; expected one of {', '.join(known)}"
            raise UsageError(text)
    chosen = replace(options, **keywords)
    _check_given(chosen)
    _check_number("sequences", chosen.sequences, 1, _MAX_SEQUENCES)
    _check_number("threads", chosen.threads, 1, _MAX_THREADS)
    _check_number("context", chosen.context, 1, _INT_MAX // chosen.sequences)
    if chosen.block != AUTO:
        _check_number("block", chosen.block, 1, _INT_MAX // chosen.sequences)
    _check_number("max_block", chosen.max_block, 1, _INT_MAX // chosen.sequences)
    _check_number("gpu_layers", chosen.gpu_layers, -1, _INT_MAX)
    _check_number("draft_gpu_layers", chosen.draft_gpu_layers, -1, _INT_MAX)
    _check_number("prefix_memory", chosen.prefix_memory, 0, _BYTES_MAX)
    if chosen.simulate is not None and not isinstance(chosen.simulate, Simulation):
        text = f"simulate is {chosen.simulate!r}; expected a dflash_gguf.Simulation"
        raise UsageError(text)
    for name in ("threads_batch", "draft_threads"):
        _check_number(name, getattr(chosen, name), 1, _MAX_THREADS)
    for name in ("batch", "ubatch", "draft_context", "draft_window", "draft_batch"):
        _check_number(name, getattr(chosen, name), 1, _INT_MAX // chosen.sequences)
    _check_kinds(chosen)
    check_caches(chosen)
    if chosen.memory_limit is not None:
        parse_size(chosen.memory_limit)
    return chosen


def _check_given(options: Options) -> None:
    for name in ("sequences", "block", "prefix_memory"):
        if getattr(options, name) is None:
            text = f"{name} is None; expected a value, or to be left out"
            raise UsageError(text)


def _check_kinds(options: Options) -> None:
    for name in ("mmap", "flash_attn", "causal"):
        if not isinstance(value := getattr(options, name), bool | None):
            text = f"{name} is {value!r}; expected True, False or None, for what is best here"
            raise UsageError(text)
    for name in ("devices", "draft_devices"):
        value = getattr(options, name)
        if not isinstance(value, tuple | list) or not all(isinstance(item, str) for item in value):
            text = f"{name} is {value!r}; expected several names, such as ('CUDA0',)"
            raise UsageError(text)


def _check_number(name: str, number: Any, least: int, most: int) -> None:
    if number is None:
        return
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not (whole and least <= number <= most):
        text = f"{name} is {number!r}; expected a whole number from {least} to {most}"
        raise UsageError(text)

"""An Engine's methods about kept prefixes: what stays of ended answers, saved and restored.

The keeping itself is in cpp_ext/prefix_store.cpp, the file in prefix_file.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelError, ResourceError, UsageError
from .prefix_file import Origin, read_prefix, write_prefix

if TYPE_CHECKING:
    from .engine import Engine
    from .prompt import Prompt


def save_prefix(
    engine: Engine,
    path: Path | str,
    prompt: Prompt,
    *,
    raw: bool = False,
    template: Mapping[str, Any] | None = None,
) -> int:
    """Write what is kept of a prompt to a file, reading the prompt first; return its number of tokens.

    The file holds the ids and the states of target and drafter: as much as their caches take for these
    tokens. An older file of that name stays until the new one is whole.

    Args:
        path: where to.
        prompt: as for `encode`, as are `raw` and `template`.

    Raises UsageError while answers are in progress or if no prefixes are kept (prefix_memory is 0),
    ResourceError if the prompt does not fit the context, its state the memory or the file the disk,
    ModelError if the pair's files were changed after they were loaded.
    """
    origin = _keeping(engine)
    if engine.busy:
        text = f"{len(engine._sequences)} answers are in progress; save a prefix between answers"
        raise UsageError(text)
    session = engine._open().session
    # a fixed block has the drafter read the prompt at once
    width = session.max_block
    answer = engine.generate(prompt, max_tokens=1, block=width, raw=raw, template=template)
    try:
        kept = session.copy_prefix(list(answer.prompt))
    except (ValueError, RuntimeError, MemoryError) as error:
        text = f"the prefix cannot be copied ({error}); save a shorter one"
        raise ResourceError(text) from error
    write_prefix(Path(path), origin, kept)
    return len(kept.tokens)


def restore_prefix(engine: Engine, path: Path | str) -> int:
    """Take in a file that `save_prefix` wrote, for prompts that begin like it; return its tokens.

    Raises ModelError, and no answer is harmed, if the file is damaged, of another pair or llama.cpp, or
    saved with other contexts (`kv_type`, `sequences`, a longer text); UsageError if no prefixes are
    kept (prefix_memory is 0) or all sequences are in use.
    """
    origin = _keeping(engine)
    if engine.free < 1:
        text = f"all {len(engine._sequences)} sequences are in use; wait for an answer to end"
        raise UsageError(text)
    kept = read_prefix(Path(path), origin)
    try:
        engine._open().session.adopt_prefix(kept)
    except (ValueError, RuntimeError, MemoryError) as error:
        text = f"{path}: {error}; save the prefix again"
        raise ModelError(text) from error
    return len(kept.tokens)


def forget_prefixes(engine: Engine) -> None:
    """Give up all that is kept of ended answers."""
    engine._open().session.forget_prefixes()


def _keeping(engine: Engine) -> Origin:
    parts = engine._open()
    if parts.session.prefix_memory == 0:
        text = "no prefixes are kept: prefix_memory is 0; load with more"
        raise UsageError(text)
    if parts.origin is None:
        text = "this engine was not made by load, which knows its files; use load"
        raise UsageError(text)
    return parts.origin

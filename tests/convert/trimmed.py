"""Made targets and drafters for a head of the drafter's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dflash_gguf._native import core
from dflash_gguf.convert import Written, convert
from dflash_gguf.ggml_types import TENSOR_TYPES
from dflash_gguf.gguf_file import GgufFile

from ..support.edited import edited
from .made import (
    EOS,
    VOCAB,
    Weights,
    make_checkpoint,
    make_config,
    make_tables,
    make_target,
    make_weights,
)

SPECIAL = list(range(EOS, VOCAB))
HIDDEN = 256
BY_NAME = {kind.name: kind for kind in TENSOR_TYPES.values()}


def tables(dtype: str) -> Weights:
    """A target's embeddings and head; quantised ones are made of the f32 ones."""
    if dtype in {"F32", "F16", "BF16"}:
        return make_tables(HIDDEN, dtype)
    kind = BY_NAME[dtype]
    found = {}
    for name, (_, shape, data) in make_tables(HIDDEN, "F32").items():
        rows = bytearray(VOCAB * kind.row_bytes(HIDDEN))
        core().convert_rows(data, 0, rows, kind.number, VOCAB, HIDDEN, 1)
        # gguf-py takes the shape in bytes
        found[name] = (dtype, shape, bytes(rows))
    return found


def target_of(folder: Path, dtype: str = "F32", *, tied: bool = False, **options: Any) -> Path:
    weights = tables(dtype)
    if tied:
        del weights["output.weight"]
    return make_target(folder / "t.gguf", architecture="qwen3", tensors=weights, **options)


def run(
    folder: Path,
    size: int,
    *,
    dtype: str = "F32",
    tied: bool = False,
    changes: dict[str, Any] | None = None,
    extra: Weights | None = None,
    outtypes: Sequence[str] = ("f32",),
    **options: Any,
) -> list[Written]:
    """Convert a made checkpoint with a trimmed head."""
    config = make_config(**(changes or {}))
    weights = make_weights(config, "F32") | (extra or {})
    draft = make_checkpoint(folder / "d", config, weights=weights)
    target = target_of(folder, dtype, tied=tied)
    return convert(draft, target, outtypes=outtypes, draft_vocab=size, force=True, **options)


def ids_of(path: Path) -> list[int]:
    with GgufFile(path) as file:
        assert file.tensors["d2t"].type.name == "I64"
        found: list[int] = np.frombuffer(file.data("d2t"), "<i8").tolist()
        return found


def head_of(path: Path) -> tuple[str, bytes]:
    with GgufFile(path) as file:
        return file.tensors["output.weight"].type.name, file.data("output.weight")


def rows_of(target: Path, name: str, ids: list[int]) -> bytes:
    with GgufFile(target) as file:
        info = file.tensors[name]
        row = info.length // VOCAB
        data = file.data(name)
    return b"".join(data[row * token : row * (token + 1)] for token in ids)


def edited_target(folder: Path, **changes: Any) -> Path:
    """A target whose tokenizer has other keys."""
    return edited(
        target_of(folder),
        folder / "e.gguf",
        change={f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    )

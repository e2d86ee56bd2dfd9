"""The trained pair of models/tiny, in the forms that tests want."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dflash_gguf.convert import convert

from .upcast import upcast

ROOT = Path(__file__).parent.parent.parent / "models" / "tiny"
BLOCK = 16


@dataclass(frozen=True)
class Tiny:
    """Shipped files, and what has been made of them in `folder`."""

    folder: Path

    @property
    def target(self) -> Path:
        """The target as shipped, bf16."""
        return ROOT / "target.gguf"

    @cached_property
    def target_f32(self) -> Path:
        """The same weights in f32."""
        return upcast(self.target, self.folder / "target-f32.gguf")

    def draft(self, outtype: str, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
        """Convert the drafter to `outtype`, its config changed if asked, anew each time."""
        source = self.folder / f"draft-{len(list(self.folder.iterdir()))}"
        source.mkdir()
        shutil.copy(ROOT / "draft" / "model.safetensors", source)
        config = json.loads((ROOT / "draft" / "config.json").read_text(encoding="utf-8"))
        if change is not None:
            change(config)
        (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (written,) = convert(source, self.target, outdir=source, outtypes=[outtype])
        return written.path

    @cached_property
    def prompts(self) -> list[dict[str, Any]]:
        """The held-out prompts: id, kind, messages, answer."""
        lines = (ROOT / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @cached_property
    def reference(self) -> dict[str, np.ndarray[Any, Any]]:
        """reference.npz; models/make_tiny/reference.py describes it."""
        with np.load(ROOT / "reference.npz") as arrays:
            return dict(arrays)

    def text(self, number: int) -> list[int]:
        """Token ids of the reference's text: prompt and greedy answer."""
        start = self.reference["text_start"]
        ids: list[int] = self.reference["ids"][start[number] : start[number + 1]].tolist()
        return ids

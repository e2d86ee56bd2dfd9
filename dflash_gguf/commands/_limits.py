"""Options of memory, batches and caches, shared by the commands that load a pair. Spelt as in llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from . import _values
from ._panels import DRAFTING, MEMORY, PLACES

KINDS = "f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1"

MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        help="Most memory to take, such as 8G, 500M or a number of MiB.",
        show_default="what is free",
        rich_help_panel=MEMORY,
    ),
]
DraftContext = Annotated[
    int,
    typer.Option(
        "--ctx-size-draft",
        "-cd",
        help="Draft context in tokens; 0: as the target's. Of longer texts the newest rows are kept.",
        rich_help_panel=DRAFTING,
    ),
]
DraftWindow = Annotated[
    int,
    typer.Option(
        "--draft-window",
        help="Newest context rows that the draft is given and keeps; 0: all.",
        rich_help_panel=DRAFTING,
    ),
]
CacheK = Annotated[
    str,
    typer.Option(
        "--cache-type-k",
        "-ctk",
        help=f"Keys in the target's cache: {KINDS}.",
        rich_help_panel=MEMORY,
    ),
]
CacheV = Annotated[
    str,
    typer.Option(
        "--cache-type-v",
        "-ctv",
        help="Values in it, likewise; quantised ones need -fa.",
        rich_help_panel=MEMORY,
    ),
]
DraftCacheK = Annotated[
    str | None,
    typer.Option(
        "--cache-type-k-draft",
        "-ctkd",
        help="Keys in the draft's cache.",
        show_default="as -ctk",
        rich_help_panel=DRAFTING,
    ),
]
DraftCacheV = Annotated[
    str | None,
    typer.Option(
        "--cache-type-v-draft",
        "-ctvd",
        help="Values in the draft's cache.",
        show_default="as -ctv",
        rich_help_panel=DRAFTING,
    ),
]
FlashAttention = Annotated[
    str,
    typer.Option(
        "--flash-attn", "-fa", help="Flash attention: on, off or auto.", rich_help_panel=MEMORY
    ),
]
Mmap = Annotated[
    bool | None,
    typer.Option(
        "--mmap/--no-mmap",
        help="Use weights as pages of the file, not copied into memory.",
        show_default="files over 256 MiB",
        rich_help_panel=MEMORY,
    ),
]
CacheRam = Annotated[
    int | None,
    typer.Option(
        "--cache-ram",
        "-cram",
        metavar="MIB",
        help="Memory for states that later prompts may begin with; -1: no limit.",
        show_default="512 in a chat, 0 for one answer",
        rich_help_panel=MEMORY,
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        "-b",
        help="Rows of a decode of the target.",
        show_default="256, or what verifies take",
        rich_help_panel=MEMORY,
    ),
]
Ubatch = Annotated[
    int | None,
    typer.Option(
        "--ubatch-size",
        "-ub",
        help="Rows that are computed at once.",
        show_default="as -b",
        rich_help_panel=MEMORY,
    ),
]
DraftBatch = Annotated[
    int | None,
    typer.Option(
        "--draft-batch",
        help="Rows of a decode of the draft.",
        show_default="128, or what blocks take",
        rich_help_panel=DRAFTING,
    ),
]
BatchThreads = Annotated[
    int | None,
    typer.Option(
        "--threads-batch",
        "-tb",
        help="CPU threads for several rows at once: prompts and verifies.",
        show_default="as -t",
        rich_help_panel=PLACES,
    ),
]
DraftThreads = Annotated[
    int | None,
    typer.Option(
        "--threads-draft",
        "-td",
        help="CPU threads of the drafter.",
        show_default="as -t",
        rich_help_panel=DRAFTING,
    ),
]


@dataclass(frozen=True, slots=True)
class Limits:
    """The values of these options."""

    memory_limit: str | None
    draft_context: int
    draft_window: int
    cache_k: str
    cache_v: str
    draft_cache_k: str | None
    draft_cache_v: str | None
    flash_attn: str
    mmap: bool | None
    batch: int | None
    ubatch: int | None
    draft_batch: int | None
    batch_threads: int | None
    draft_threads: int | None

    def options(self) -> dict[str, Any]:
        """Return the fields of `Options` they mean. Raises UsageError for what is no number or word of theirs."""
        kinds = self.cache_k, self.cache_v
        drafts = self.draft_cache_k or kinds[0], self.draft_cache_v or kinds[1]
        return {
            "memory_limit": self.memory_limit,
            "draft_context": _count("-cd", self.draft_context),
            "draft_window": _count("--draft-window", self.draft_window),
            "kv_type": kinds,
            "draft_kv_type": drafts,
            "flash_attn": _values.switch("-fa", self.flash_attn),
            "mmap": self.mmap,
            "batch": self.batch,
            "ubatch": self.ubatch,
            "draft_batch": self.draft_batch,
            "threads_batch": None if self.batch_threads == -1 else self.batch_threads,
            "draft_threads": None if self.draft_threads == -1 else self.draft_threads,
        }


def _count(option: str, number: int) -> int | None:
    from ..errors import UsageError

    if number < 0:
        text = f"{option} {number}: expected a number of tokens, or 0"
        raise UsageError(text)
    return number or None

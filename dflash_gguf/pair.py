"""Do a target and a drafter belong together? Asked of the files, before anything is loaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ._native import core
from .convert.target import Target, read_target
from .draft_family import Layout, read_layout
from .draft_head import head_fault
from .draft_layers import effective_layers
from .errors import ModelError
from .gguf_file import GgufFile

FORKS = ("dflash-draft", "dflash_draft", "dspark")

# llama.cpp has silent defaults for some of these; a wrong one shows in nothing but low acceptance
NEEDED_KEYS = (
    "tokenizer.ggml.mask_token_id",
    "tokenizer.ggml.tokens",
    *(
        f"dflash.{key}"
        for key in (
            "target_layers",
            "block_size",
            "block_count",
            "context_length",
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
            "attention.head_count_kv",
            "attention.layer_norm_rms_epsilon",
            "rope.freq_base",
        )
    ),
)
WINDOW_KEYS = ("dflash.attention.sliding_window", "dflash.attention.sliding_window_pattern")
_OLDER_TOOL = "the file was converted by an older tool; convert it again with 'dflash-gguf convert'"


@dataclass(frozen=True, slots=True)
class Draft:
    """Facts of a drafter's GGUF.

    Attributes:
        block: rows of the widest verify: the anchor and the most tokens that a block drafts.
        mask: token id that stands for a position to be filled.
        taps: layers of the target whose inputs are read.
        causal: for every layer, whether rows of a block see only what is before them: as it was trained.
        layout: the family, and how its block is laid out and read.
    """

    path: Path
    block: int
    mask: int
    taps: tuple[int, ...]
    causal: tuple[bool, ...]
    layout: Layout


def read_draft(path: Path) -> Draft:
    """Read a drafter's facts. Raises ModelError, naming what is missing, for any other file."""
    with GgufFile(path) as file:
        return _read_draft(file)


def check_pair(target_path: Path, draft_path: Path) -> Draft:
    """Return the drafter's facts if it fits the target; raise ModelError with both values if not."""
    with GgufFile(target_path) as target_file:
        return check_draft(target_file, draft_path)


def check_draft(target_file: GgufFile, draft_path: Path) -> Draft:
    """Do as `check_pair` for a target that is open."""
    with GgufFile(draft_path) as draft_file:
        draft = _read_draft(draft_file)
        target = read_target(target_file)
        _check_architecture(target)
        _check_shapes(target, draft_file, draft)
        _check_rows(target, target_file, draft_file)
        _check_tokenizer(target_file, draft_file)
    return draft


def _read_draft(file: GgufFile) -> Draft:
    architecture = file.architecture
    if architecture in FORKS:
        _fail(
            f"{file.path}: architecture '{architecture}' is a fork's format; expected 'dflash', which "
            "mainline llama.cpp reads; convert the drafter's checkpoint with 'dflash-gguf convert'"
        )
    if architecture != "dflash":
        _fail(
            f"{file.path}: architecture '{architecture}' is not a DFlash drafter; expected 'dflash'; "
            "is this the target? Then give it as --target"
        )
    half = [key for key in WINDOW_KEYS if key in file.fields]
    for key in (*NEEDED_KEYS, *(WINDOW_KEYS if half else ())):
        if key not in file.fields:
            _fail(f"{file.path}: the key {key} is missing; {_OLDER_TOOL}")
    fault = head_fault(file)
    if fault is not None:
        _fail(f"{file.path}: {fault}; convert the drafter again")
    taps = [tap for tap in file.array("dflash.target_layers") if type(tap) is int]
    block = file.integer("dflash.block_size")
    if not taps or len(taps) != file.count("dflash.target_layers") or block < 2:
        _fail(
            f"{file.path}: dflash.target_layers is {file.array('dflash.target_layers')} and "
            f"dflash.block_size {block}; expected at least one layer and a block of 2; {_OLDER_TOOL}"
        )
    layout = read_layout(file)
    return Draft(
        path=file.path,
        block=layout.widest(block),
        mask=file.integer("tokenizer.ggml.mask_token_id"),
        taps=tuple(taps),
        causal=tuple(layer.trained_causal for layer in effective_layers(file)[0]),
        layout=layout,
    )


def _check_architecture(target: Target) -> None:
    if not core().publishes_features(target.architecture):
        _fail(
            f"{target.path}: architecture '{target.architecture}' does not give out its layers' inputs in "
            "llama.cpp, which a drafter needs; run it without --draft"
        )


def _check_shapes(target: Target, file: GgufFile, draft: Draft) -> None:
    pairs = [
        ("hidden size", file.integer("dflash.embedding_length"), target.hidden_size),
        ("vocabulary size", file.count("tokenizer.ggml.tokens"), target.vocab_size),
    ]
    for name, ours, theirs in pairs:
        if ours != theirs:
            _fail(
                f"{file.path}: {name} {ours}, but {target.path} has {theirs}; give the target this drafter "
                "was trained for"
            )
    if draft.mask < 0 or draft.mask >= target.vocab_size:
        _fail(
            f"{file.path}: mask token {draft.mask} is outside the vocabulary of {target.vocab_size}; convert "
            "the drafter again"
        )
    last = max(draft.taps)
    if min(draft.taps) < 0 or last >= target.n_layers:
        _fail(
            f"{file.path}: reads the inputs of layers {list(draft.taps)}, but {target.path} has layers 0 to "
            f"{target.n_layers - 1}; give the target this drafter was trained for"
        )
    sections = file.array("dflash.rope.dimension_sections", [])
    if target.uses_mrope != bool(sections):
        found, wanted = ("has", "no") if sections else ("lacks", "the")
        _fail(
            f"{file.path}: {found} dflash.rope.dimension_sections, but the positions of "
            f"{target.architecture} need {wanted} sections; {_OLDER_TOOL}"
        )


def _check_rows(target: Target, target_file: GgufFile, draft_file: GgufFile) -> None:
    """A checkpoint's embeddings and head may be padded with rows that no token has."""
    trimmed = "d2t" in draft_file.tensors
    for file in (target_file, draft_file):
        for name in ("token_embd.weight", "output.weight"):
            info = file.tensors.get(name)
            if info is None or (file is draft_file and trimmed and name == "output.weight"):
                continue
            rows = info.shape[-1]
            if rows != target.vocab_size:
                _fail(
                    f"{file.path}: {name} has {rows} rows, but the vocabulary of {target.path} has "
                    f"{target.vocab_size} tokens; one of them is padded: convert both from checkpoints of "
                    "one vocabulary"
                )


def _check_tokenizer(target: GgufFile, draft: GgufFile) -> None:
    key = "tokenizer.ggml.tokens"
    ours, theirs = (hashlib.sha256(file.raw(key)).hexdigest()[:12] for file in (draft, target))
    if ours != theirs:
        _fail(
            f"{draft.path}: its vocabulary (sha256 {ours}) is not that of {target.path} ({theirs}), though "
            "both have the same size; give the target this drafter was trained for"
        )


def _fail(text: str) -> NoReturn:
    raise ModelError(text)

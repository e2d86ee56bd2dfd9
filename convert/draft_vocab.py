"""Which tokens a trimmed head knows: the most useful ones of the target's vocabulary.

Useful are, unless a text says otherwise, the tokens that the tokenizer's training found first: merges, or
scores, stand in that order. Tokens with a meaning of their own are kept whatever their rank: without its end
token a drafter would guess on past every end.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from .._native import core
from ..errors import UsageError
from ..gguf_file import GgufFile
from .faults import refuse, refuse_file
from .fields import Field, f32, string, u32

Ids: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

KEY = "dflash_gguf.draft_vocab"
_TOKENS = "tokenizer.ggml.tokens"
_NORMAL, _UNUSED, _BYTE = 1, 5, 6  # llama.cpp's kinds of tokens; the others are special
# what llama.cpp takes for a control token whatever its kind
_MARKUP = re.compile(r"<\|.*\|>|</s>|<eos>|_?<EOT>|<end_of_(turn|utterance)>", re.DOTALL)
_PIECE = 1 << 16  # bytes of text that are tokenised at a time


@dataclass(frozen=True, slots=True, eq=False)
class DraftVocab:
    """Token `ids` of a trimmed head, ascending; `kept` of them for what they mean, the rest by `order`.

    With `order` "text", `text_sha256` is that of the text and `coverage` the share of its tokens that are
    among the ids.
    """

    ids: Ids
    kept: int
    order: str
    text_sha256: str = ""
    coverage: float = 0.0

    def fields(self) -> dict[str, Field]:
        """Return the key/values that tell of it."""
        fields = {
            f"{KEY}.tokens": u32(len(self.ids)),
            f"{KEY}.always_kept": u32(self.kept),
            f"{KEY}.order": string(self.order),
        }
        if self.text_sha256:
            fields[f"{KEY}.text_sha256"] = string(self.text_sha256)
            fields[f"{KEY}.text_coverage"] = f32(self.coverage)
        return fields


def check_request(size: int | None, text: Path | None) -> None:
    """Raise UsageError for a number of tokens that cannot be, or a text without one."""
    if size is None and text is not None:
        problem = (
            "--draft-vocab-text is given without --draft-vocab; expected the number of tokens too"
        )
        raise UsageError(problem)
    if size is not None and size < 1:
        problem = f"--draft-vocab is {size}; expected at least 1 token"
        raise UsageError(problem)


def choose_tokens(target: GgufFile, size: int, text: Path | None = None) -> DraftVocab:
    """Choose the `size` most useful tokens of a target, by how often they stand in `text` if one is given.

    Raises UsageError if there are fewer tokens, or more that are always kept; ConvertError for a vocabulary
    or text that cannot be read.
    """
    tokens = [str(token) for token in target.array(_TOKENS)]
    if size > len(tokens):
        problem = f"--draft-vocab is {size}, but {target.path} has {len(tokens)} tokens; expected at most these"
        raise UsageError(problem)
    kinds = _kinds(target, len(tokens))
    kept = _special(target, tokens, kinds)
    if size < len(kept):
        problem = (
            f"--draft-vocab is {size}, but {len(kept)} tokens of {target.path} are special and always kept; "
            "expected more than these"
        )
        raise UsageError(problem)
    ranks, order = _ranks(target, tokens)
    ranks[kinds == _UNUSED] = np.inf
    free = np.setdiff1d(np.arange(len(tokens)), kept)
    if text is None:
        useful = free[np.lexsort((free, ranks[free]))]
        return DraftVocab(_joined(kept, useful, size), len(kept), order)
    counts, digest = _count(target, text, len(tokens))
    useful = free[np.lexsort((free, ranks[free], -counts[free]))]
    ids = _joined(kept, useful, size)
    coverage = float(counts[ids].sum() / counts.sum())
    return DraftVocab(ids, len(kept), "text", digest, coverage)


def _joined(kept: Ids, useful: Ids, size: int) -> Ids:
    return np.sort(np.concatenate([kept, useful[: size - len(kept)]]))


def _kinds(target: GgufFile, count: int) -> Ids:
    key = "tokenizer.ggml.token_type"
    if key not in target.fields:
        return np.full(count, _NORMAL)
    kinds = [kind for kind in target.array(key) if isinstance(kind, int)]
    if len(kinds) != count:
        refuse(
            f"{target.path}: {key} has {len(kinds)} numbers, the vocabulary {count} tokens; expected as many: "
            "convert the target again"
        )
    return np.array(kinds)


def _special(target: GgufFile, tokens: list[str], kinds: Ids) -> Ids:
    special = ~np.isin(kinds, (_NORMAL, _UNUSED, _BYTE))
    special |= [_MARKUP.fullmatch(token) is not None for token in tokens]
    for key, field in target.fields.items():
        if not key.startswith("tokenizer.ggml.") or not key.endswith(("_token_id", "_token_ids")):
            continue
        values = target.array(key) if field.element is not None else [target.integer(key)]
        for token in values:
            if isinstance(token, int) and 0 <= token < len(tokens):
                special[token] = True
    return np.flatnonzero(special)


def _ranks(target: GgufFile, tokens: list[str]) -> tuple[np.ndarray[Any, Any], str]:
    """How late each token was found, and what tells it; bytes and letters come first."""
    ranks = np.arange(len(tokens), dtype=np.float64)
    merges = target.array("tokenizer.ggml.merges", [])
    if merges:
        found: dict[str, int] = {}
        for rank, merge in enumerate(map(str, merges)):
            # the first part may be a blank
            at = merge.find(" ", 1)
            found.setdefault(merge[:at] + merge[at + 1 :], rank)
        for index, token in enumerate(tokens):
            ranks[index] = found.get(token, -1 if len(token) == 1 else len(merges))
        return ranks, "merges"
    scores = target.array("tokenizer.ggml.scores", [])
    if len(scores) == len(tokens) and len(set(scores)) > 1:
        return -np.array(scores, dtype=np.float64), "scores"
    return ranks, "ids"


def _count(target: GgufFile, text: Path, size: int) -> tuple[Ids, str]:
    try:
        vocabulary = core().Vocabulary(str(target.path))
    except RuntimeError as error:
        refuse_file(
            target.path,
            f"llama.cpp cannot read its vocabulary ({error})",
            "expected a complete target, or no --draft-vocab-text",
        )
    counts = np.zeros(size, np.int64)
    digest = hashlib.sha256()
    try:
        with text.open("rb") as file:
            for piece in _pieces(file, digest):
                counts += np.bincount(vocabulary.tokenize(piece), minlength=size)
    except OSError as error:
        refuse_file(text, f"it cannot be read ({error.strerror})", "expected a text file")
    if not counts.any():
        refuse_file(text, "it is empty", "expected text such as the target writes")
    return counts, digest.hexdigest()


def _pieces(file: BinaryIO, digest: Any) -> Iterator[str]:
    """Yield the text in pieces that end with a line, or at least a word, as far as there are any."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while data := file.read(_PIECE):
        digest.update(data)
        text = rest + decoder.decode(data)
        cut = max(text.rfind("\n") + 1, 0) or max(text.rfind(" "), 0) or len(text)
        yield text[:cut]
        rest = text[cut:]
    yield rest + decoder.decode(b"", final=True)

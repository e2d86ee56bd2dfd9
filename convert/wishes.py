"""What a person wishes for single tensors: `--tensor-type NAME=TYPE`, as llama-quantize reads it.

NAME is a regular expression searched for anywhere in a tensor's GGUF name, in lower case (`attn_v`,
`blk\\.[0-3]\\.ffn_down`); of several that match, the first one given counts. `^output` is a trimmed head.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ..errors import UsageError
from ..faults import one_line
from ..ggml_types import TENSOR_TYPES, TensorType
from .tensors import DraftTensor

_NAMES = ["f32", "bf16", "f16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0"]
_NAMES += ["q3_k", "q2_k", "iq4_nl", "iq4_xs", "iq3_s"]
_TYPES = {kind.name.lower(): kind for kind in TENSOR_TYPES.values() if kind.name.lower() in _NAMES}


@dataclass(frozen=True, slots=True)
class Wish:
    """Tensors whose name has a match of `pattern` are to be of `type`; `text` as it was given."""

    text: str
    pattern: re.Pattern[str]
    type: TensorType


def parse_wishes(texts: Sequence[str]) -> list[Wish]:
    """Read `NAME=TYPE` texts. Raises UsageError for one that cannot be read."""
    return [_parse(text) for text in texts]


def grant_wishes(wishes: Sequence[Wish], tensors: Sequence[DraftTensor]) -> dict[str, TensorType]:
    """Return the type of each tensor that one is wished for. Raises UsageError for a wish without tensors."""
    granted: dict[str, TensorType] = {}
    for wish in wishes:
        matching = [
            tensor.name
            for tensor in tensors
            if not tensor.stays_float and wish.pattern.search(tensor.name)
        ]
        if not matching:
            names = sorted({tensor.name for tensor in tensors if not tensor.stays_float})
            _refuse(
                wish.text,
                f"no matrix of the drafter has that name; expected part of one such as {names[0]}",
            )
        for name in matching:
            granted.setdefault(name, wish.type)
    return granted


def _parse(text: str) -> Wish:
    name, separator, kind = text.rpartition("=")
    if not separator or not name:
        _refuse(text, "expected NAME=TYPE such as attn_v=q8_0")
    if kind.strip().lower() not in _TYPES:
        _refuse(text, f"unknown type '{kind}'; expected one of {', '.join(_NAMES)}")
    try:
        pattern = re.compile(name.strip().lower())
    except re.error as error:
        _refuse(
            text, f"'{name}' is no regular expression ({error}); expected part of a tensor's name"
        )
    return Wish(text, pattern, _TYPES[kind.strip().lower()])


def _refuse(text: str, fault: str) -> NoReturn:
    raise UsageError(one_line(f"--tensor-type '{text}': {fault}"))

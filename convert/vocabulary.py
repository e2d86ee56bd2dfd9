"""The tokenizer: the target's, carried over byte for byte, with the drafter's own mask token."""

from __future__ import annotations

from ..gguf_file import GgufFile
from .fields import Field, u32

_MASK = "tokenizer.ggml.mask_token_id"


def copy_tokenizer(target: GgufFile, mask_token_id: int) -> dict[str, Field]:
    """Return every tokenizer.* key of the target as it stands there, chat template included.

    A mask token of the tokenizer's own gives way to the drafter's: they are different tokens.
    """
    copied = {
        key: Field(field.type, target.raw(key))
        for key, field in target.fields.items()
        if key.startswith("tokenizer.")
    }
    copied[_MASK] = u32(mask_token_id)
    return copied

"""A made vocabulary of a real size: bytes, words that no text has, and special tokens at Qwen3.5's places.

It loads fast, having one merge; texts become their bytes. What a person reads of such a model is noise anyhow.
"""

from __future__ import annotations

from ..convert.fields import Field, boolean, i32_array, string, string_array, u32
from .catalogue import Shape

_NORMAL, _CONTROL, _OWN, _UNUSED = 1, 3, 4, 5  # llama.cpp's kinds of tokens
_END, _START, _TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer_fields(shape: Shape) -> dict[str, Field]:
    """Return the tokenizer.* keys of a target of this shape."""
    first = shape.first_special
    special = {
        first: (_END, _CONTROL),
        first + 1: (_START, _CONTROL),
        first + 2: (_TURN_END, _CONTROL),
        first + 24: ("<think>", _OWN),
        first + 25: ("</think>", _OWN),
        shape.mask: ("<|mask|>", _CONTROL),
    }
    tokens = [_byte(index) for index in range(256)]
    tokens += [f"t{index}" for index in range(256, first)]
    tokens += [special.get(i, (f"[PAD{i}]", _UNUSED))[0] for i in range(first, shape.vocab)]
    kinds = [_NORMAL] * first
    kinds += [special.get(i, ("", _UNUSED))[1] for i in range(first, shape.vocab)]
    keys = {
        "model": string("gpt2"),
        "pre": string("qwen35"),
        "tokens": string_array(tokens),
        "token_type": i32_array(kinds),
        "merges": string_array([f"{_byte(0)} {_byte(0)}"]),
        "eos_token_id": u32(first + 2),
        "padding_token_id": u32(first),
        "add_bos_token": boolean(False),
    }
    named = {f"tokenizer.ggml.{key}": field for key, field in keys.items()}
    return {**named, "tokenizer.chat_template": string(_TEMPLATE)}


def _byte(value: int) -> str:
    """The character that stands for a byte in a byte-level vocabulary, as GPT-2 chose them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if value in printable:
        return chr(value)
    return chr(0x100 + sum(other not in printable for other in range(value)))

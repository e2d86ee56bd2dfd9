"""The pair's own byte-level BPE, with the pre-tokenizer of Qwen3.5 (digits stand alone)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1280
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
THINKING = ("<think>", "</think>")  # ordinary added tokens, as in Qwen3.5
MASK = "<|mask|>"  # spare for the target, the drafter's mask
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learns the merges from training texts; added tokens take the last ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = len(CONTROL) + len(THINKING)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - added,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_without_added(texts), trainer)
    tokenizer.add_special_tokens(list(CONTROL))
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in THINKING])
    if tokenizer.get_vocab_size() != VOCABULARY:
        msg = f"{tokenizer.get_vocab_size()} tokens learnt, expected {VOCABULARY}"
        raise ValueError(msg)
    return tokenizer


def _without_added(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        yield from re.split("|".join(map(re.escape, (*CONTROL, *THINKING))), text)


def load_tokenizer(path: Path) -> Tokenizer:
    """Reads a saved tokenizer."""
    return Tokenizer.from_file(str(path))

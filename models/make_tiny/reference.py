"""reference.npz: what the pair computes, from PyTorch in f32 with the shipped weights.

The target runs in transformers' own code, the drafter in drafter.py (equal to the DFlash
authors' code); llama.cpp has no part in it. Sizes: X held-out texts in the order of
prompts.jsonl, K all their tokens, A all anchors, Y texts with tapped states, R their rows,
Z = 64 blocks, S = 16 rows of a block, V vocabulary, D hidden size.

    name               shape           dtype    meaning
    ids                (K,)            int16    token ids of all texts, one after the other
    text_start         (X + 1,)        int32    where each text begins in ids; the last is K
    prompt_length      (X,)            int16    tokens of the prompt; the greedy reply follows
    anchor_text        (A,)            int16    text of each anchor
    anchor_position    (A,)            int16    position of each anchor in its text: every reply
                                                token but the last is one
    accept_<mask>      (A,)            int8     drafts accepted after that anchor, at most
                                                S - 1, counted up to the end token
    tap_text           (Y,)            int16    the texts with tapped states
    tap_start          (Y + 1,)        int32    where each begins in taps; the last is R
    taps               (R, 3*D)        float16  outputs of the layers in target_layer_ids, side
                                                by side, for all tokens of a text but the last
    block_text         (Z,)            int16    text of each block, one of tap_text
    block_anchor       (Z,)            int16    position of its anchor: the block holds the
                                                anchor's token and S - 1 masks, its context all
                                                tokens before the anchor
    logits_<mask>      (Z, S - 1, V)   float16  draft logits, each row's mean removed

<mask> is `trained` (sliding layers causal inside the block and windowed, the full layer
bidirectional), `bidirectional` (all rows of a block see each other; the windows of sliding
layers reach to both sides) or `causal` (all layers causal, windows kept).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .accept import accepted_counts, draft_logits
from .drafter import MASKS, Drafter
from .generate import Text, generate
from .shape import TAPS

LIMIT = 400
TAP_TEXTS = {"arithmetic": 4, "code": 4, "qa": 3}
BLOCKS = 64


@torch.no_grad()
def greedy_texts(model: Any, prompts: list[list[int]], end_id: int) -> list[Text]:
    """Greedy texts with tapped states, both confirmed by transformers' own forward pass."""
    texts = []
    for text in generate(model, prompts, end_id, LIMIT):
        output = model(text.ids[None], output_hidden_states=True, use_cache=False)
        best = output.logits[0, text.prompt - 1 : -1].argmax(-1)
        if not torch.equal(best, text.ids[text.prompt :]):
            msg = "transformers' greedy choice differs from the generated text"
            raise AssertionError(msg)
        taps = torch.cat([output.hidden_states[t + 1][0, :-1] for t in TAPS], dim=-1)
        texts.append(Text(text.ids, text.prompt, taps))
    return texts


def anchors_of(text: Text) -> Tensor:
    """Every reply token but the last."""
    return torch.arange(text.prompt, len(text.ids) - 1)


def choose_taps(kinds: list[str]) -> list[int]:
    """Texts that get tapped states: some of each kind, spread over it."""
    chosen = []
    for kind, count in TAP_TEXTS.items():
        places = [i for i, k in enumerate(kinds) if k == kind]
        chosen += [places[(2 * j + 1) * len(places) // (2 * count)] for j in range(count)]
    return chosen


def choose_blocks(texts: list[Text], chosen: list[int]) -> list[tuple[int, int]]:
    """(text, anchor) of the blocks, from the first anchor of each text to near its last."""
    blocks = []
    for row, index in enumerate(chosen):
        count = BLOCKS * (row + 1) // len(chosen) - BLOCKS * row // len(chosen)
        first, last = texts[index].prompt, len(texts[index].ids) - 2
        blocks += [(index, first + (last - first) * j // count) for j in range(count)]
    return blocks


def centred(logits: Tensor) -> np.ndarray:
    """Rows with their mean removed, in float16; raises if that costs precision."""
    exact = logits - logits.mean(-1, keepdim=True)
    short = exact.half()
    error = 1 - torch.cosine_similarity(exact.double(), short.double(), dim=-1)
    if float(error.max()) > 1e-5:
        msg = f"float16 logits are off by {float(error.max()):.1e} in cosine"
        raise AssertionError(msg)
    return short.numpy()


def make_reference(
    target: Any, drafter: Drafter, texts: list[Text], kinds: list[str]
) -> dict[str, np.ndarray]:
    """All arrays of reference.npz."""
    anchors = [anchors_of(t) for t in texts]
    chosen = choose_taps(kinds)
    blocks = choose_blocks(texts, chosen)
    lengths = np.cumsum([0] + [len(t.ids) for t in texts])
    tables = target.model.embed_tokens.weight, target.lm_head.weight
    arrays = {
        "ids": torch.cat([t.ids for t in texts]).numpy().astype(np.int16),
        "text_start": lengths.astype(np.int32),
        "prompt_length": np.array([t.prompt for t in texts], np.int16),
        "anchor_text": np.repeat(np.arange(len(texts)), [len(a) for a in anchors]).astype(np.int16),
        "anchor_position": torch.cat(anchors).numpy().astype(np.int16),
        "tap_text": np.array(chosen, np.int16),
        "tap_start": np.cumsum([0] + [len(texts[i].taps) for i in chosen]).astype(np.int32),
        "taps": torch.cat([texts[i].taps for i in chosen]).half().numpy(),
        "block_text": np.array([t for t, _ in blocks], np.int16),
        "block_anchor": np.array([a for _, a in blocks], np.int16),
    }
    for masking in MASKS:
        counts = []
        for text, places in zip(texts, anchors, strict=True):
            drafts = draft_logits(drafter, tables, text.ids, text.taps, places, masking).argmax(-1)
            counts.append(accepted_counts(drafts, text.ids, places))
        arrays[f"accept_{masking}"] = torch.cat(counts).numpy().astype(np.int8)
        rows = [
            draft_logits(
                drafter, tables, texts[i].ids, texts[i].taps, torch.tensor([anchor]), masking
            )
            for i, anchor in blocks
        ]
        arrays[f"logits_{masking}"] = centred(torch.cat(rows))
    return arrays


def save_reference(path: Path, arrays: dict[str, Any]) -> None:
    """Writes the arrays, compressed."""
    np.savez_compressed(path, **arrays)

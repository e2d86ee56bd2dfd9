"""The tiny pair in PyTorch: what it drafts behind every token of a text, from the token ids on.

The target runs in transformers' own code with the weights of models/tiny/target.gguf, the drafter in
models/make_tiny/drafter.py; llama.cpp has no part in it. All in f32.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "models")]  # for tests.support and make_tiny

from make_tiny.shipped import shipped_target

from tests.support.anchors import Drafts, Text, accepted, tiny_drafter, torch_drafts
from tests.support.tiny import BLOCK


class TorchPair:
    """Target and drafter; what has been computed of a text is kept."""

    def __init__(self, target: Path) -> None:
        self.model = shipped_target(target)
        self.drafter = tiny_drafter()
        self.tables = self.model.model.embed_tokens.weight, self.model.lm_head.weight
        self.taps: list[int] = self.drafter.config["dflash_config"]["target_layer_ids"]
        self._read: dict[tuple[int, ...], tuple[torch.Tensor, np.ndarray[Any, Any]]] = {}
        self._drafts: dict[tuple[object, ...], Drafts] = {}

    def features(self, ids: list[int]) -> torch.Tensor:
        """Tapped states of all tokens but the last, [tokens - 1, taps * hidden]."""
        return self._run(ids)[0]

    def other_choices(self, ids: list[int], prompt: int) -> int:
        """Tokens of the reply that are not the best ones here, after what stands before them."""
        return int((self._run(ids)[1][prompt - 1 :] != np.array(ids[prompt:])).sum())

    def drafts(self, text: Text, masking: str, size: int = BLOCK) -> Drafts:
        """Draft behind each anchor, [anchors, size - 1]."""
        key = tuple(text.ids), tuple(text.anchors), masking, size
        if key not in self._drafts:
            self._drafts[key] = self.drafts_from(self.features(text.ids), text, masking, size)
        return self._drafts[key]

    def drafts_from(
        self, features: torch.Tensor, text: Text, masking: str, size: int = BLOCK
    ) -> Drafts:
        """Do the same from features that another program has found."""
        return torch_drafts(self.drafter, self.tables, text, features, masking, size)

    def accept_length(self, texts: list[Text], masking: str, size: int) -> float:
        """Tokens behind the first of a reply by rounds, each of which begins behind the last."""
        tokens = rounds = 0
        for text in texts:
            place, last = text.anchors[0], len(text.ids) - 1
            tokens += last - place
            while place < last:
                here = Text(text.ids, [place])
                drafts = self.drafts(here, masking, size)
                place += 1 + int(accepted(drafts, here.wanted(size - 1))[0])
                rounds += 1
        return tokens / rounds

    def _run(self, ids: list[int]) -> tuple[torch.Tensor, np.ndarray[Any, Any]]:
        key = tuple(ids)
        if key not in self._read:
            with torch.no_grad():
                output = self.model(
                    torch.tensor([ids[:-1]]), output_hidden_states=True, use_cache=False
                )
            taps = [output.hidden_states[tap + 1][0] for tap in self.taps]
            self._read[key] = torch.cat(taps, dim=-1), output.logits[0].argmax(-1).numpy()
        return self._read[key]

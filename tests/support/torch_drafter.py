"""The drafters in PyTorch, in double precision, from a checkpoint's tensors: what a draft should be.

DFlash2 after the published reference (PyPI dflash 0.1.0), DSpark after the graph of mainline llama.cpp. Written
for one block of one sequence, without a cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@dataclass
class Draft:
    """Tokens of a block; of a DFlash2 also the candidates and the scores they were chosen by, [n, top_k]."""

    tokens: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    candidates: list[list[int]] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)
    margin: float = float("inf")  # least distance of a chosen token to the next best


class TorchDrafter:
    """A drafter of `config`; `table` and `head` are its target's embeddings and head, [n_vocab, hidden].

    `known` are the only tokens it drafts, where its head was trimmed.
    """

    def __init__(
        self,
        config: dict[str, Any],
        weights: dict[str, np.ndarray[Any, Any]],
        table: np.ndarray[Any, Any],
        head: np.ndarray[Any, Any],
        causal: list[bool] | None = None,
        known: list[int] | None = None,
    ) -> None:
        self.config = config
        self.nested = config["dflash_config"]
        self.weights = {name: _tensor(value) for name, value in weights.items()}
        self.table = _tensor(table)
        self.head = _tensor(head)
        self.causal = causal or [False] * config["num_hidden_layers"]
        if "lm_head.weight" in self.weights:  # every third token
            draft = self.weights["lm_head.weight"]
            full = torch.full((len(self.table), draft.shape[1]), torch.nan, dtype=torch.float64)
            full[torch.arange(len(draft)) * 3] = draft
            self.head = full
        if known is not None:
            self.head[~torch.isin(torch.arange(len(self.head)), torch.tensor(known))] = torch.nan

    def draft(
        self,
        features: np.ndarray[Any, Any],
        anchor: int,
        count: int,
        *,
        temperature: float = 1.0,
        noise: np.ndarray[Any, Any] | None = None,
    ) -> Draft:
        """Draft `count` tokens behind the anchor after `features`, [context, taps * hidden].

        `noise` is added to scores / temperature before the best one is taken, [count, n_vocab].
        """
        self.temperature = temperature
        self.noise = _tensor(np.zeros((count, len(self.table))) if noise is None else noise)
        from_anchor = bool(self.config.get("sample_from_anchor"))
        rows = count if from_anchor else count + 1
        ids = torch.tensor([anchor] + [self.nested["mask_token_id"]] * (rows - 1))
        hidden = self.hidden(_tensor(features), self.table[ids])
        if not from_anchor:
            hidden = hidden[1:]
        logits = torch.nan_to_num(hidden @ self.head.T, nan=-torch.inf)
        if "markov_rank" in self.config:
            return self._markov(hidden, logits, anchor)
        if "selector_rank" in self.nested:
            return self._select(hidden, logits, anchor)
        return Draft(logits.argmax(dim=1).tolist())

    def hidden(self, features: Tensor, block: Tensor) -> Tensor:
        """Return the normalised last hidden states of a block, [rows, hidden]."""
        context = self._norm(features @ self._weight("fc.weight").T, "hidden_norm.weight")
        for index in range(self.config["num_hidden_layers"]):
            block = self._layer(f"layers.{index}.", context, block, causal=self.causal[index])
        return self._norm(block, "norm.weight")

    def _layer(self, at: str, context: Tensor, block: Tensor, *, causal: bool) -> Tensor:
        inner = self._norm(block, f"{at}input_layernorm.weight")
        inner, after = self._convolve(inner, f"{at}attention_conv.")
        inner = self._attend(f"{at}self_attn.", context, inner, causal=causal)
        block = block + self._finish(inner, after)
        inner = self._norm(block, f"{at}post_attention_layernorm.weight")
        inner, after = self._convolve(inner, f"{at}mlp_conv.")
        gate = F.silu(inner @ self._weight(f"{at}mlp.gate_proj.weight").T)
        inner = gate * (inner @ self._weight(f"{at}mlp.up_proj.weight").T)
        return block + self._finish(inner @ self._weight(f"{at}mlp.down_proj.weight").T, after)

    def _attend(self, at: str, context: Tensor, block: Tensor, *, causal: bool) -> Tensor:
        size, heads = self.config["head_dim"], self.config["num_attention_heads"]
        shared = heads // self.config["num_key_value_heads"]
        both = torch.cat([context, block])
        positions = torch.arange(len(both), dtype=torch.float64)
        q = self._heads(block, f"{at}q_proj.weight")
        k = self._heads(both, f"{at}k_proj.weight").repeat_interleave(shared, dim=1)
        v = self._heads(both, f"{at}v_proj.weight").repeat_interleave(shared, dim=1)
        q = self._rotate(self._norm(q, f"{at}q_norm.weight"), positions[len(context) :])
        k = self._rotate(self._norm(k, f"{at}k_norm.weight"), positions)
        scores = torch.einsum("qhd,khd->hqk", q, k) / size**0.5
        if causal:
            later = positions[None, :] > positions[len(context) :, None]
            scores = scores.masked_fill(later, -torch.inf)
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v)
        return mixed.reshape(len(block), -1) @ self._weight(f"{at}o_proj.weight").T

    def _heads(self, x: Tensor, name: str) -> Tensor:
        return (x @ self._weight(name).T).reshape(len(x), -1, self.config["head_dim"])

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        steps = torch.arange(half, dtype=torch.float64) / half
        angles = positions[:, None] * self.config["rope_theta"] ** -steps
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = (x.pow(2).mean(dim=-1, keepdim=True) + self.config["rms_norm_eps"]).rsqrt()
        return x * scale * self._weight(name)

    def _weight(self, name: str) -> Tensor:
        return self.weights[name]

    def _convolve(self, x: Tensor, at: str) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Return what goes into a part, and the kernels for what comes out of it."""
        if f"{at}base_kernel" not in self.weights:
            return x, None
        base = self._weight(f"{at}base_kernel")
        groups = x.shape[1] // self.nested["conv_group_size"]
        own = x @ self._weight(f"{at}kernel_projection.weight").T
        own = own.reshape(len(x), 2, base.shape[1], groups)
        own = own.repeat_interleave(self.nested["conv_group_size"], dim=-1)
        return self._taps(x, own[:, 0] + base[0]), (own[:, 1], base[1])

    def _finish(self, x: Tensor, after: tuple[Tensor, Tensor] | None) -> Tensor:
        return x if after is None else self._taps(x, after[0] + after[1])

    @staticmethod
    def _taps(x: Tensor, kernel: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for tap in range(kernel.shape[1]):
            before = F.pad(x, (0, 0, tap, 0))[: len(x)]
            out += kernel[:, tap] * before
        return out

    def _select(self, hidden: Tensor, logits: Tensor, anchor: int) -> Draft:
        before = self._weight("candidate_selector.predecessor_codebook")
        behind = self._weight("candidate_selector.successor_codebook.weight")
        gates = hidden @ self._weight("candidate_selector.hidden_projection.weight").T
        draft, token = Draft(), anchor
        for row, gate in zip(logits, gates, strict=True):
            best = row.topk(self.nested["selector_top_k"])
            scores = best.values + behind[best.indices] @ (before[token] * gate)
            draft.candidates.append(best.indices.tolist())
            draft.scores.append(scores)
            chosen = self._choose(draft, scores, best.indices)
            token = draft.tokens[-1]
            draft.confidence.append(float(scores.softmax(dim=0)[chosen]))
        return draft

    def _markov(self, hidden: Tensor, logits: Tensor, anchor: int) -> Draft:
        first = self._weight("markov_head.markov_w1.weight")
        second = self._weight("markov_head.markov_w2.weight")
        if len(second) < len(first):
            full = torch.zeros((len(first), second.shape[1]), dtype=torch.float64)
            full[torch.arange(len(second)) * 3] = second
            second = full
        draft, token = Draft(), anchor
        for state, row in zip(hidden, logits, strict=True):
            if "confidence_head.proj.weight" in self.weights:
                seen = torch.cat([state, first[token]])
                score = self._weight("confidence_head.proj.weight")[0] @ seen
                score = score + self._weight("confidence_head.proj.bias")[0]
                draft.confidence.append(float(score.sigmoid()))
            biased = row + second @ first[token]
            draft.scores.append(biased)
            token = self._choose(draft, biased, torch.arange(len(biased)))
            if "confidence_head.proj.weight" not in self.weights:
                rivals = biased.clone()
                rivals[token] = -torch.inf
                draft.confidence.append(float((biased[token] - rivals.max()).sigmoid()))
        return draft

    def _choose(self, draft: Draft, scores: Tensor, ids: Tensor) -> int:
        """Add the token of the best score with its noise; returns its index among the scores."""
        scores = scores / self.temperature + self.noise[len(draft.tokens), ids]
        lead = scores.topk(2)
        draft.margin = min(draft.margin, float(lead.values[0] - lead.values[1]))
        draft.tokens.append(int(ids[lead.indices[0]]))
        return int(lead.indices[0])


def _tensor(values: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(np.array(values, np.float64))

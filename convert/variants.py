"""What DFlash2 and DSpark drafters have in their config besides a plain DFlash's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .keys import Keys

_MAX_SMALL = 1 << 16


@dataclass(frozen=True, slots=True)
class Dflash2:
    """Convolutions around attention and feed-forward, and the selector among the `top_k` candidates."""

    kernel_size: int
    group_size: int
    rank: int
    top_k: int


@dataclass(frozen=True, slots=True)
class Dspark:
    """A Markov head over `draft_vocab` tokens.

    Without `sample_from_anchor` the block's first position holds a token that is known already. `rank` is
    the Markov head's, None if only its tensors tell.
    """

    draft_vocab: int
    rank: int | None
    sample_from_anchor: bool


def read_dflash2(keys: Keys, hidden: int) -> Dflash2:
    """Read a DFlash2's keys and check what llama.cpp's loader and graph take for granted."""
    found = Dflash2(
        kernel_size=_small(keys, "conv_kernel_size"),
        group_size=_small(keys, "conv_group_size"),
        rank=_small(keys, "selector_rank"),
        top_k=_small(keys, "selector_top_k"),
    )
    if hidden % found.group_size:
        keys.fail("conv_group_size", found.group_size, f"a divisor of hidden_size = {hidden}")
    if found.top_k * (found.top_k + 1) > hidden:
        keys.fail(
            "selector_top_k", found.top_k, f"k with k * (k + 1) at most hidden_size = {hidden}"
        )
    return found


def read_dspark(keys: Keys, raw: Mapping[str, Any], vocab: int) -> Dspark:
    """Read a DSpark's keys; `raw` is the config before transformer_layer_config was merged into it."""
    kind = keys.top("markov_head_type")
    if kind not in (None, "vanilla"):
        keys.fail("markov_head_type", kind, "vanilla: llama.cpp has no other Markov head")
    rank = keys.top("markov_rank")
    draft = keys.top("draft_vocab_size") or vocab
    draft = keys.count("draft_vocab_size", draft)
    if draft > vocab:
        keys.fail("draft_vocab_size", draft, f"at most vocab_size = {vocab}")
    return Dspark(
        draft_vocab=draft,
        rank=None if rank is None else keys.count("markov_rank", rank, limit=_MAX_SMALL),
        sample_from_anchor=_anchor(keys, raw),
    )


def _anchor(keys: Keys, raw: Mapping[str, Any]) -> bool:
    declared = keys.flag("sample_from_anchor", keys.top("sample_from_anchor"))
    if declared is not None:
        return declared
    foreign = [
        key for key in ("transformer_layer_config", "aux_hidden_state_layer_ids") if key in raw
    ]
    because = f"the config has {foreign[0]}" if foreign else "the config is DFlash's"
    keys.warnings.append(
        f"sample_from_anchor is absent and taken as {str(not foreign).lower()}, as {because}; if the first "
        "drafted position is hardly ever right, set it in config.json and convert again"
    )
    return not foreign


def _small(keys: Keys, key: str) -> int:
    return keys.count(key, keys.either(key), limit=_MAX_SMALL)

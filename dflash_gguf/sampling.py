"""How tokens are chosen: temperature, filters, penalties and the seed. The choosing is in cpp_ext/sampler.cpp."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING

from ._native import core
from .errors import UsageError

if TYPE_CHECKING:
    from . import _core

_INT_MAX = 2**31 - 1
_MAX_BIAS = 1e6


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of one answer; the defaults are greedy decoding.

    The text is drawn from exactly the target's distribution (after these settings), with a drafter or
    without, and a seed gives one text whatever is drafted: what is random depends on the seed and on the
    place in the text alone (but for `draft_sampling`).

    Attributes:
        temperature: 0 takes the most likely token; 1 samples the model's own distribution.
        top_k: keep the most likely tokens; 0: all.
        typical: locally typical sampling; 1: off.
        top_p: keep the most likely tokens up to this probability; 1: off.
        min_p: drop tokens less likely than this share of the most likely one; 0: off.
        repeat_penalty: divides the logits of recent tokens (multiplies negative ones); 1: off.
        frequency_penalty: subtracted for every occurrence among the recent tokens; 0: off.
        presence_penalty: subtracted once if among them; 0: off.
        repeat_last_n: how many tokens are recent, the prompt's included; -1: all of them.
        logit_bias: token id -> added to its logit; -inf bans it.
        seed: of the random choices, 0 to 2**64 - 1; None draws one.
        draft_sampling: "gumbel": draft and target choose with the same noise, and a drafted token is kept
            where they agree. "rejection": drafted tokens are samples of the draft's own distribution q,
            kept with probability min(1, p / q), else replaced by a sample of max(0, p - q) (Leviathan et
            al. 2023, Chen et al. 2023). It draws from the same distribution and may keep more, but a
            seed's text then depends on the drafter and the block too.
    """

    temperature: float = 0.0
    top_k: int = 0
    typical: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    draft_sampling: str = "gumbel"

    def __post_init__(self) -> None:
        """Raise UsageError, naming the setting and its bounds, for a value out of range."""
        for name, low, high in _BOUNDS:
            value, whole = getattr(self, name), name in _WHOLE
            if not _inside(value, low, high, whole=whole):
                kind = "a whole number" if whole else "a number"
                text = f"{name} is {value!r}; expected {kind} from {low:g} to {high:g}"
                raise UsageError(text)
        if self.seed is None:
            object.__setattr__(self, "seed", secrets.randbits(32))
        elif not _inside(self.seed, 0, 2**64 - 1, whole=True):
            text = f"seed is {self.seed!r}; expected a whole number from 0 to 2**64 - 1"
            raise UsageError(text)
        if self.draft_sampling not in _DRAFT_SAMPLING:
            text = f"draft_sampling is {self.draft_sampling!r}; expected {' or '.join(_DRAFT_SAMPLING)}"
            raise UsageError(text)
        if not isinstance(self.logit_bias, Mapping):
            text = f"logit_bias is {self.logit_bias!r}; expected a mapping of token ids to numbers"
            raise UsageError(text)
        # one of its own: what is checked here must stay as it is
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        for token, value in self.logit_bias.items():
            known = _inside(token, 0, _INT_MAX, whole=True)
            if not known or not _inside(value, -math.inf, _MAX_BIAS, whole=False):
                text = (
                    f"logit_bias has {token!r}: {value!r}; expected a token id and a number up to "
                    f"{_MAX_BIAS:g}"
                )
                raise UsageError(text)

    @property
    def greedy(self) -> bool:
        """Whether nothing is random."""
        return self.temperature == 0

    def native(self) -> _core.Sampling:
        """Return the settings as the engine's own."""
        made: _core.Sampling = core().Sampling()
        for name in (f.name for f in fields(self)):
            if name not in {"logit_bias", "draft_sampling"}:
                setattr(made, _NATIVE.get(name, name), getattr(self, name))
        made.bias = [(int(token), float(value)) for token, value in self.logit_bias.items()]
        made.draft = core().DraftSampling[self.draft_sampling]
        return made


def _inside(value: object, low: float, high: float, *, whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, Integral):
        return low <= int(value) <= high
    return not whole and isinstance(value, Real) and low <= float(value) <= high


_WHOLE = {"top_k", "repeat_last_n"}
_BOUNDS = (
    ("temperature", 0, 100),
    ("top_k", 0, _INT_MAX),
    ("typical", 0, 1),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("repeat_penalty", 0.01, 100),
    ("frequency_penalty", -100, 100),
    ("presence_penalty", -100, 100),
    ("repeat_last_n", -1, _INT_MAX),
)
_DRAFT_SAMPLING = ("gumbel", "rejection")
_NATIVE = {
    "repeat_penalty": "repeat",
    "frequency_penalty": "frequency",
    "presence_penalty": "presence",
    "repeat_last_n": "last_n",
}

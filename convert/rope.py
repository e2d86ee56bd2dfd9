"""A drafter's rotary embedding, from the many places where configs keep it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .keys import MAX_COUNT, Keys

_PLAIN = ("default", "none", None)


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN scaling; what is None is left to llama.cpp's default."""

    factor: float
    original_context: int
    extrapolation: float | None
    attention: float | None
    beta_fast: float | None
    beta_slow: float | None


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of all layers: its base, scaling, and the part of the head that rotates (1.0: all)."""

    base: float
    sliding_base: float | None
    linear_factor: float | None
    yarn: Yarn | None
    partial: float | None


def read_rope(keys: Keys) -> Rope:
    """Read base and scaling. Raises ConvertError if the base is nowhere or a scaling is not known."""
    scaling, own, sliding = _sources(keys)
    base_key, base = _first(keys, "rope_theta", own, scaling)
    if base is None:
        keys.missing("rope_theta (or rope_parameters.rope_theta)")
    base = keys.number(base_key, base)
    sliding_base = sliding.get("rope_theta")
    if (
        sliding_base is not None
        and keys.number("sliding_attention.rope_theta", sliding_base) != base
    ):
        keys.fail(
            "rope_parameters.sliding_attention.rope_theta",
            sliding_base,
            f"{base!r} as in the full layers: a DFlash GGUF holds one base for all layers",
        )
    _, partial = _first(keys, "partial_rotary_factor", own, scaling)
    linear, yarn = _scaling(keys, own)
    return Rope(
        base=base,
        sliding_base=None if sliding_base is None else float(sliding_base),
        linear_factor=linear,
        yarn=yarn,
        partial=None if partial is None else keys.number("partial_rotary_factor", partial),
    )


def _sources(keys: Keys) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The old rope_scaling, the parameters of full layers and those of sliding layers."""
    scaling = _object(keys, "rope_scaling", keys.top("rope_scaling"))
    parameters = _object(keys, "rope_parameters", keys.top("rope_parameters"))
    own = parameters or scaling
    full = _object(keys, "rope_parameters.full_attention", own.get("full_attention"))
    sliding = _object(keys, "rope_parameters.sliding_attention", own.get("sliding_attention"))
    return scaling, full or own, sliding


def _object(keys: Keys, key: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        keys.fail(key, value, "an object")
    return value


def _first(keys: Keys, key: str, own: dict[str, Any], scaling: dict[str, Any]) -> tuple[str, Any]:
    for name, value in (
        (f"rope_parameters.{key}", own.get(key)),
        (key, keys.top(key)),
        (f"rope_scaling.{key}", scaling.get(key)),
    ):
        if value is not None:
            return name, value
    return key, None


def _scaling(keys: Keys, own: dict[str, Any]) -> tuple[float | None, Yarn | None]:
    kind = own.get("rope_type") or own.get("type")
    if kind in _PLAIN:
        return None, None
    if kind == "linear":
        return keys.number("rope_scaling.factor", own.get("factor")), None
    if kind != "yarn":
        keys.fail("rope_type", kind, "default, linear or yarn: a DFlash GGUF cannot hold another")
    return None, _yarn(keys, own)


def _yarn(keys: Keys, own: dict[str, Any]) -> Yarn:
    def optional(*names: str) -> float | None:
        found = next((name for name in names if own.get(name) is not None), None)
        return None if found is None else keys.number(found, own[found], positive=False)

    key = "original_max_position_embeddings"
    original = own.get(key) if own.get(key) is not None else keys.top(key)
    yarn = Yarn(
        factor=keys.number("rope_scaling.factor", own.get("factor")),
        original_context=keys.count(key, original, limit=MAX_COUNT),
        extrapolation=optional("extrapolation_factor"),
        attention=optional("attention_factor", "attn_factor"),
        beta_fast=optional("beta_fast"),
        beta_slow=optional("beta_slow"),
    )
    _warn_of_attention(keys, yarn)
    return yarn


def _warn_of_attention(keys: Keys, yarn: Yarn) -> None:
    usual = 0.1 * math.log(max(yarn.factor, 1.0)) + 1.0
    if yarn.attention is not None and abs(yarn.attention - usual) > 1e-3:
        keys.warnings.append(
            f"yarn's attention_factor is {yarn.attention:g}, but llama.cpp computes its own, {usual:.4g}"
        )

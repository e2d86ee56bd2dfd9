"""What each layer of a drafter sees: its window, and whether it is causal inside the block.

The reference reads the config through transformers, which drops `sliding_window` unless
`use_sliding_window` is true and makes up `layer_types` where they are absent. A layer declared sliding stays
causal even when its window was dropped; a top-level `is_causal` holds for every layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from .keys import MAX_COUNT, Keys

_FULL, _SLIDING = "full_attention", "sliding_attention"
_MAX_WINDOW_LAYERS = 28  # Qwen3Config's default: layers from this one on slide


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's attention: `window` in tokens, None for all; `causal` inside the block."""

    window: int | None
    causal: bool


@dataclass(frozen=True, slots=True)
class Attention:
    """The layers, and `causal` as the config gives it for all of them (None: layer by layer)."""

    layers: tuple[Layer, ...]
    causal: bool | None


def read_attention(keys: Keys, count: int) -> Attention:
    """Read the attention of `count` layers; warns where a window asked for is not the one it gets."""
    causal = keys.flag("is_causal", keys.top("is_causal"))
    if causal is None:
        causal = keys.flag("dflash_config.causal", keys.nested("causal"))
    window, sliding = _windows(keys, count)
    layers = tuple(
        Layer(window if slides else None, slides if causal is None else causal)
        for slides in sliding
    )
    return Attention(layers, causal)


def _windows(keys: Keys, count: int) -> tuple[int | None, list[bool]]:
    declared = keys.top("sliding_window")
    all_slide = keys.flag("use_swa", keys.nested("use_swa"))
    if all_slide:
        key, own = "dflash_config.swa_window_size", keys.nested("swa_window_size")
        if not own:
            key, own = "sliding_window", declared
        return keys.count(key, own, limit=MAX_COUNT), [True] * count
    used = keys.flag("use_sliding_window", keys.top("use_sliding_window"))
    window = keys.count("sliding_window", declared, least=0, limit=MAX_COUNT) if declared else None
    if keys.nested("swa_window_size") and used:
        window = keys.count("swa_window_size", keys.nested("swa_window_size"), limit=MAX_COUNT)
    effective = window if used and window else None
    types = _layer_types(keys, count)
    sliding = [kind == _SLIDING for kind in types] if types else _derived(keys, count, effective)
    _warn(keys, window, effective, sliding, declared_types=bool(types))
    return effective, sliding


def _layer_types(keys: Keys, count: int) -> list[str] | None:
    types = keys.top("layer_types")
    if types is None or types == []:
        return None
    if not isinstance(types, list) or len(types) != count:
        keys.fail("layer_types", types, f"a list of num_hidden_layers = {count} entries")
    for kind in types:
        if kind not in (_FULL, _SLIDING):
            keys.fail("layer_types", kind, f"{_FULL} or {_SLIDING}")
    return types


def _derived(keys: Keys, count: int, window: int | None) -> list[bool]:
    first = keys.top("max_window_layers")
    first = _MAX_WINDOW_LAYERS if first is None else keys.count("max_window_layers", first, least=0)
    return [window is not None and index >= first for index in range(count)]


def _warn(
    keys: Keys,
    window: int | None,
    effective: int | None,
    sliding: list[bool],
    *,
    declared_types: bool,
) -> None:
    slides = ", ".join(str(index) for index, value in enumerate(sliding) if value)
    if slides and effective is None:
        asked = f"the window {window}" if window else "no window"
        keys.warnings.append(
            f"layers {slides} are sliding_attention, with {asked} and use_sliding_window not in effect: "
            "they see all tokens, as in the reference, and stay causal inside the block"
        )
    elif window and not slides:
        keys.warnings.append(
            f"sliding_window is {window}, but no layer slides: every layer sees all tokens"
        )
    elif slides and not declared_types:
        keys.warnings.append(
            f"layer_types is absent: layers {slides} get the window {effective} by max_window_layers"
        )

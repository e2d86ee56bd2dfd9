"""The shapes: sizes of real pairs, and where each number comes from.

Targets: the "Model Overview" of the model cards of Qwen/Qwen3.5-0.8B, -4B and -9B (layers, widths, heads, rotary
dimension, tied output); what these leave out (rope base, M-RoPE sections, epsilon, convolution kernel) is the
family's common config.json, whose Qwen3.5-9B values are also the defaults of transformers' Qwen3_5TextConfig.
llama.cpp's loader tells the sizes apart by the same layers and widths (src/models/qwen35.cpp).

Drafters: the first release of z-lab/Qwen3.5-9B-DFlash has 5 full-attention layers, block 16, 32 / 8 heads of 128, the
target's FFN and rope base, and taps [1, 8, 15, 22, 29] of 32. There is none of that kind for 0.8B: its drafter
is one by analogy, with the attention of Qwen3-0.6B, the Qwen3 of that width (16 / 8 heads of 128).
That of 4B likewise (Qwen3-4B: 32 / 8 heads of 128).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class DrafterShape:
    """A DFlash drafter of its target's width; all layers see the whole block in both directions."""

    heads: int
    kv_heads: int
    ffn: int
    head_dim: int = 128
    layers: int = 5
    block: int = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen3.5 target and its drafter.

    Attributes:
        heads, kv_heads, head_dim: of the attention in every `interval`-th layer.
        key_heads, value_heads, delta_dim, kernel: of the gated delta nets in the others.
        rotary, sections: rotated values of a head, and how M-RoPE splits half of them.
        vocab: tokens, padding included.
        first_special: the id of `<|endoftext|>`, after which the others stand in Qwen's order.
        tied: the embeddings are the output head.
        mtp: with a next-token layer behind the others, as llama.cpp's converter writes the checkpoints' one (`mtp.*`).
    """

    name: str
    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    value_heads: int
    tied: bool
    drafter: DrafterShape
    head_dim: int = 256
    key_heads: int = 16
    delta_dim: int = 128
    kernel: int = 4
    interval: int = 4
    rotary: int = 64
    sections: tuple[int, int, int] = (11, 11, 10)
    rope_base: float = 1e7
    epsilon: float = 1e-6
    context: int = 262_144
    vocab: int = 248_320
    first_special: int = 248_044
    mtp: bool = False

    @property
    def blocks(self) -> int:
        """Layers in the file, next-token layers included."""
        return self.layers + int(self.mtp)

    @property
    def mask(self) -> int:
        """The drafter's mask token: 248,070 in z-lab's drafters of this vocabulary."""
        return self.first_special + 26

    @property
    def taps(self) -> tuple[int, ...]:
        """Layers whose output the drafter reads: evenly from 1 to layers - 3, as z-lab's reference spreads them."""
        count = self.drafter.layers
        if count == 1:
            return (self.layers // 2,)
        return tuple(round(1 + i * (self.layers - 4) / (count - 1)) for i in range(count))


_ALL = (
    Shape(
        name="Qwen3.5-0.8B",
        hidden=1024,
        layers=24,
        ffn=3584,
        heads=8,
        kv_heads=2,
        value_heads=16,
        tied=True,
        drafter=DrafterShape(heads=16, kv_heads=8, ffn=3584),
    ),
    Shape(
        name="Qwen3.5-4B",
        hidden=2560,
        layers=32,
        ffn=9216,
        heads=16,
        kv_heads=4,
        value_heads=32,
        tied=True,
        drafter=DrafterShape(heads=32, kv_heads=8, ffn=9216),
    ),
    Shape(
        name="Qwen3.5-9B",
        hidden=4096,
        layers=32,
        ffn=12288,
        heads=16,
        kv_heads=4,
        value_heads=32,
        tied=False,
        drafter=DrafterShape(heads=32, kv_heads=8, ffn=12288),
    ),
)

SHAPES: dict[str, Shape] = {shape.name: shape for shape in _ALL}


def find_shape(name: str) -> Shape:
    """Return the shape of this name, any case. Raises UsageError for an unknown one."""
    for known, shape in SHAPES.items():
        if known.lower() == name.strip().lower():
            return shape
    text = f"there is no shape '{name}'; expected one of {', '.join(SHAPES)}"
    raise UsageError(text)

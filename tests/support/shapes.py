"""A shape so small that its pair is written in a moment."""

from __future__ import annotations

from dflash_gguf.shapes import DrafterShape, Shape

MINI = Shape(
    name="mini",
    hidden=256,
    layers=4,
    ffn=512,
    heads=2,
    kv_heads=1,
    value_heads=4,
    tied=True,
    drafter=DrafterShape(heads=4, kv_heads=2, ffn=512, head_dim=64, layers=3, block=8),
    head_dim=64,
    key_heads=2,
    delta_dim=32,
    rotary=32,
    sections=(6, 5, 5),
    context=4096,
    vocab=512,
    first_special=480,
)

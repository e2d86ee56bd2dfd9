"""The shapes of the pair: every size and id that more than one module needs."""

from __future__ import annotations

from transformers import Qwen3_5TextConfig

from .tokenizer import VOCABULARY

LAYERS = 8
HIDDEN = 256
CONTEXT = 2048
ROPE_BASE = 100_000.0  # not llama.cpp's silent default, so a lost key shows
SECTIONS = (3, 3, 2)  # half of the rotated part of a head, split for M-RoPE
TAPS = (1, 4, 6)  # layers whose output the drafter reads
BLOCK = 16
WINDOW = 64


def target_config(*, key_heads: int = 4, value_heads: int = 4) -> Qwen3_5TextConfig:
    """Qwen3.5 in small: three gated delta net layers, then one of full attention, twice."""
    return Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=1024,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_num_key_heads=key_heads,
        linear_num_value_heads=value_heads,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": ROPE_BASE,
            "partial_rotary_factor": 0.25,
            "mrope_section": list(SECTIONS),
            "mrope_interleaved": True,
        },
    )


def draft_config(mask_id: int) -> dict[str, object]:
    """The drafter's config.json, in the schema of published DFlash checkpoints."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "block_size": BLOCK,
        "dflash_config": {"mask_token_id": mask_id, "target_layer_ids": list(TAPS)},
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": 512,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "max_position_embeddings": CONTEXT,
        "max_window_layers": 3,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "num_target_layers": LAYERS,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": ROPE_BASE,
        "sliding_window": WINDOW,
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_sliding_window": True,
        "vocab_size": VOCABULARY,
    }

"""The made checkpoints whose outputs are compared with mainline's, and where the two may differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .made import MASK, make_checkpoint, make_config, make_shards, make_target

_SLIDING, _FULL = "sliding_attention", "full_attention"

# keys that are ours alone
OURS = {
    "dflash_gguf.version": "says which converter wrote the file",
    "dflash_gguf.layer_causal": "which layers are causal in the block; no key of llama.cpp's holds it",
}


@dataclass(frozen=True)
class Case:
    """A made pair; `differences` are dflash.* and tokenizer.* keys that mainline writes otherwise, and why.

    `target_config` is what mainline reads of the target's config.json besides its architecture.
    """

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    dtype: str = "BF16"
    sharded: bool = False
    architecture: str = "qwen3"
    target_config: dict[str, Any] = field(default_factory=dict)
    differences: dict[str, str] = field(default_factory=dict)
    every_type: bool = False  # all quantised types, not just two mixes

    @property
    def config(self) -> dict[str, Any]:
        """The drafter's config.json."""
        return make_config(**self.changes)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write the checkpoint and the target; returns their paths."""
        target = make_target(
            folder / "target.gguf",
            architecture=self.architecture,
            hidden=self.config["hidden_size"],
        )
        draft = folder / self.name
        if self.sharded:
            return make_shards(draft, self.config, dtype=self.dtype), target
        return make_checkpoint(draft, self.config, dtype=self.dtype), target


CASES = (
    Case("plain", every_type=True),
    Case(
        "windows",
        {
            "layer_types": [_SLIDING, _SLIDING, _FULL],
            "sliding_window": 64,
            "use_sliding_window": True,
            "max_window_layers": 3,
        },
        architecture="qwen35",
        target_config={"rope_parameters": {"mrope_section": [11, 11, 10], "rope_theta": 1e7}},
    ),
    Case(
        "mrope-unsaid",
        {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e7}},
        architecture="qwen35",
        differences={
            "dflash.rope.dimension_sections": "mainline looks for mrope_section in the target's config, but "
            "Qwen3.5 runs with M-RoPE without it too"
        },
    ),
    Case(
        "partial",
        {"partial_rotary_factor": 0.25, "is_causal": True},
        differences={
            "dflash.rope.dimension_count": "the reference rotates the whole head whatever this factor says"
        },
    ),
    Case(
        "yarn",
        {
            "is_causal": False,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 256,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
            },
        },
        dtype="F32",
    ),
    Case(
        "swa",
        {
            "input_embedding_scale": 2.5,
            "output_multiplier": 0.5,
            "dflash_config": {
                "mask_token_id": MASK,
                "target_layer_ids": [0, 3],
                "block_size": 8,
                "use_swa": True,
                "swa_window_size": 128,
                "final_logit_softcapping": 30.0,
                "attention_value_scale": 0.75,
                "causal": False,
            },
        },
        dtype="F16",
    ),
    Case(
        "flat",
        {
            "dflash_config": None,
            "mask_token_id": MASK,
            "target_layer_ids": [1, 4],
            "hidden_act": "gelu_pytorch_tanh",
        },
        sharded=True,
        differences={
            "tokenizer.ggml.mask_token_id": "mainline reads the mask under dflash_config only",
            "dflash.hidden_activation": "mainline never writes it for DFlash; its loader then takes silu",
        },
    ),
    Case(
        "rows",
        {
            "hidden_size": 192,
            "intermediate_size": 1000,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
        },
        every_type=True,
    ),
    Case(
        "full-with-window",
        {
            "layer_types": [_FULL, _FULL, _FULL],
            "sliding_window": 64,
            "use_sliding_window": True,
        },
        differences={
            "dflash.attention.sliding_window": "no layer slides, so there is no window to write",
            "dflash.attention.sliding_window_pattern": "goes with the window",
        },
    ),
)

"""The made checkpoints whose outputs are compared with mainline's, and where the two may differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .made import (
    MASK,
    VOCAB,
    Weights,
    make_checkpoint,
    make_config,
    make_d2t,
    make_mask,
    make_shards,
    make_tables,
    make_target,
    make_values,
    make_weights,
    to_bf16,
)

_SLIDING, _FULL = "sliding_attention", "full_attention"

# keys that are ours alone
OURS = {
    "dflash_gguf.version": "says which converter wrote the file",
    "dflash_gguf.source.files": "the checkpoint's files, whose digests follow",
    "dflash_gguf.source.sha256": "so that a file can be traced to what it was made from",
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
    tensor_differences: dict[str, str] = field(default_factory=dict)
    extra: Weights = field(default_factory=dict)  # tensors besides those of config.json
    mask: bool = False  # a mask_embedding.pt, which takes torch, and a target with weights
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
            hidden=self.hidden,
            tensors=make_tables(self.hidden, "BF16") if self.mask else None,
        )
        draft = folder / self.name
        if self.sharded:
            return make_shards(draft, self.config, dtype=self.dtype), target
        weights = make_weights(self.config, self.dtype) | self.extra
        make_checkpoint(draft, self.config, weights=weights)
        if self.mask:
            make_mask(draft / "mask_embedding.pt", self.hidden)
        return draft, target

    @property
    def whole_config(self) -> dict[str, Any]:
        """The config with what speculators keep a level down."""
        return {**self.config, **self.config.get("transformer_layer_config", {})}

    @property
    def hidden(self) -> int:
        """The drafter's hidden size."""
        return int(self.whole_config["hidden_size"])


_NESTED = {"mask_token_id": MASK, "target_layer_ids": [1, 4]}
_DSPARK = {"dflash_config": None, "block_size": 8, "markov_head_type": "vanilla", "markov_rank": 64}
_TABLE = ("BF16", (VOCAB, 256), to_bf16(make_values("own table", VOCAB * 256)))
_OWN_HEAD = ("BF16", (VOCAB, 256), to_bf16(make_values("own head", VOCAB * 256)))

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
    Case(
        "dflash2",
        {
            "architectures": ["DFlash2DraftModel"],
            "dflash_config": {
                **_NESTED,
                "conv_kernel_size": 4,
                "conv_group_size": 64,
                "selector_rank": 32,
                "selector_top_k": 8,
            },
            "output_multiplier": 0.5,
        },
        every_type=True,
    ),
    Case(
        "dspark",
        {
            "architectures": ["Qwen3DSparkModel"],
            **_DSPARK,
            "mask_token_id": MASK,
            "target_layer_ids": [1, 4],
            "sinks": "attention_sink_bias",
        },
        every_type=True,
    ),
    Case(
        "dspark-reduced",
        {
            "architectures": ["DSparkDraftModel"],
            **_DSPARK,
            "dflash_config": _NESTED,
            "draft_vocab_size": 100,
            "sinks": "sinks",
        },
        extra=make_d2t(100),
        dtype="F32",
    ),
    Case(
        "speculators",
        {
            **dict.fromkeys(make_config()),
            "architectures": ["DSparkSpeculator"],
            "aux_hidden_state_layer_ids": [2, 5],
            "block_size": 8,
            "draft_vocab_size": 100,
            "markov_head_type": "vanilla",
            "markov_rank": 32,
            "mask_token_id": MASK,
            "transformer_layer_config": {
                key: value
                for key, value in make_config().items()
                if key not in {"block_size", "dflash_config"}
            },
        },
        extra=make_d2t(100),
    ),
    Case(
        "self-contained",
        {"tie_word_embeddings": False},
        extra={"embed_tokens.weight": _TABLE, "lm_head.weight": _OWN_HEAD},
        every_type=True,
    ),
    Case(
        "tied",
        {"tie_word_embeddings": True},
        extra={"model.embed_tokens.weight": _TABLE},
    ),
    Case(
        "dspark-self-contained",
        {
            "architectures": ["Qwen3DSparkModel"],
            **_DSPARK,
            "dflash_config": _NESTED,
            "sample_from_anchor": False,
        },
        extra={"embed_tokens.weight": _TABLE, "lm_head.weight": _OWN_HEAD},
        every_type=True,
        tensor_differences={
            "output.weight": "mainline leaves it out, and llama.cpp would then take the embeddings for the head"
        },
    ),
    Case("interleaved", {"rope_is_neox_style": False}),
    Case("mask", {"tie_word_embeddings": True}, mask=True),
)

# enough layers for the mixes that treat the first eighth of them apart
DEEP = Case("deep", {"num_hidden_layers": 9, "intermediate_size": 256})


@dataclass(frozen=True)
class Run:
    """A run of llama-quantize with options, `after` one to another type; `legacy` is the imatrix's format."""

    name: str
    case: Case
    kind: str
    tensor_types: tuple[str, ...] = ()
    imatrix: bool = False
    legacy: bool = False
    after: str = ""


_WISHES = ("attn_v=q8_0", r"blk\.[01]\.ffn=q4_K", "ffn=Q6_K", "fc=f32", "attn_k=iq4_nl")

RUNS = (
    Run("wishes", CASES[0], "q5_k_m", _WISHES),
    Run("imatrix", CASES[0], "q4_k_m", imatrix=True),
    Run("imatrix-legacy", CASES[0], "q3_k_m", imatrix=True, legacy=True),
    Run("imatrix-deep", DEEP, "q4_0", ("attn_q=q5_0",), imatrix=True),
    Run("imatrix-deep-5", DEEP, "q5_0", ("blk.0.ffn_down=q8_0",), imatrix=True),
    Run("deep", DEEP, "q2_k"),
    Run("requantised", CASES[0], "q4_k_m", after="q8_0"),
    Run("to-f16", CASES[0], "f16", after="f32"),
    Run("to-bf16", CASES[0], "bf16", after="q6_k"),
    Run("spark", next(case for case in CASES if case.name == "dspark"), "f16"),
)

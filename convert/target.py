"""What the converter needs to know of the target, and whether a drafter fits it."""

from __future__ import annotations

from dataclasses import dataclass

from ..gguf_file import GgufFile
from .config import DraftConfig
from .faults import refuse

# GGUF architectures that llama.cpp always runs with M-RoPE, and those that do if they carry sections
_MROPE = frozenset(
    {"qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp", "qwen3tts"}
)
_MROPE_BY_SECTIONS = frozenset({"glm4", "glm4moe", "hunyuan_vl", "bailingmoe3"})

# architectures whose last layer's output can be tapped
_TAP_OF_LAST = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})


@dataclass(frozen=True, slots=True)
class Target:
    """Facts of a target GGUF: `n_layers` without its extra next-token layers, `uses_mrope` as it will run."""

    path: str
    architecture: str
    hidden_size: int
    n_layers: int
    vocab_size: int
    uses_mrope: bool


def read_target(file: GgufFile) -> Target:
    """Read a target's facts. Raises ModelError or ConvertError if it is no target or lacks a tokenizer."""
    architecture = file.architecture
    if architecture.startswith("dflash") or architecture == "dspark":
        refuse(
            f"{file.path}: it is a drafter ({architecture}); expected the target model it was trained for"
        )
    if "tokenizer.ggml.tokens" not in file.fields or "tokenizer.ggml.model" not in file.fields:
        refuse(f"{file.path}: it has no tokenizer; expected a complete target model")
    extra = file.integer(f"{architecture}.nextn_predict_layers", 0)
    return Target(
        path=str(file.path),
        architecture=architecture,
        hidden_size=file.integer(f"{architecture}.embedding_length"),
        n_layers=file.integer(f"{architecture}.block_count") - extra,
        vocab_size=file.count("tokenizer.ggml.tokens"),
        uses_mrope=_uses_mrope(file, architecture),
    )


def check_fit(config: DraftConfig, where: str, target: Target) -> None:
    """Raise ConvertError, naming both values, if the drafter was not made for this target."""
    pairs = (
        ("hidden_size", config.hidden_size, "embedding_length", target.hidden_size),
        ("vocab_size", config.vocab_size, "vocabulary", target.vocab_size),
        ("num_target_layers", config.num_target_layers, "layer count", target.n_layers),
    )
    for key, ours, name, theirs in pairs:
        if ours is not None and ours != theirs:
            refuse(
                f"{where}: {key} is {ours}, but the {name} of {target.path} is {theirs}; "
                "give the target this drafter was trained for"
            )
    last = target.n_layers if target.architecture in _TAP_OF_LAST else target.n_layers - 1
    for tap in config.target_layer_ids:
        if tap >= last:
            refuse(
                f"{where}: target_layer_ids has {tap}, but {target.path} ({target.architecture}) has "
                f"{target.n_layers} layers, of which 0 to {last - 1} can be read; give the target this "
                "drafter was trained for"
            )


def _uses_mrope(file: GgufFile, architecture: str) -> bool:
    if architecture in _MROPE:
        return True
    if architecture not in _MROPE_BY_SECTIONS:
        return False
    sections = file.array(f"{architecture}.rope.dimension_sections", [])
    return len(sections) >= 2 and all(isinstance(n, int) and n > 0 for n in sections[:2])

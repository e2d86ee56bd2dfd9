"""The pairs that are known by name: registry.toml, package data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from .config import DraftConfig
from .source import Checkpoint


@dataclass(frozen=True, slots=True)
class Pair:
    """A drafter and its target, see registry.toml for the parts."""

    drafters: tuple[str, ...]
    target: str
    source: str
    facts: Mapping[str, int]
    shapes: Mapping[str, int]


@cache
def read_registry() -> tuple[Pair, ...]:
    """Return all pairs."""
    text = resources.files(__package__).joinpath("registry.toml").read_text("utf-8")
    return tuple(
        Pair(
            drafters=tuple(entry["drafters"]),
            target=entry["target"],
            source=entry["source"],
            facts=entry["facts"],
            shapes=entry["shapes"],
        )
        for entry in tomllib.loads(text)["pair"]
    )


def find_pair(config: DraftConfig, repository: str | None) -> Pair | None:
    """Return the pair a drafter is of: by its repository's name, else by its config."""
    pairs = read_registry()
    if repository is not None:
        name = repository.lower()
        for pair in pairs:
            if name in (drafter.lower() for drafter in pair.drafters):
                return pair
    return next((pair for pair in pairs if _has_facts(config, pair.facts)), None)


def find_pair_by_shapes(checkpoint: Checkpoint) -> Pair | None:
    """Return the pair whose drafter has tensors of these shapes, for a checkpoint without config.json."""
    shapes = {
        name.removeprefix("model."): tensor.shape for name, tensor in checkpoint.tensors.items()
    }
    fc = shapes.get("fc.weight", ())
    gate = shapes.get("layers.0.mlp.gate_proj.weight", ())
    norm = shapes.get("layers.0.self_attn.q_norm.weight", ())
    if (len(fc), len(gate), len(norm)) != (2, 2, 1) or fc[0] == 0:
        return None
    found = {
        "hidden_size": fc[0],
        "intermediate_size": gate[0],
        "head_dim": norm[0],
        "taps": fc[1] // fc[0],
    }
    return next((pair for pair in read_registry() if pair.shapes == found), None)


def _has_facts(config: DraftConfig, facts: Mapping[str, int]) -> bool:
    stated = {key: getattr(config, key) for key in facts}
    return all(stated[key] in (None, value) for key, value in facts.items())

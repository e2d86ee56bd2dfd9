"""Which drafters there are: the architectures they go by and the config keys that betray them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .faults import refuse


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of drafter: the `architectures` it goes by and the config keys that only it has."""

    name: str
    architectures: frozenset[str]
    keys: frozenset[str] = frozenset()


DFLASH = Family("DFlash", frozenset({"DFlashDraftModel"}))
DFLASH2 = Family(
    "DFlash2",
    frozenset({"DFlash2DraftModel"}),
    frozenset({"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}),
)
DSPARK = Family(
    "DSpark",
    frozenset(
        {
            "Qwen3DSparkModel",
            "DSparkDraftModel",
            "DSparkSpeculator",
            "Lfm2DSparkDraftModel",
            "LingDSparkModel",
        }
    ),
    frozenset({"markov_head_type", "markov_rank", "sample_from_anchor", "draft_vocab_size"}),
)
FAMILIES = (DFLASH, DFLASH2, DSPARK)

# drafters with a graph of their own in llama.cpp, which its converter knows
_ELSEWHERE = frozenset({"Gemma4DSparkModel", "DeepseekV4DSparkModel", "MuseGlimmerAssistantModel"})


def find_family(config: Mapping[str, Any], where: str) -> Family:
    """Return the family of a raw config. Raises ConvertError if it is unknown or not converted."""
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        refuse(
            f"{where}: architectures is {names!r}; expected one name such as 'DFlashDraftModel': "
            "is this a drafter's config.json?"
        )
    named = next((family for family in FAMILIES if names[0] in family.architectures), None)
    known = ", ".join(sorted(name for family in FAMILIES for name in family.architectures))
    if names[0] in _ELSEWHERE:
        refuse(
            f"{where}: {names[0]} drafters are not converted here; expected {known}; use llama.cpp's "
            "convert_hf_to_gguf.py for this one"
        )
    if named is None:
        refuse(f"{where}: the architecture {names[0]} is not a DFlash drafter's; expected {known}")
    betrayed = _betrayed(config)
    if betrayed is not None and named not in (DFLASH, betrayed):
        refuse(
            f"{where}: {names[0]} is a {named.name} drafter, but it has keys of a {betrayed.name} one; "
            "expected one kind: take config.json from the drafter's own repository"
        )
    return betrayed or named


def _betrayed(config: Mapping[str, Any]) -> Family | None:
    nested = config.get("dflash_config")
    both = [*config.items(), *(nested.items() if isinstance(nested, dict) else ())]
    present = {key for key, value in both if value is not None}
    return next((family for family in FAMILIES if family.keys & present), None)

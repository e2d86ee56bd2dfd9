"""Which drafters there are, and which of them we convert.

A family is recognised by config.json's architectures and by the keys only it has. One that we do not
convert yet is refused by name, before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .faults import refuse


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of drafter: the `architectures` it goes by and the config keys that betray it."""

    name: str
    architectures: frozenset[str]
    keys: frozenset[str] = frozenset()
    supported: bool = False


DFLASH = Family("DFlash", frozenset({"DFlashDraftModel"}), supported=True)
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


def find_family(config: Mapping[str, Any], where: str) -> Family:
    """Return the family of a raw config. Raises ConvertError if it is unknown or not converted yet."""
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        refuse(
            f"{where}: architectures is {names!r}; expected one name such as 'DFlashDraftModel': "
            "is this a drafter's config.json?"
        )
    named = next((family for family in FAMILIES if names[0] in family.architectures), None)
    known = sorted(name for family in FAMILIES for name in family.architectures if family.supported)
    if named is None:
        refuse(
            f"{where}: the architecture {names[0]} is not a DFlash drafter's; expected {', '.join(known)}"
        )
    found = _betrayed(config) or named
    if not found.supported:
        refuse(
            f"{where}: {names[0]} with the keys of a {found.name} drafter is not converted yet; "
            f"expected {', '.join(known)}; use llama.cpp's convert_hf_to_gguf.py for it"
        )
    return found


def _betrayed(config: Mapping[str, Any]) -> Family | None:
    nested = config.get("dflash_config")
    both = [*config.items(), *(nested.items() if isinstance(nested, dict) else ())]
    present = {key for key, value in both if value is not None}
    return next((family for family in FAMILIES if family.keys & present), None)

"""Options of how tokens are chosen, shared by the commands that answer. Spelt as in llama.cpp.

None is what nobody has said: then the target's file may (`suggested.py`), else the defaults of `Sampling`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._panels import SAMPLING

if TYPE_CHECKING:
    from ._given import Given

_FILE = "the target file's, or "

Temp = Annotated[
    float | None,
    typer.Option(
        "--temp",
        "--temperature",
        help="Temperature of sampling; 0: the most likely token.",
        show_default=_FILE + "0",
        rich_help_panel=SAMPLING,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        help="Sample from the most likely tokens; 0: all.",
        show_default=_FILE + "0",
        rich_help_panel=SAMPLING,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Sample from the most likely tokens up to this probability.",
        show_default=_FILE + "1",
        rich_help_panel=SAMPLING,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        help="Drop tokens below this share of the most likely one's chance.",
        show_default=_FILE + "0",
        rich_help_panel=SAMPLING,
    ),
]
Typical = Annotated[
    float | None,
    typer.Option(
        help="Locally typical sampling; 1: off.", show_default="1", rich_help_panel=SAMPLING
    ),
]
RepeatPenalty = Annotated[
    float | None,
    typer.Option(
        help="Divides the logits of recent tokens; 1: off.",
        show_default=_FILE + "1",
        rich_help_panel=SAMPLING,
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        help="Subtracted once from the logits of recent tokens.",
        show_default="0",
        rich_help_panel=SAMPLING,
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        help="Subtracted for every occurrence of a recent token.",
        show_default="0",
        rich_help_panel=SAMPLING,
    ),
]
RepeatLastN = Annotated[
    int | None,
    typer.Option(
        help="Tokens that count as recent; -1: all, 0: none.",
        show_default=_FILE + "64",
        rich_help_panel=SAMPLING,
    ),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        "-l",
        help="TOKEN_ID(+/-)BIAS, such as 15043-1 or 2-inf; may be given again.",
        show_default=False,
        rich_help_panel=SAMPLING,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        "-s",
        help="Of sampling; a seed gives one text. -1: any.",
        rich_help_panel=SAMPLING,
    ),
]
Grammar = Annotated[
    str | None,
    typer.Option(
        help="GBNF that answers must keep to.", show_default=False, rich_help_panel=SAMPLING
    ),
]
GrammarFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with such a grammar.",
        show_default=False,
        rich_help_panel=SAMPLING,
    ),
]
JsonSchema = Annotated[
    str | None,
    typer.Option(
        "--json-schema",
        "-j",
        help="JSON schema that answers must be a value of; {} for any JSON.",
        show_default=False,
        rich_help_panel=SAMPLING,
    ),
]
JsonSchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--json-schema-file",
        "-jf",
        help="A file with such a schema.",
        show_default=False,
        rich_help_panel=SAMPLING,
    ),
]


def origins(given: Given, in_file: Collection[str]) -> dict[str, str]:
    """Return where the settings of a chat come from that are not our defaults, by their names in `/set`.

    Args:
        given: the options of this call.
        in_file: fields of Sampling that the target's file suggests.
    """
    from ..chat.settings import SAMPLING as SETTINGS

    found = {}
    for name, field in SETTINGS.items():
        origin = given.origin(name.replace("-", "_"))
        if origin or field in in_file:
            found[name] = origin or "the target's file"
    return found

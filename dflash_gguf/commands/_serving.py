"""Options of `serve` alone. Spelt as in llama.cpp, where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._panels import SAMPLING

NETWORK, REQUESTS = "Network", "Requests"
_FILE = "the target file's, or "

Host = Annotated[
    str,
    typer.Option(
        help="Address to listen at; one that other machines reach wants an --api-key.",
        rich_help_panel=NETWORK,
    ),
]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=65535, help="Port to listen at; 0: any that is free.", rich_help_panel=NETWORK
    ),
]
ApiKey = Annotated[
    list[str] | None,
    typer.Option(
        help="Key that clients must send; may be given again.",
        show_default=False,
        rich_help_panel=NETWORK,
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with such keys, one a line.", show_default=False, rich_help_panel=NETWORK
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        help="Name that the server has behind a proxy on this machine; may be given again.",
        show_default=False,
        rich_help_panel=NETWORK,
    ),
]
Drain = Annotated[
    float,
    typer.Option(
        min=0,
        max=86400,
        metavar="SECONDS",
        help="How long answers may go on when the server is told to end.",
        rich_help_panel=NETWORK,
    ),
]
Alias = Annotated[
    str | None,
    typer.Option(
        "--alias",
        "-a",
        help="Name that the model goes by.",
        show_default="its file's",
        rich_help_panel=REQUESTS,
    ),
]
StrictModel = Annotated[
    bool,
    typer.Option(
        "--strict-model",
        help="Refuse requests that name another model.",
        rich_help_panel=REQUESTS,
    ),
]
Parallel = Annotated[
    int,
    typer.Option(
        "--parallel",
        "-np",
        min=1,
        max=256,
        help="Answers at the same time, each with a context of its own.",
        rich_help_panel=REQUESTS,
    ),
]
Queue = Annotated[
    int,
    typer.Option(
        min=0,
        max=1 << 20,
        help="Answers that may wait for one of them to end; more are refused (429).",
        rich_help_panel=REQUESTS,
    ),
]
MaxOutput = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TOKENS",
        help="Most tokens of an answer.",
        show_default="what the context holds",
        rich_help_panel=REQUESTS,
    ),
]
MaxBody = Annotated[
    int,
    typer.Option(
        min=1024, metavar="BYTES", help="Longest request that is read.", rich_help_panel=REQUESTS
    ),
]
Temp = Annotated[
    float | None,
    typer.Option(
        "--temp",
        "--temperature",
        min=0,
        max=100,
        help="Temperature of requests that give none.",
        show_default=_FILE + "0.8",
        rich_help_panel=SAMPLING,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Their most likely tokens; 0: all.",
        show_default=_FILE + "40",
        rich_help_panel=SAMPLING,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Their tokens up to this probability.",
        show_default=_FILE + "0.95",
        rich_help_panel=SAMPLING,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Their least share of the most likely token's chance.",
        show_default=_FILE + "0.05",
        rich_help_panel=SAMPLING,
    ),
]


def keys(given: list[str], path: Path | None) -> tuple[str, ...]:
    """Return the keys of both options. Raises UsageError for an empty one and for a file without any."""
    from ..errors import UsageError

    found = [key.strip() for key in given]
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            text = f"--api-key-file {path}: {getattr(error, 'strerror', None) or error}"
            raise UsageError(text) from None
        found += [line.strip() for line in lines if line.strip()]
    if "" in found or (path is not None and not found):
        text = "an API key is empty; expected at least one character"
        raise UsageError(text)
    return tuple(found)

"""Options that would do nothing beside others: refused, as who gives them expects something of them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from ..errors import UsageError

_SHOWS = {"show", "output", "plot", "quiet"}
_SWEEPS = {
    "sweep",
    "target",
    "draft",
    "block",
    "context",
    "threads",
    "concurrency",
    "output",
    "quiet",
}
_PAIRS = {"draft", "modes", "block", "context", "threads", "simulate"}
_FILTERS = {"top_k", "top_p"}


def refuse_idle(
    given: AbstractSet[str], flags: Mapping[str, str], *, dflash: bool, greedy: bool
) -> None:
    """Raise UsageError for options that do nothing beside the others.

    Args:
        given: the options of `bench` on the command line, by their parameters' names.
        flags: how each is spelt.
        dflash: whether blocks are drafted by this engine; llama-server beside it (--peer) has them too.
        greedy: whether nothing is sampled.
    """
    servers = given & {"base_url", "peer_cmd", "peer"}

    def refuse(idle: AbstractSet[str], why: str) -> None:
        found = [flag for name, flag in flags.items() if name in idle & given]
        if found:
            text = f"{why}: {', '.join(found)} would do nothing; leave it out"
            raise UsageError(text)

    everything = set(flags)
    if "show" in given:
        refuse(everything - _SHOWS, "--show measures nothing")
        return
    if not servers:
        refuse({"peer_model", "stream"}, "no server is given (--peer, --base-url, --peer-cmd)")
    if "sweep" in given:
        refuse(everything - _SWEEPS, "--sweep asks nothing")
        return
    if "target" not in given and servers:
        refuse(_PAIRS, "this engine takes no part without --target")
    elif not dflash and "peer" not in given:
        refuse({"block", "simulate"}, "no drafter takes part (--draft, --modes dflash)")
    if greedy:
        refuse(_FILTERS, "greedy answers are not sampled (--temp)")
        if "simulate" not in given:
            refuse({"seed"}, "greedy answers are not sampled (--temp)")

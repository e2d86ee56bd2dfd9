"""mainline's llama-server beside our arms: the commands that start it for the same pair, modes, blocks and requests."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from ..draft_family import DSPARK
from ..errors import UsageError
from ..pair import read_draft
from ..simulation import Simulation
from .asked import Pair
from .peer_process import PORT
from .peers import CONCURRENCY, CONTEXT, Peer

# what it keeps for later requests and shows to people is no part of a measurement
_QUIET = ("--no-ui", "-fit", "off", "--cache-ram", "0", "--ctx-checkpoints", "0")


def peers_like(program: str, pair: Pair, *, threads: int) -> list[Peer]:
    """Return a server for each of our arms that it can stand beside: plain, and n - 1 drafts for a block of n.

    Args:
        program: llama-server, by name or path.
        pair: what our arms are; mode "mtp" makes servers that run the target's own MTP layers, n - 1 steps each.
        threads: CPU threads, as ours.

    Raises:
        UsageError: there is no such program, or a block without a number alone, beside which nothing can stand.
    """
    if shutil.which(program) is None:
        text = f"--peer {program}: no such program; expected llama-server, or the path of one"
        raise UsageError(text)
    base = [program, "-m", str(pair.target), "-t", str(threads)]
    base += ["-c", CONTEXT, "--parallel", CONCURRENCY, "--host", "127.0.0.1", "--port", PORT]
    base += _QUIET
    blocks = [block for block in pair.blocks if isinstance(block, int)]
    if not blocks and pair.modes != ("ar",):
        text = f"--peer {program}: it drafts fixed numbers of tokens; expected some in --block, such as 4,8,16"
        raise UsageError(text)
    peers = []
    if "ar" in pair.modes:
        peers.append(Peer(shlex.join(base), True, "ar", None, None))
    for block in blocks:
        most = ["--spec-draft-n-max", str(block - 1)]
        if "mtp" in pair.modes:
            drawn = _drawn(pair.simulate and pair.simulate.of_mtp(), block - 1)
            words = [*base, "--spec-type", "draft-mtp", *most, *drawn]
            peers.append(Peer(shlex.join(words), True, "mtp", block - 1, block - 1))
        if "dflash" in pair.modes and pair.draft is not None:
            words = [*base, "-md", str(pair.draft), "-td", str(threads)]
            drawn = _drawn(pair.simulate, block - 1)
            words += ["--spec-type", _spec_type(pair.draft), *most, *drawn]
            peers.append(Peer(shlex.join(words), True, "dflash", block, block - 1))
    return peers


def _spec_type(draft: Path) -> str:
    """The kind of drafter in its words; a DFlash2's is that of a DFlash."""
    return "draft-dspark" if read_draft(draft).layout.family == DSPARK else "draft-dflash"


def _drawn(simulate: Simulation | None, steps: int) -> list[str]:
    """Draw how many drafts are accepted, if ours are: of MTP from the curve of the same source."""
    if simulate is None:
        return []
    # a value for each draft; what is behind the curve's end is never accepted
    rates = (*simulate.curve(), *[0.0] * steps)[:steps]
    return ["--spec-synth-rates", ",".join(f"{rate:g}" for rate in rates)]

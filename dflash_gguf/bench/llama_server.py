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
from .mtp_layer import require_mtp_layer
from .peer_process import PORT
from .peers import CONCURRENCY, CONTEXT, Peer
from .records import Mode

_STEPS = (3, 7, 15)  # of MTP, beside no block: the model cards'
# what it keeps for later requests and shows to people is no part of a measurement
_QUIET = ("--no-ui", "-fit", "off", "--cache-ram", "0", "--ctx-checkpoints", "0")


def peers_like(program: str, pair: Pair, *, threads: int) -> list[Peer]:
    """Return a server for each of our arms that it can stand beside: plain, and n - 1 drafts for a block of n.

    Args:
        program: llama-server, by name or path.
        pair: what our arms are; mode "mtp" makes servers that run the target's own MTP layer, n - 1 steps each, or the
            cards' steps where no block has a number and no drafter is to stand beside it.
        threads: CPU threads, as ours.

    Raises:
        UsageError: there is no such program, a block without a number alone, beside which nothing can stand, or no MTP
            layer in the target.
        ModelError: for mode "mtp", the target is no GGUF.
    """
    if shutil.which(program) is None:
        text = f"--peer {program}: no such program; expected llama-server, or the path of one"
        raise UsageError(text)
    base = [program, "-m", str(pair.target), "-t", str(threads)]
    base += ["-c", CONTEXT, "--parallel", CONCURRENCY, "--host", "127.0.0.1", "--port", PORT]
    base += _QUIET
    blocks = [block for block in pair.blocks if isinstance(block, int)]
    if "mtp" in pair.modes:
        require_mtp_layer(pair.target, "--modes mtp")
        if not blocks and "dflash" not in pair.modes:
            blocks = [steps + 1 for steps in _STEPS]
    if not blocks and pair.modes != ("ar",):
        text = f"--peer {program}: it drafts fixed numbers of tokens; expected some in --block, such as 4,8,16"
        raise UsageError(text)
    peers = []
    if "ar" in pair.modes:
        peers.append(Peer(shlex.join(base), True, "ar", None, None))
    for block in blocks:
        steps = block - 1
        most = ["--spec-draft-n-max", str(steps)]
        if "mtp" in pair.modes:
            words = [*base, "--spec-type", "draft-mtp", *most]
            curve = None if pair.simulate is None else pair.simulate.of_mtp()
            peers.append(_peer(words, "mtp", steps, steps, curve))
        if "dflash" in pair.modes and pair.draft is not None:
            words = [*base, "-md", str(pair.draft), "-td", str(threads)]
            words += ["--spec-type", _spec_type(pair.draft), *most]
            peers.append(_peer(words, "dflash", block, steps, pair.simulate))
    return peers


def _peer(words: list[str], mode: Mode, width: int, steps: int, drawn: Simulation | None) -> Peer:
    label = ""
    if drawn is not None:
        words, label = [*words, *_rates(drawn, steps)], drawn.label
    return Peer(shlex.join(words), True, mode, width, steps, label)


def _spec_type(draft: Path) -> str:
    """The kind of drafter in its words; a DFlash2's is that of a DFlash."""
    return "draft-dspark" if read_draft(draft).layout.family == DSPARK else "draft-dflash"


def _rates(drawn: Simulation, steps: int) -> tuple[str, str]:
    """Its option that draws from a curve, whatever the drafter."""
    # a value for each draft; what is behind the curve's end is never accepted
    rates = (*drawn.curve(), *[0.0] * steps)[:steps]
    return "--spec-synth-rates", ",".join(f"{rate:g}" for rate in rates)

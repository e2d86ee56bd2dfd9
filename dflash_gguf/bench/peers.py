"""Other engines' arms, from the address of a server or the command that starts one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UsageError
from .http_arm import HttpArm
from .http_client import HttpClient
from .mtp_layer import require_mtp_layer
from .peer_process import PORT, PeerProcess
from .records import Arm, ArmFacts, Ask, Cell, Mode, Question, drawn_from
from .schedule import Planned

CONCURRENCY, CONTEXT = "{concurrency}", "{context}"

_PLACED = re.compile(r"(?P<mode>ar|mtp|dflash)(?::(?P<width>\d+|auto))?=(?P<rest>.+)", re.DOTALL)
_TYPES: dict[str, Mode] = {"draft-dflash": "dflash", "draft-mtp": "mtp"}
_MODES: dict[str, Mode] = {"ar": "ar", "mtp": "mtp", "dflash": "dflash"}
# llama-server's, for what it calls synthetic acceptance
_DRAWS = ("--spec-synth-rates", "--spec-synth-len")
_N_MAX = 3  # llama-server's own, unless its command says otherwise
_WAIT = 600.0  # seconds for a server to load its model


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to measure.

    Attributes:
        where: its base URL, or the command that starts it.
        command: which of the two.
        mode, width: its place in the tables, as in ArmFacts.
        steps: tokens of each draft, if it always drafts so many.
        drawn: from what it draws how many are accepted; empty: it finds out.
    """

    where: str
    command: bool
    mode: Mode
    width: int | str | None
    steps: int | None
    drawn: str = ""


def parse_peer(text: str, *, command: bool) -> Peer:
    """Read a URL or command, which may begin with its place in the tables: `dflash:8=`, `mtp:3=`, `ar=`.

    Without one, llama-server's command says it (--spec-type, --spec-draft-n-max); all else is a baseline.
    Raises UsageError for a command that cannot be split or does not say where its port goes, for one that drafts with
    the MTP layer of a target that has none, and for no URL.
    """
    placed = _PLACED.fullmatch(text.strip())
    where = placed["rest"].strip() if placed else text.strip()
    if command:
        peer = _of_command(where)
    elif where.startswith(("http://", "https://")):
        peer = Peer(where, False, "ar", None, None)
    else:
        problem = (
            f"--base-url {text}: expected a URL such as http://localhost:8080, or dflash:8=URL"
        )
        raise UsageError(problem)
    if placed is None:
        return peer
    width = placed["width"]
    number = int(width) if width and width.isdecimal() else width
    return replace(peer, mode=_MODES[placed["mode"]], width=number)


def _of_command(text: str) -> Peer:
    try:
        words = shlex.split(text)
    except ValueError as error:
        problem = f"--peer-cmd {text}: {str(error).lower()}"
        raise UsageError(problem) from None
    if not words or PORT not in text:
        problem = f"--peer-cmd {text}: expected a command with {PORT} where its port goes"
        raise UsageError(problem)
    kinds = (_option(words, "--spec-type") or "").split(",")
    mode: Mode = next((_TYPES[part] for part in kinds if part in _TYPES), "ar")
    if mode == "ar":
        return Peer(text, True, "ar", None, None)
    given = _option(words, "--spec-draft-n-max") or str(_N_MAX)
    if not given.isdecimal():
        problem = f"--peer-cmd {text}: --spec-draft-n-max is {given}; expected a number"
        raise UsageError(problem)
    if mode == "mtp":
        _check_mtp(words)
    steps = int(given)
    certain = _option(words, "--spec-draft-p-min") or _option(words, "--draft-p-min") or "0"
    steady = not certain.strip("0.")
    # a block is the drafted tokens and the one before them
    width = steps + 1 if mode == "dflash" else steps
    drawn = [name for name in _DRAWS if _option(words, name) is not None]
    label = " ".join(f"{name} {_option(words, name)}" for name in drawn)
    return Peer(text, True, mode, width, steps if steady else None, label)


def _check_mtp(words: Sequence[str]) -> None:
    """Look into the target, if it is a file here and the layer is not to come from another."""
    target = _option(words, "-m") or _option(words, "--model")
    apart = ("-md", "--model-draft", "--spec-draft-model", "-hf", "-hfd")
    if target and Path(target).is_file() and not any(_option(words, name) for name in apart):
        require_mtp_layer(Path(target), "--peer-cmd")


def _option(words: Sequence[str], name: str) -> str | None:
    """The value of an option, the last if it stands there again."""
    found = None
    for word, after in zip(words, (*words[1:], None), strict=True):
        if word == name:
            found = after
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def plan_peers(
    peers: Sequence[Peer], model: str | None = None, *, context: int = 0, streams: bool = True
) -> list[Planned]:
    """Return the peers' arms; servers are started, or asked what they are, when their arms are opened or asked.

    Args:
        model: a name to ask for, if the servers have several.
        context: positions of a request, for commands that have a place for those of all ({context}).
        streams: whether answers are asked for piece by piece.
    """
    return [
        _plan(_Opening(peer, f"peer {number}", model, context, streams))
        for number, peer in enumerate(peers, 1)
    ]


@dataclass(frozen=True, slots=True)
class _Opening:
    """A server, and how it is asked; see plan_peers."""

    peer: Peer
    name: str
    model: str | None
    context: int
    streams: bool


def _plan(opening: _Opening) -> Planned:
    peer = opening.peer
    engine = Path(shlex.split(peer.where)[0]).name if peer.command else "openai"
    facts = ArmFacts(opening.name, peer.mode, peer.width, engine)
    if peer.command and (CONCURRENCY in peer.where or CONTEXT in peer.where):
        return Planned(facts, lambda: SizedArm(opening, facts))
    return Planned(facts, lambda: _open(opening))


class SizedArm:
    """A server that is started for as many requests as are asked at a time, and anew when that number changes.

    So this engine's arm does, and states for requests that nobody makes cost neither time nor memory. `facts` tell
    what the server says of itself once it was asked.
    """

    def __init__(self, opening: _Opening, facts: ArmFacts) -> None:
        self.facts = facts
        self._opening = opening
        self._arm: Arm | None = None
        self._concurrency = 0

    def run(self, questions: tuple[Question, ...], ask: Ask, concurrency: int) -> Cell:
        """Answer all questions. Raises what starting the server and asking it raise."""
        if self._arm is None or self._concurrency != concurrency:
            self.close()
            peer = self._opening.peer
            sizes = {CONCURRENCY: concurrency, CONTEXT: concurrency * self._opening.context}
            where = peer.where
            for place, value in sizes.items():
                where = where.replace(place, str(value))
            self._arm = _open(replace(self._opening, peer=replace(peer, where=where)))
            self._concurrency = concurrency
            details = {**self._arm.facts.details, "command": _shown(peer.where)}
            self.facts = replace(self._arm.facts, details=details)
        return self._arm.run(questions, ask, concurrency)

    def close(self) -> None:
        """End the server."""
        arm, self._arm = self._arm, None
        if arm is not None:
            arm.close()


def _open(opening: _Opening) -> Arm:
    peer = opening.peer
    process = PeerProcess(peer.where, wait=_WAIT) if peer.command else None
    try:
        client = HttpClient(
            peer.where if process is None else process.base_url, model=opening.model
        )
        arm = HttpArm(
            client,
            name=opening.name,
            mode=peer.mode,
            width=peer.width,
            process=process,
            steps=peer.steps,
            streams=opening.streams,
        )
        facts = _without_places(arm.facts, peer.where if peer.command else "")
        arm.facts = replace(facts, details={**facts.details, **drawn_from(peer.drawn)})
        return arm
    except BaseException:
        if process is not None:
            process.close()
        raise


def _without_places(facts: ArmFacts, command: str) -> ArmFacts:
    """Leave out where a server is: hosts, ports and folders are nobody else's business."""
    details = {key: value for key, value in facts.details.items() if key != "url"}
    if command:
        details["command"] = _shown(command)
    if "/" in details.get("model", ""):
        details["model"] = Path(details["model"]).name
    return replace(facts, details=details)


def _shown(command: str) -> str:
    """A command as it was given, but for the folders."""
    return " ".join(map(_without_folders, shlex.split(command)))


def _without_folders(word: str) -> str:
    option, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    return option + equals + (Path(value).name if "/" in value else value)

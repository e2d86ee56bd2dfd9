"""This engine, mainline's llama-server and the floor, interleaved in one run: decode speed and their ratios.

    python benchmarks/peers.py --server build/bin/llama-server --target T.gguf --draft D.gguf

The floor is a bare loop of the same llama.cpp calls (floor_arm.py). With --sdist FILE instead of --server the server
is built first (pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36). Every pass asks all arms the same
prompts, each prompt of all arms before the next, in rotated order; the first pass is dropped. Figures are medians over the passes, ratios medians of each pass's
own. Greedy, to the end token, the same ids to all; peer_arms.py has the counting rule. Reading prompts, starting
and warming up are not counted, and no arm keeps anything of earlier prompts. The wait policy of OpenMP is the
environment's, for all alike.

--simulate is for pairs whose weights mean nothing (`dflash-gguf shape`): how many drafted tokens are accepted is drawn
from a survival curve, ours by Simulation, the server's by --spec-synth-rates. So that luck does not count, tokens per
second are then those that the curve lets expect of the rounds that were done. The server's p-min stays 0: a
random drafter is never sure of anything.

One JSON line per arm, then one of ratios. If the two builds' system info differs, figures of the peer are void.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from floor_arm import Floor
from mainline import build
from peer_arms import Arm, Batch, Ours, Peer, Reply, Task, server_system_info
from prompts import spread

import dflash_gguf
from dflash_gguf._native import core

Ids = list[int]


@dataclass(slots=True)
class Row:
    """An arm and what was measured of it, a value for each pass."""

    arm: Arm
    speeds: list[float] = field(default_factory=list)
    lucky: list[float] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    def add(self, batches: Sequence[Batch], simulated: bool) -> None:
        """Take a pass over all prompts."""
        tokens = sum(batch.tokens for batch in batches)
        seconds = sum(batch.seconds for batch in batches)
        self.replies = [reply for batch in batches for reply in batch.replies]
        count = sum(reply.count for reply in self.replies)
        expected = sum(reply.expected for reply in self.replies)
        self.lucky.append(tokens / seconds)
        self.speeds.append(tokens / seconds * (expected / count if simulated else 1))

    def report(self, first: Row, task: Task, void: str | None) -> dict[str, Any]:
        """Return the arm's line; `first` is the one whose texts all are compared with."""
        line: dict[str, Any] = {
            "arm": self.arm.name,
            "kind": self.arm.kind,
            "sequences": task.sequences,
            "tok_s": round(statistics.median(self.speeds[1:]), 2),
            "tok_s_all": [round(speed, 2) for speed in self.speeds[1:]],
            "tokens": sum(reply.count + 1 for reply in self.replies),
            "rounds": sum(reply.rounds for reply in self.replies),
            "draft_n": sum(reply.drafted for reply in self.replies),
            "draft_n_accepted": sum(reply.accepted for reply in self.replies),
        }
        if task.survival is not None:
            line["simulated"] = True
            line["tok_s_drawn"] = [round(speed, 2) for speed in self.lucky[1:]]
        elif self.arm.kind != "floor":
            same = zip(self.replies, first.replies, strict=True)
            count = sum(ours.tokens == theirs.tokens for ours, theirs in same)
            line["same_text"] = f"{count}/{len(self.replies)}"
        if void is not None and self.arm.kind == "peer":
            line["void"] = void
        return line


def ratio(row: Row, other: Row) -> float:
    """Return the median over the passes of how many times as fast a row is as another."""
    pairs = zip(row.speeds[1:], other.speeds[1:], strict=True)
    return round(statistics.median(a / b for a, b in pairs), 3)


def best(rows: Sequence[Row], kind: str) -> Row | None:
    """Return the fastest arm of a kind."""
    found = [row for row in rows if row.arm.kind == kind]
    return max(found, key=lambda row: statistics.median(row.speeds[1:]), default=None)


def summary(rows: Sequence[Row], task: Task, void: str | None) -> dict[str, Any]:
    """Return each of our arms' ratios to the best floor, the best peer and to plain decoding."""
    floor, peer = best(rows, "floor"), best(rows, "peer")
    plain = next((row for row in rows if row.arm.name == "plain"), None)
    others = {"floor": floor, "peer": None if void else peer, "plain": plain}
    known = {name: row for name, row in others.items() if row is not None}
    line: dict[str, Any] = {
        "summary": {
            row.arm.name: {f"to_{name}": ratio(row, other) for name, other in known.items()}
            for row in rows
            if row.arm.kind == "ours"
        },
        "sequences": task.sequences,
        "best_floor": None if floor is None else floor.arm.name,
        "best_peer": None if peer is None else peer.arm.name,
        "simulated": task.survival is not None,
        "passes": len(rows[0].speeds) - 1,
        "threads": task.threads,
        "files": [task.target.name, task.draft.name, task.peer_draft.name],
        "system_info": core().system_info().strip(),
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} CPUs",
        "wait_policy": {
            name: os.environ[name]
            for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
            if name in os.environ
        },
        "date": date.today().isoformat(),
    }
    if void is not None:
        line["void"] = void
    return line


def open_rows(args: argparse.Namespace, task: Task, server: Path | None) -> Iterator[Row]:
    """Yield the arms that were asked for; ours come first, as floors need what they measure."""
    widths = {}
    for block in ["1", *_items(args.blocks)]:
        row = Row(Ours(task, block if block == "auto" else int(block)))
        yield row
        if block != "auto":
            widths[int(block)] = row
    for width, like in widths.items():
        yield Row(Floor(task, width, partial(getattr, like, "replies")))
    if server is None:
        return
    yield Row(Peer(task, server))
    p_mins = ["0"] if args.simulate else _items(args.p_min)
    for n_max in _items(args.n_max):
        for p_min in p_mins:
            yield Row(Peer(task, server, int(n_max), float(p_min)))


def compare(args: argparse.Namespace, task: Task, prompts: list[Ids], server: Path | None) -> None:
    """Measure with so many sequences and print."""
    batches = [
        prompts[first : first + task.sequences] for first in range(0, len(prompts), task.sequences)
    ]
    theirs = core().system_info().strip() if server is None else server_system_info(server)
    ours = core().system_info().strip()
    void = None if theirs == ours else f"system info differs: {ours!r} here, {theirs!r} there"
    with ExitStack() as stack:
        rows: list[Row] = []
        for row in open_rows(args, task, server):
            stack.enter_context(closing(row.arm))
            rows.append(row)
        one_by_one(rows, batches, task, restart=args.restart)
        for number in range(args.passes):
            if args.restart:
                one_by_one(rows, batches, task, restart=True)
            else:
                in_turn(rows, batches, task, number)
        for row in rows:
            print(json.dumps(row.report(rows[0], task, void)), flush=True)
        print(json.dumps(summary(rows, task, void)), flush=True)


def in_turn(rows: Sequence[Row], batches: Sequence[list[Ids]], task: Task, number: int) -> None:
    """Ask all arms a batch, then all the next: what a machine's speed does in a minute is the same for all."""
    answered: list[list[Batch]] = [[] for _ in rows]
    for turn, batch in enumerate(batches, start=number):
        for i in range(len(rows)):
            at = (i + turn) % len(rows)
            answered[at].append(rows[at].arm.answer(batch))
    for row, of_one in zip(rows, answered, strict=True):
        row.add(of_one, task.survival is not None)


def one_by_one(
    rows: Sequence[Row], batches: Sequence[list[Ids]], task: Task, *, restart: bool
) -> None:
    """Ask an arm all batches, then the next arm; floors learn from ours, which come first."""
    for row in rows:
        row.add([row.arm.answer(batch) for batch in batches], task.survival is not None)
        if restart and isinstance(row.arm, Peer):
            row.arm.close()


def read_prompts(args: argparse.Namespace, task: Task) -> list[Ids]:
    """Return the prompts as ids, rendered by us, as often as it takes to fill all sequences."""
    with dflash_gguf.load(task.target, threads=task.threads, context=task.context) as engine:
        ids = [engine.encode(each) for each in spread(args.prompts, args.count)]
    count = -(-len(ids) // task.sequences) * task.sequences
    return [ids[index % len(ids)] for index in range(count)]


def main() -> None:
    """Print the lines for each number of sequences."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--server", type=Path, help="a built llama-server; without: no peer")
    where.add_argument("--sdist", type=Path, help="llama-cpp-python's, to build it from")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--peer-draft", type=Path, help="the server's; default: the same")
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=16, help="prompts, spread over the file")
    parser.add_argument("-n", type=int, default=256, help="tokens of an answer at most")
    parser.add_argument("--blocks", default="4,8,16,auto", help="ours: widths, auto")
    parser.add_argument("--n-max", default="3,7,15", help="the server's drafts")
    parser.add_argument("--p-min", default="0,0.5,0.75", help="the server's")
    parser.add_argument("--sequences", default="1", help="answers at once, such as 1,8,32")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--ignore-end", action="store_true")
    parser.add_argument("--simulate", action="store_true", help="draw acceptance; ignores the end")
    parser.add_argument(
        "--restart", action="store_true", help="one server at a time, for memory: arm by arm"
    )
    args = parser.parse_args()
    curve = dflash_gguf.Simulation().curve() if args.simulate else None
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["DFLASH_GGUF_CACHE"] = scratch  # what was learnt before this run does not count
        server = args.server
        if args.sdist is not None:
            server = build(args.sdist, Path(scratch), "llama-server")
        for sequences in map(int, _items(args.sequences)):
            task = Task(
                target=args.target,
                draft=args.draft,
                peer_draft=args.peer_draft or args.draft,
                threads=args.threads,
                context=args.context,
                sequences=sequences,
                n=args.n,
                ignore_end=args.ignore_end or args.simulate,
                survival=curve,
            )
            compare(args, task, read_prompts(args, task), server)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


if __name__ == "__main__":
    main()

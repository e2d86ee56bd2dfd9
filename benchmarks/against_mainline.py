"""Our files in mainline's server: same text, accept lengths side by side. Not part of CI.

    python benchmarks/against_mainline.py --server build/bin/llama-server --target T.gguf --draft D.gguf ...

With --sdist FILE instead of --server the server is built first (mainline.py). Both are given the same ids, greedily.

Counting rule for both: tokens per verify over the rounds that draft. The server tells no rounds, so that every draft
is taken to be as long as it may be; and it counts what follows an end token inside the last block. So the two may
differ by a part of a round per answer.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from mainline import build
from peer_arms import Peer, Task
from prompts import spread

import dflash_gguf


def main() -> None:
    """Print one JSON line per draft file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", type=Path, help="a built llama-server")
    where.add_argument("--sdist", type=Path, help="llama-cpp-python's, to build it from")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, nargs="+", required=True)
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        server = args.server or build(args.sdist, Path(scratch), "llama-server")
        prompts = spread(args.prompts, args.count)
        for draft in args.draft:
            print(json.dumps(compare(server, draft, prompts, args)), flush=True)


def compare(
    server: Path, draft: Path, prompts: list[Any], args: argparse.Namespace
) -> dict[str, object]:
    """Answer the prompts with both and count."""
    context = 2048
    task = Task(
        target=args.target,
        draft=draft,
        peer_draft=draft,
        threads=args.threads,
        context=context,
        sequences=1,
        n=args.n,
        ignore_end=False,
        survival=None,
    )
    same = accepted = rounds = their_drafted = their_accepted = 0
    engine = dflash_gguf.load(args.target, draft, threads=args.threads, context=context)
    with engine, closing(Peer(task, server, n_max=args.block - 1)) as peer:
        for messages in prompts:
            answer = engine.generate(messages, max_tokens=args.n, block=args.block)
            (reply,) = peer.answer([answer.prompt]).replies
            same += answer.tokens == reply.tokens
            assert answer.stats is not None
            accepted += answer.stats.accepted
            rounds += answer.stats.drafting_rounds
            their_drafted += reply.drafted
            their_accepted += reply.accepted
    return {
        "draft": draft.name,
        "prompts": len(prompts),
        "block": args.block,
        "same_text": same,
        "accept_length": round(1 + accepted / rounds, 3),
        "mainline_accept_length": round(1 + their_accepted / (their_drafted / (args.block - 1)), 3),
    }


if __name__ == "__main__":
    main()

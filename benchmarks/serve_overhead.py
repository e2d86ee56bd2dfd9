"""What HTTP and server-sent events cost: the server's throughput beside its engine's, and CPU time for each event.

    dflash-gguf shape Qwen3.5-0.8B --outdir build/shapes
    python benchmarks/serve_overhead.py --target build/shapes/Qwen3.5-0.8B-shape-BF16.gguf \
        --draft build/shapes/Qwen3.5-0.8B-shape-draft-BF16.gguf --streams 32

Passes take turns: the engine alone, its answers followed by nobody, and `dflash-gguf serve` with as many streams, read
by a client that looks at no byte of them but counts events. Both ask the same prompts for the same number of tokens,
greedy, over the same contexts; the first pass of each is dropped. Throughput is tokens by seconds from the first
request to the last answer's end. CPU time for each event is that of the server's event loop, its main thread
(/proc/PID/schedstat: Linux), which reads requests too, and of handing chunks over in the engine's thread, timed
here over as many chunks. Prints a JSON line; exit code 1 if the share is over 3 % or an event over 150 microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import shlex
import socket
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prompts import spread

import dflash_gguf
from dflash_gguf import Chunk, Worker
from dflash_gguf.bench.peer_process import PeerProcess
from dflash_gguf.openai_choices import ChatShape
from dflash_gguf.serve.post import Post

SHARE, MICROSECONDS = 0.03, 150.0


def by_engine(worker: Worker, prompts: list[Any], tokens: int) -> float:
    """Answer all prompts at once; return tokens per second."""
    ended: list[int] = []
    over = threading.Event()

    def hear(item: Any) -> None:
        if isinstance(item, BaseException) or item.finish_reason is not None:
            ended.append(1)
            if len(ended) == len(prompts):
                over.set()

    begun = time.perf_counter()
    settings: dict[str, Any] = {"max_tokens": tokens, "ignore_end": True}
    tickets = [worker.deliver(hear, prompt, **settings) for prompt in prompts]
    over.wait()
    seconds = time.perf_counter() - begun
    written = [0 if each.sequence is None else len(each.sequence.tokens) for each in tickets]
    return sum(written) / seconds


def by_server(base_url: str, prompts: list[Any], tokens: int) -> tuple[float, int]:
    """Have a server stream them; return tokens per second and the events that came."""
    place = urlsplit(base_url)
    selector = selectors.DefaultSelector()
    begun = time.perf_counter()
    events = going = 0
    for prompt in prompts:
        asked = {"messages": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True}
        body = json.dumps(asked | {"temperature": 0}).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        own = socket.create_connection((place.hostname, place.port))
        own.sendall(head.encode() + body)
        selector.register(own, selectors.EVENT_READ)
        going += 1
    while going:
        for key, _ in selector.select():
            stream: Any = key.fileobj
            data = stream.recv(1 << 18)
            events += data.count(b"data: {")
            if not data:
                selector.unregister(stream)
                stream.close()
                going -= 1
    seconds = time.perf_counter() - begun
    return len(prompts) * tokens / seconds, events


def main_thread_seconds(process: int) -> float:
    """CPU time of a process's main thread."""
    return int(Path(f"/proc/{process}/task/{process}/schedstat").read_text().split()[0]) * 1e-9


def hand_over_microseconds(engine: dflash_gguf.Engine, count: int = 20_000) -> float:
    """Time that the engine's thread spends on a chunk: its shape, and the post."""

    async def measured() -> float:
        post, shape = Post(asyncio.get_running_loop()), ChatShape(engine, "model")
        chunk = Chunk(" of course", (1, 2), None)
        begun = time.thread_time()
        for _ in range(count):
            pieces = shape.pieces(chunk)
            post.put(partial(bool, pieces))  # type: ignore[arg-type]
        return (time.thread_time() - begun) / count * 1e6

    return asyncio.run(measured())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--block", default="auto")
    parser.add_argument("--passes", type=int, default=5, help="that count")
    args = parser.parse_args()
    prompts = (spread(args.prompts, args.streams) * args.streams)[: args.streams]
    width = None if args.block == "auto" else int(args.block)
    settings: dict[str, Any] = {
        "sequences": args.streams,
        "context": args.context,
        "threads": args.threads,
        "prefix_memory": 0,
        "block": width or "auto",
        "max_block": None if width is None else max(width, 2),  # as the command
    }
    words = [sys.executable, "-m", "dflash_gguf", "serve", "-m", args.target.absolute()]
    words += ["-md", args.draft.absolute(), "-c", args.context, "-np", args.streams]
    words += ["--cache-ram", 0, "--block", args.block, "-q"]
    words += [] if args.threads is None else ["-t", args.threads]
    command = shlex.join(map(str, words)) + " --port {port}"
    alone, served, each, events = [], [], [], 0
    with ExitStack() as stack:
        worker = stack.enter_context(
            Worker(lambda: dflash_gguf.load(args.target, args.draft, **settings))
        )
        server = stack.enter_context(PeerProcess(command))
        cost = worker.call(hand_over_microseconds).result()
        for number in range(args.passes + 1):
            alone.append(by_engine(worker, prompts, args.tokens))
            before = main_thread_seconds(server.pid)
            speed, events = by_server(server.base_url, prompts, args.tokens)
            served.append(speed)
            each.append((main_thread_seconds(server.pid) - before) / max(events, 1) * 1e6)
            print(f"pass {number}: {alone[-1]:.0f} and {speed:.0f} tok/s", file=sys.stderr)
    ratio = statistics.median(b / a for a, b in zip(alone[1:], served[1:], strict=True))
    loop = statistics.median(each[1:])
    line = {
        "streams": args.streams,
        "tokens": args.tokens,
        "engine_tok_s": round(statistics.median(alone[1:]), 1),
        "server_tok_s": round(statistics.median(served[1:]), 1),
        "share": round(1 - ratio, 4),
        "events": events,
        "loop_us_per_event": round(loop, 1),
        "engine_thread_us_per_event": round(cost, 1),
        "us_per_event": round(loop + cost, 1),
        "passes": args.passes,
        "files": [args.target.name, args.draft.name],
    }
    print(json.dumps(line), flush=True)
    return 0 if line["share"] <= SHARE and loop + cost <= MICROSECONDS else 1


if __name__ == "__main__":
    sys.exit(main())

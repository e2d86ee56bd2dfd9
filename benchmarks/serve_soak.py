"""Thousands of requests to a server, good ones and bad, sixteen at a time: is it the same afterwards?

    python benchmarks/serve_soak.py --target models/tiny/target.gguf --draft models/tiny/draft --count 5000

Of ten requests one is dropped in its prompt, in its stream or while it waits, one is malformed, one is over a limit; the
others are chats and texts of many settings, streamed and not. Every tenth of the way all is let end, and a JSON line
tells the server's resident memory. The verdict: no answer with a status of 500 or more, none that is not whole, memory
after the warm-up (the first fifth) within 3 %, no answer left in the engine or on its way out, and the answers of a few
probes as they were before the first request. Exit code 1 if not. Linux.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prompts import spread

from dflash_gguf.bench.peer_process import PeerProcess

LIMIT = 0.03
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY, CONTEXT = 65536, 512
PROBES: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 40},
    {"temperature": 0.8, "seed": 7, "max_tokens": 40, "logprobs": True, "top_logprobs": 1},
]


class Soak:
    """Sends requests from several threads and counts what comes."""

    def __init__(self, base_url: str, prompts: list[Any], seed: int) -> None:
        self.prompts = prompts
        self._place = urlsplit(base_url)
        self._seed = seed
        self._lock = threading.Lock()
        self._next = 0
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def send(self, first: int, last: int, at_once: int) -> None:
        """Send the requests of these numbers; returns when all are over."""
        self._next = first
        threads = [threading.Thread(target=self._work, args=(last,)) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def ask(self, path: str, body: Any, method: str = "POST") -> tuple[int, bytes]:
        """Return the status and the body of a whole answer."""
        connection = self._connect()
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def probes(self) -> list[Any]:
        """Return the answers of the probes."""
        found = []
        for prompt in self.prompts[:2]:
            for probe in PROBES:
                status, data = self.ask(CHAT, {"messages": prompt, **probe})
                assert status == 200, data
                found.append([choice["message"] for choice in json.loads(data)["choices"]])
        return found

    def metrics(self) -> dict[str, float]:
        """Return what the server counts."""
        _, data = self.ask("/metrics", b"", "GET")
        pairs = (line.rpartition(" ") for line in data.decode().splitlines() if line[0] != "#")
        return {name: float(value) for name, _, value in pairs}

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._place.hostname or "", self._place.port, timeout=120)

    def _work(self, last: int) -> None:
        while True:
            with self._lock:
                number, self._next = self._next, self._next + 1
            if number >= last:
                return
            choose = random.Random(self._seed * 1_000_003 + number)
            kind = number % 10
            action: Callable[[random.Random], str] = {
                0: self._drop,
                1: self._malform,
                2: self._exceed,
            }.get(kind, self._good)
            try:
                what = action(choose)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is part of the verdict)
                what = f"{type(error).__name__}"
                self._note(f"{action.__name__}: {error!r}")
            with self._lock:
                self.counts[what] += 1

    def _good(self, choose: random.Random) -> str:
        path, body = self._request(choose)
        status, data = self.ask(path, body)
        whole = data.endswith(b"data: [DONE]\n\n") if body["stream"] else data.endswith(b"}")
        if status == 429:
            return "queue full"
        if status != 200 or not whole or b'"error"' in data:
            self._note(f"{status} {data[-300:]!r} of {body!r}"[:900])
        return "good"

    def _drop(self, choose: random.Random) -> str:
        path, body = self._request(choose)
        body |= {"max_tokens": 300, "ignore_eos": True}
        connection = self._connect()
        connection.request(
            "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        if body["stream"] and choose.random() < 0.7:
            reply = connection.getresponse()
            reply.read(choose.choice([1, 200, 3000]))
            reply.close()
        else:
            time.sleep(choose.choice([0, 0.01, 0.1]))
        connection.close()
        return "dropped"

    def _malform(self, choose: random.Random) -> str:
        path, body = self._request(choose)
        text = json.dumps(body).encode()
        status, data = self.ask(
            path,
            choose.choice(
                [
                    text[: choose.randrange(len(text))],
                    b"",
                    b"[" * 5000,
                    bytes(choose.randrange(256) for _ in range(200)),
                    json.dumps(body | {"temperature": "hot"}).encode(),
                    json.dumps(body | {"logit_bias": {"-5": 1}}).encode(),
                    json.dumps(body | {"grammar": "root ::= ("}).encode(),
                    json.dumps(body | {"messages": None, "prompt": {}}).encode(),
                ]
            ),
        )
        return self._refused("malformed", status, data, {400})

    def _exceed(self, choose: random.Random) -> str:
        path, body = self._request(choose)
        long = "word " * choose.choice([2 * CONTEXT, BODY])
        more: dict[str, Any] = choose.choice(
            [{"messages": _said(long), "prompt": long}, {"n": 99}, {"block": 99}]
        )
        status, data = self.ask(path, body | more)
        return self._refused("over a limit", status, data, {400, 413})

    def _refused(self, what: str, status: int, data: bytes, expected: set[int]) -> str:
        if status == 429:
            return "queue full"
        if status not in expected or set(json.loads(data)) != {"error"}:
            self._note(f"{what}: {status} {data[-300:]!r}")
        return what

    def _request(self, choose: random.Random) -> tuple[str, dict[str, Any]]:
        """Return a good one."""
        body: dict[str, Any] = {
            "max_tokens": choose.choice([1, 5, 30, 80]),
            "stream": choose.random() < 0.6,
            "temperature": choose.choice([0, 0.7, 1.3]),
        }
        more: list[dict[str, Any]] = [
            {"n": 2, "seed": 5},
            {"stop": [".", "the"]},
            {"stream_options": {"include_usage": True}},
            {"return_meta_info": True, "timings_per_token": True},
            {"repeat_penalty": 1.2, "top_k": 20},
            {"response_format": {"type": "json_object"}},
            {"block": choose.choice([1, 2, "auto"])},
        ]
        for each in choose.sample(more, choose.randrange(3)):
            body |= each
        prompt = choose.choice(self.prompts)
        if choose.random() < 0.3:
            body.pop("response_format", None)
            return TEXT, body | {"prompt": prompt[0]["content"], "logprobs": choose.choice([0, 2])}
        return CHAT, body | {"messages": prompt}

    def _note(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def resident(process: int) -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settle(work: Soak) -> dict[str, float]:
    """Wait until nothing is under way; return what the server counts then."""
    limit = time.monotonic() + 60
    names = ("llamacpp:requests_processing", "llamacpp:requests_deferred", "dflash:responses_open")
    while True:
        counts = work.metrics()
        if not any(counts[name] for name in names) or time.monotonic() > limit:
            return {name: counts[name] for name in names}
        time.sleep(0.05)


def main() -> int:
    """Start the server, soak it, print the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    words = [sys.executable, "-m", "dflash_gguf", "serve", "-m", args.target.absolute()]
    words += ["-md", args.draft.absolute(), "-c", CONTEXT, "-np", args.parallel, "-q"]
    # a cache that is soon full, so that it does not count as growth
    words += ["--cache-ram", 8, "--queue", 64, "--max-body", BODY]
    words += [] if args.threads is None else ["-t", args.threads]
    sizes, begun = [], time.monotonic()
    with PeerProcess(shlex.join(map(str, words)) + " --port {port}") as server:
        work = Soak(server.base_url, spread(args.prompts, 24), args.seed)
        before, counted = work.probes(), work.metrics()  # 503 while it loaded
        step = max(1, args.count // 10)
        left: dict[str, float] = {}
        for first in range(0, args.count, step):
            work.send(first, min(first + step, args.count), args.at_once)
            left = settle(work)
            sizes.append(resident(server.pid))
            mib = round(sizes[-1] / 2**20, 2)
            line = {"sent": first + step, "resident_mib": mib, **dict(work.counts)}
            print(json.dumps(line), flush=True)
        same = work.probes() == before
        statuses = {
            name: value - counted.get(name, 0)
            for name, value in work.metrics().items()
            if name.startswith(("dflash:responses_total", "dflash:answers_total"))
        }
    settled = sizes[len(sizes) // 5 :]
    growth = (max(settled) - settled[0]) / settled[0]
    for problem in work.problems[:20]:
        print(problem, file=sys.stderr)
    failed = [name for name, count in statuses.items() if 'status="5' in name and count]
    verdict = {
        "pass": growth <= LIMIT and same and not (work.problems or failed or any(left.values())),
        "growth": round(growth, 4),
        "problems": len(work.problems),
        "probes_same": same,
        "left": left,
        "seconds": round(time.monotonic() - begun, 1),
        **dict(work.counts),
        **statuses,
    }
    print(json.dumps(verdict), flush=True)
    return 0 if verdict["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())

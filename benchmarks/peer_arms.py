"""What benchmarks/peers.py compares: each arm answers prompts, as many at a time as there are sequences.

Of one answer the time from its first token to its last counts, and the tokens after the first; of several at once the
time in which no prompt is read. This engine reads prompts in decodes of their own, whose time is taken off. A
server's batches mix prompts and answers: there it is the time after all answers have begun, with the tokens that
fall into it (of an answer that began earlier, in proportion), so that its ramp-up does not count and ours does.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mainline import spec_type

import dflash_gguf

_WAIT = 300  # seconds for a server to load, and for an answer


@dataclass(frozen=True, slots=True)
class Task:
    """What every arm is asked: at most `n` tokens for each prompt, to the end token unless it is ignored.

    `peer_draft` is the server's drafter, which may have another head. `survival` is the curve of a simulation, which
    draws how many drafted tokens are accepted.
    """

    target: Path
    draft: Path
    peer_draft: Path
    threads: int
    context: int
    sequences: int
    n: int
    ignore_end: bool
    survival: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and its counts.

    `count`: tokens after the first; `expected`: those that the survival curve lets expect of its rounds, if
    simulated. `seconds`: from the first token to the last, which came at `last`, by the clock of time.perf_counter.
    """

    tokens: list[int]
    last: float
    seconds: float
    count: int
    rounds: int
    drafted: int
    accepted: int
    expected: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers given at once, and what is counted of them: tokens, and the seconds they took."""

    replies: list[Reply]
    tokens: float
    seconds: float


class Arm(Protocol):
    """One way to answer; `kind` is ours, peer or floor."""

    name: str
    kind: str

    def answer(self, prompts: Sequence[Sequence[int]]) -> Batch:
        """Answer as many prompts as there are sequences, all at once."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def after_prompts(replies: list[Reply]) -> Batch:
    """Return answers given at once, with the time after all have begun."""
    begin = max(reply.last - reply.seconds for reply in replies)
    end = max(reply.last for reply in replies)
    tokens = 0.0
    for reply in replies:
        inside = min(reply.last - begin, reply.seconds)
        if inside > 0:
            tokens += reply.count * inside / reply.seconds
    return Batch(replies, tokens, end - begin)


class Ours:
    """This engine: without a drafter (`block` 1), with a fixed block, or with the block it chooses ("auto")."""

    kind = "ours"

    def __init__(self, task: Task, block: int | str) -> None:
        self.name = "plain" if block == 1 else f"block {block}"
        self._task = task
        settings: dict[str, Any] = {"threads": task.threads, "context": task.context}
        settings |= {"sequences": task.sequences, "prefix_memory": 0}
        if block != 1 and task.survival is not None:
            settings["simulate"] = dflash_gguf.Simulation(task.survival)
        if isinstance(block, int) and block > 1:
            settings |= {"max_block": block, "block": block}
        draft = None if block == 1 else task.draft
        # a fixed block is loaded for, as its snapshots cost time
        self.engine = dflash_gguf.load(task.target, draft, **settings)

    def answer(self, prompts: Sequence[Sequence[int]]) -> Batch:
        """Start all, then step until all have ended."""
        task = self._task
        options: dict[str, Any] = {"max_tokens": task.n, "ignore_end": task.ignore_end}
        answers = [self.engine.start(prompt, **options) for prompt in prompts]
        begun, reading = time.perf_counter(), self.engine.times()["prefill"]
        while self.engine.busy:
            self.engine.step()
        ended = time.perf_counter()
        replies = [self._reply(answer, ended) for answer in answers]
        if len(replies) == 1:
            seconds = replies[0].seconds
        else:
            seconds = ended - begun - (self.engine.times()["prefill"] - reading)
        return Batch(replies, sum(reply.count for reply in replies), seconds)

    def _reply(self, answer: dflash_gguf.Sequence, last: float) -> Reply:
        stats = answer.stats
        assert stats is not None
        curve = self._task.survival or ()
        chances = zip(stats.drafted_at, curve, strict=False)
        return Reply(
            tokens=answer.tokens,
            last=last,
            seconds=stats.decode_seconds,
            count=stats.emitted - 1,
            rounds=stats.rounds,
            drafted=stats.drafted,
            accepted=stats.accepted,
            expected=stats.rounds + sum(count * chance for count, chance in chances),
        )

    def close(self) -> None:
        """Free the models."""
        self.engine.close()


@dataclass(slots=True)
class Peer:
    """Mainline's llama-server; `n_max` 0 is without a drafter. Started when it is first asked."""

    task: Task
    program: Path
    n_max: int = 0
    p_min: float = 0.0
    kind: str = "peer"
    name: str = field(init=False)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _log: Any = field(init=False, default=None)
    _port: int = field(init=False, default=0)
    _asked: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Name it."""
        self.name = "server plain"
        if self.n_max:
            self.name = f"server n-max {self.n_max} p-min {self.p_min:g}"

    def answer(self, prompts: Sequence[Sequence[int]]) -> Batch:
        """Send all at once and wait for the whole answers: a stream would cost the server time."""
        if self._process is None:
            self._start()
            self._ask(prompts[0])  # what only a first answer costs
        with ThreadPoolExecutor(len(prompts)) as pool:
            return after_prompts(list(pool.map(self._ask, prompts)))

    def _start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(
            self._command(), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        limit = time.monotonic() + _WAIT
        while time.monotonic() < limit and self._process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(self._url("health"), timeout=1):
                return
            time.sleep(0.05)
        log = self._said()
        self.close()
        text = f"{self.name} did not start:\n{log}"
        raise SystemExit(text)

    def _command(self) -> list[str]:
        task = self.task
        command: list[Any] = [self.program, "-m", task.target, "-t", task.threads]
        command += ["-c", task.context * task.sequences, "--parallel", task.sequences]
        command += ["--host", "127.0.0.1", "--port", self._port, "--no-ui", "-fit", "off"]
        command += ["--cache-ram", 0, "--ctx-checkpoints", 0]  # for later requests only
        if self.n_max:
            command += ["-md", task.peer_draft, "-td", task.threads]
            command += ["--spec-type", spec_type(task.peer_draft)]
            command += ["--spec-draft-n-max", self.n_max, "--spec-draft-p-min", self.p_min]
            if task.survival is not None:
                rates = ",".join(map(str, task.survival[: self.n_max]))
                command += ["--spec-synth-rates", rates]
        return [str(part) for part in command]

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}/{path}"

    def _ask(self, prompt: Sequence[int]) -> Reply:
        self._asked += 1
        body = {
            "prompt": list(prompt),
            "n_predict": self.task.n,
            "temperature": 0,
            "cache_prompt": False,
            "return_tokens": True,
            "ignore_eos": self.task.ignore_end,
            "seed": self._asked,  # of the simulation's draws
        }
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            self._url("completion"), json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=_WAIT) as response:
                answer = json.load(response)
        except OSError as error:
            text = f"{self.name}: {error}\n{self._said()}"
            raise SystemExit(text) from None
        return self._reply(answer, time.perf_counter())

    def _reply(self, answer: dict[str, Any], last: float) -> Reply:
        timings = answer["timings"]
        count = timings["predicted_n"]
        drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        curve = self.task.survival or ()
        chance = sum(curve[: self.n_max])
        # its timings do not tell the rounds; accepted tokens behind the end are counted as accepted
        rounds = max(count - 1 - accepted, 0)
        drafting = drafted / self.n_max if self.n_max else 0
        tokens = list(answer["tokens"])
        # an end token is counted, and not always listed
        tokens += [-1] * (count - len(tokens))
        return Reply(
            tokens=tokens[:count],
            last=last,
            seconds=timings["predicted_ms"] / 1000,
            count=count - 1,
            rounds=rounds,
            drafted=drafted,
            accepted=accepted,
            expected=rounds + drafting * chance,
        )

    def _said(self) -> str:
        self._log.seek(0)
        return str(self._log.read()[-3000:].decode("utf-8", "replace"))

    def close(self) -> None:
        """End the server; it starts again when it is asked again."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._log.close()
            self._process = None


def server_system_info(program: Path) -> str:
    """Return what a server says of its build and the CPU; it does so before it looks for its model."""
    command = [str(program), "-lv", "4", "-m", "no such file"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=_WAIT)
    log = (done.stdout + done.stderr).decode("utf-8", "replace")
    found = re.search(r"system_info: n_threads[^|]*\| (.*)", log)
    if found is None:
        text = f"{program} does not tell its system info:\n{log[-2000:]}"
        raise SystemExit(text)
    return found[1].strip()

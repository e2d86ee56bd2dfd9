"""Ctrl-C, SIGTERM and SIGKILL in real processes: what was measured stays, is shown, and says what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, Self

import pytest

pytest.importorskip("httpx2")

from dflash_gguf.bench.records import Bench
from dflash_gguf.bench.saved import read_bench

from ..support.command import COMMAND, WAIT, command
from ..support.random_pairs import Pair

PEER = Path(__file__).parents[1] / "support" / "peer.py"
# in a process of its own, says when an answer's lines are about to be written, and takes its time
_SLOW_DISK = (
    "import sys, time, dflash_gguf.bench.saved as saved; append = saved._append\n"
    "def slow(path, text):\n"
    "    print('writing', file=sys.stderr, flush=True); time.sleep(1); append(path, text)\n"
    "saved._append = slow\n"
    "from dflash_gguf.__main__ import main; sys.argv[0] = 'dflash-gguf'; main()"
)


class Running:
    """A `dflash-gguf bench` under way, whose stderr is read line by line."""

    def __init__(self, *words: object, program: str | None = None, heard: bool = True) -> None:
        """`program`: what is run instead of the command itself; `heard`: whether anybody reads its stdout."""
        begin = COMMAND if program is None else [sys.executable, "-c", program]
        read_end, write_end = os.pipe()
        self.process = subprocess.Popen(
            [*begin, "bench", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=subprocess.PIPE,
            cwd="/",
            text=True,
        )
        os.close(write_end)
        self.said: list[str] = []
        self.out = ""
        self._lines: Queue[str | None] = Queue()
        self._readers = [Thread(target=self._errors, daemon=True)]
        if heard:
            self._readers.append(Thread(target=self._answers, args=(read_end,), daemon=True))
        else:
            os.close(read_end)
        for reader in self._readers:
            reader.start()

    def _errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _answers(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8") as file:
            self.out = file.read()

    def until(self, part: str) -> None:
        """Wait for a line with this in it."""
        while not self.said or part not in self.said[-1]:
            line = self._lines.get(timeout=WAIT)
            assert line is not None, f"it ended before {part!r}: {self.said}"
            self.said.append(line)

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(WAIT)
        for reader in self._readers:
            reader.join(WAIT)
        while (line := self._lines.get(timeout=WAIT)) is not None:
            self.said.append(line)
        return code

    @property
    def err(self) -> str:
        return "".join(self.said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for reader in self._readers:
            reader.join(WAIT)


@contextmanager
def with_peers(folder: Path, *words: object, pause: float, **how: Any) -> Iterator[Running]:
    """Two questions for two arms: servers of ours, ended with the command."""
    questions = folder / "two.jsonl"
    questions.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    arms = []
    for name, place, drafted in (("base", "ar", 0), ("fast", "dflash:4", 6)):
        (folder / name).mkdir()
        arms += [
            "--peer-cmd",
            f"{place}={sys.executable} {PEER} {{port}} {folder / name} {pause} {drafted}",
        ]
    with Running(
        *(*arms, "--workload", f"w={questions}", "--questions", "2", "-n", "5", "--runs", "3"),
        *("--save-dir", folder / "runs", *words),
        **how,
    ) as running:
        yield running


def gone(folder: Path) -> bool:
    """Whether both servers have ended."""
    limit = time.monotonic() + WAIT
    for name in ("base", "fast"):
        file = folder / name / "pid"
        while file.exists():
            try:
                os.kill(int(file.read_text()), 0)
            except ProcessLookupError:
                break
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
    return True


def kept(folder: Path) -> Bench:
    """The run that was saved; its answers' file has whole lines only."""
    (run,) = (folder / "runs").iterdir()
    text = (run / "turns.jsonl").read_text()
    assert text.endswith("\n")
    for line in text.splitlines():
        json.loads(line)
    return read_bench(run)


def test_while_a_model_is_loaded(pair: Pair, tmp_path: Path) -> None:
    with Running("-m", pair.target, "-n", 4, "--save-dir", tmp_path / "runs") as running:
        running.until("opening Baseline")
        code = running.end(signal.SIGINT)
    assert (code, running.out) == (130, "")
    assert "Traceback" not in running.err
    # unless the model was there, and had answered, before the signal came
    assert "saved" in running.err or list((tmp_path / "runs").iterdir()) == []


def test_while_a_server_is_started(tmp_path: Path) -> None:
    with with_peers(tmp_path, pause=30) as running:
        running.until("opening Baseline")
        code = running.end(signal.SIGINT)
    assert (code, running.out) == (130, "")
    assert running.err == "opening Baseline (python)\n" or "Traceback" not in running.err
    assert list((tmp_path / "runs").iterdir()) == []
    assert gone(tmp_path)


def test_in_the_warm_up(tmp_path: Path) -> None:
    with with_peers(tmp_path, pause=0.1) as running:
        running.until("[1/8] w, 1 at a time, warm-up")
        code = running.end(signal.SIGINT)
    assert (code, running.out) == (130, "")
    assert gone(tmp_path)
    made = kept(tmp_path)
    assert (made.state, [cell.run for cell in made.cells][:1]) == ("interrupted", [0])
    assert "interrupted before a run that counts was over" in running.err
    assert "Interrupted: " in running.err
    assert "missing: w at 1: all." in running.err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_in_a_run(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with with_peers(tmp_path, pause=0.1) as running:
        running.until("[4/8] w, 1 at a time, run 1")
        ended = running.end(number)
    assert ended == code, running.err
    assert gone(tmp_path)
    made = kept(tmp_path)
    assert made.state == "interrupted"
    assert 4 <= len(made.cells) < 8
    assert all(len(cell.turns) == 2 for cell in made.cells)
    (line,) = (line for line in running.err.splitlines() if line.startswith("Interrupted: "))
    assert f"{len(made.cells)} of 8 runs" in line
    assert "of 3 runs of Baseline" in line
    assert running.out.count(f"- {line}\n") == running.out.count("\n## ") + 1
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "tables.md").read_text(encoding="utf-8") == running.out
    again = command("bench", "--show", run)
    assert (again.returncode, again.stdout) == (0, running.out)


def test_while_it_writes(tmp_path: Path) -> None:
    with with_peers(tmp_path, "-q", pause=0, program=_SLOW_DISK) as running:
        for _ in range(3):
            running.until("writing")
            running.said.append("")
        code = running.end(signal.SIGINT)
    assert code == 130, running.err
    assert gone(tmp_path)
    # what it was writing is there
    assert len(kept(tmp_path).cells) == 3
    assert "3 of 8 runs" in running.out


def test_killed(tmp_path: Path) -> None:
    with with_peers(tmp_path, pause=0.1) as running:
        running.until("[3/8] w, 1 at a time, run 1")
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
    for name in ("base", "fast"):  # nobody was left to end them
        os.kill(int((tmp_path / name / "pid").read_text()), signal.SIGKILL)
    (run,) = (tmp_path / "runs").iterdir()
    with (run / "turns.jsonl").open("a") as file:  # as if it had been writing
        file.write('{"cell": 3, "workload": "w", "que')
    again = command("bench", "--show", run)
    assert again.returncode == 0, again.stderr
    assert "- Not ended (it still runs, or its process was killed): " in again.stdout
    assert "| Workload | Baseline | DFlash block=4 |" in again.stdout


def test_a_reader_that_has_gone_changes_nothing(tmp_path: Path) -> None:
    """As when Ctrl-C ends `bench | tee log` whole."""
    with with_peers(tmp_path, pause=0.1, heard=False) as running:
        running.until("[4/8] w, 1 at a time, run 1")
        code = running.end(signal.SIGINT)
    assert code == 130, running.err
    assert "Traceback" not in running.err
    assert "BrokenPipe" not in running.err
    assert kept(tmp_path).state == "interrupted"

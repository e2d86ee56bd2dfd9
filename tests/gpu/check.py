"""Does everything hold on this machine's GPU? For people who have one; no pytest needed.

    python tests/gpu/check.py

with dflash-gguf installed and its llama-cpp-python built for the GPU (README.md, GPUs), from a clone of the
repository. One JSON line per check, with what was found and whether it passes; the last line counts. Exit code 1
if a check fails. Takes some minutes; a pair of the shape Qwen3.5-0.8B (2.5 GB) is written to a temporary folder
(`--shape none`: not).

`--cpu` runs the same on the CPU, which tests the script.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import dflash_gguf
from dflash_gguf import Engine, Sequence, Simulation
from dflash_gguf._native import LLAMA_CPP_PYTHON, core
from dflash_gguf.convert import convert
from dflash_gguf.hardware import devices
from dflash_gguf.shapes import find_shape, write_shape

TINY = Path(__file__).parents[2] / "models" / "tiny"
BLOCK = 16
NEAR = (
    0.1  # logits: a smaller gap between the two best tokens may go either way with another kernel
)
MASKS = {"trained": None, "bidirectional": False, "causal": True}


class Bench:
    """The files, the options that choose devices, and how much to do."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder
        self.on = {"gpu_layers": 0, "draft_gpu_layers": 0} if args.cpu else {}
        self.target = TINY / "target.gguf"

    @cached_property
    def draft(self) -> Path:
        """The tiny drafter in bf16."""
        (written,) = convert(TINY / "draft", self.target, outdir=self.folder, outtypes=["bf16"])
        return written.path

    @cached_property
    def shape(self) -> tuple[Path, Path]:
        """A target and a drafter of a real size with random weights."""
        made = write_shape(find_shape(self.args.shape), self.folder)
        return made.target_path, made.draft_path

    @cached_property
    def prompts(self) -> list[Any]:
        """Held-out conversations, spread over the kinds."""
        lines = (TINY / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
        step = max(1, len(lines) // self.args.count)
        return [json.loads(line)["messages"] for line in lines[::step]][: self.args.count]

    @contextmanager
    def engine(self, *files: Path, **options: Any) -> Iterator[Engine]:
        """Load the tiny pair, or other files, where the checks are to run."""
        chosen = {"context": 1024, **self.on, **options}
        with dflash_gguf.load(*(files or (self.target, self.draft)), **chosen) as engine:
            yield engine

    @cached_property
    def plain(self) -> list[Sequence]:
        """The target's own answers, with the two best tokens at each place."""
        with self.engine(self.target) as engine:
            return [engine.generate(p, max_tokens=self.args.n, logprobs=2) for p in self.prompts]


def compare(bench: Bench, answers: list[Sequence]) -> dict[str, Any]:
    """Equal to the plain answers, but for places where the two best tokens are nearly equal."""
    gaps = []
    for own, answer in zip(bench.plain, answers, strict=True):
        pairs = zip(own.tokens, answer.tokens, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if at is not None:
            (_, best), (_, second) = own.logprobs[at].top
            gaps.append(best - second)
    return {
        "pass": max(gaps, default=0) <= NEAR,
        "answers": len(answers),
        "differ": len(gaps),
        "largest_gap": round(max(gaps, default=0), 4),
    }


def greedy_equality(bench: Bench, **options: Any) -> dict[str, Any]:
    """The text with a drafter is the text without, block by block."""
    found = {}
    with bench.engine(**options) as engine:
        for block in (4, 8, BLOCK):
            answers = [
                engine.generate(p, max_tokens=bench.args.n, block=block) for p in bench.prompts
            ]
            found[str(block)] = compare(bench, answers)
    return {"pass": all(each["pass"] for each in found.values()), "blocks": found}


def partial_offload(bench: Bench) -> dict[str, Any]:
    """Some layers of both models on the GPU, the others not."""
    return greedy_equality(bench, gpu_layers=2, draft_gpu_layers=1)


def many_at_once(bench: Bench) -> dict[str, Any]:
    """Eight answers together are those alone."""
    waiting, running = list(enumerate(bench.prompts)), {}
    done: dict[int, Sequence] = {}
    with bench.engine(sequences=8) as engine:
        while waiting or engine.busy:
            while waiting and engine.free:
                number, prompt = waiting.pop(0)
                running[number] = engine.start(prompt, max_tokens=bench.args.n, block=BLOCK)
            engine.step()
            done |= {i: answer for i, answer in running.items() if answer.finish_reason}
    return compare(bench, [done[i] for i in range(len(bench.prompts))])


def cancelling(bench: Bench) -> dict[str, Any]:
    """A cancelled answer leaves no trace in the next."""
    with bench.engine() as engine:
        answers = []
        for rounds, prompt in enumerate(bench.prompts):
            leaver = engine.start(list(range(300)), ignore_end=True)
            for _ in range(rounds % 5):
                engine.step()
            engine.cancel(leaver)
            answers.append(engine.generate(prompt, max_tokens=bench.args.n, block=BLOCK))
    return compare(bench, answers)


def drafts_of_pytorch(bench: Bench) -> dict[str, Any]:
    """Draft logits of 64 blocks against reference.npz, with each of the three masks."""
    with np.load(TINY / "reference.npz") as arrays:
        reference = dict(arrays)
    return {
        "pass": all(
            (found := {m: _masked(bench, reference, m) for m in MASKS})[m]["pass"] for m in MASKS
        ),
        "masks": found,
    }


def _masked(bench: Bench, reference: dict[str, Any], mask: str) -> dict[str, Any]:
    cosines, same = [], []
    with bench.engine(context=512, causal=MASKS[mask], prefix_memory=0) as engine:
        parts = engine._parts
        assert parts is not None
        blocks = zip(
            reference["block_text"],
            reference["block_anchor"],
            reference[f"logits_{mask}"],
            strict=True,
        )
        for text, anchor, logits in islice(blocks, bench.args.blocks):
            start = reference["text_start"][text]
            tokens = reference["ids"][start : start + anchor + 1].tolist()
            # one token wanted: the answer ends with the prefill, and the caches stay until it is removed
            number = parts.session.add(tokens[:-1], max_tokens=1, block=BLOCK, stops=set())
            while not parts.session.step():
                pass
            drafter: Any = parts.drafter
            rows = drafter.block_logits(number, int(anchor), tokens[-1], BLOCK - 1)[1:].astype(
                np.float64
            )
            parts.session.remove(number)
            rows -= rows.mean(axis=1, keepdims=True)
            wanted = logits.astype(np.float64)
            lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted, axis=1)
            cosines += ((rows * wanted).sum(axis=1) / lengths).tolist()
            same += (rows.argmax(axis=1) == wanted.argmax(axis=1)).tolist()
    lowest, share = min(cosines), sum(same) / len(same)
    return {
        "pass": lowest > 0.999 and share >= 0.97,
        "lowest_cosine": round(lowest, 6),
        "same_best": round(share, 4),
    }


def accept_length(bench: Bench) -> dict[str, Any]:
    """Tokens per verify at block 16, near PyTorch's, with caches of f16 and q8_0."""
    report = json.loads((TINY / "report.json").read_text(encoding="utf-8"))
    expected = report["accept"]["trained"]["all"]["accept_length"]
    found = {}
    for kv in ("f16", "q8_0"):
        with bench.engine(kv_type=kv) as engine:
            stats: list[Any] = [
                engine.generate(p, max_tokens=3 * bench.args.n, block=BLOCK).stats
                for p in bench.prompts
            ]
        drafting = sum(s.drafting_rounds for s in stats)
        found[kv] = round(1 + sum(s.accepted for s in stats) / drafting, 3)
    # the prompts are a part of the report's, and greedy texts end otherwise at near ties
    good = found["f16"] >= 0.8 * expected and found["q8_0"] >= 0.97 * found["f16"]
    return {"pass": good, "pytorch": expected, "accept_length": found}


def speed_tiny(bench: Bench) -> dict[str, Any]:
    """Decode speed with the drafter over without, interleaved; for information."""
    with bench.engine() as engine, bench.engine(bench.target) as plain:
        return {"pass": True, **_speeds(bench, plain, engine, bench.prompts[:6], bench.args.n)}


def speed_shape(bench: Bench) -> dict[str, Any]:
    """The same with a pair of a real size, and drafts accepted as often as real ones are."""
    target, draft = bench.shape
    n = bench.args.n if not bench.args.cpu else 24
    with (
        bench.engine(target, draft, simulate=Simulation()) as engine,
        bench.engine(target) as plain,
    ):
        found = _speeds(bench, plain, engine, [[i % 5000 + 100 for i in range(64)]], n)
    fastest = max(found["ratios"].values())
    # on a CPU the drafter's own work may be too much
    return {"pass": fastest > 1 or bench.args.cpu, "shape": bench.args.shape, **found}


def _speeds(
    bench: Bench, plain: Engine, engine: Engine, prompts: list[Any], n: int
) -> dict[str, Any]:
    def speed(which: Engine, block: int) -> float:
        answers = [which.generate(p, max_tokens=n, block=block, ignore_end=True) for p in prompts]
        stats: list[Any] = [answer.stats for answer in answers]
        return float(sum(s.emitted - 1 for s in stats) / sum(s.decode_seconds for s in stats))

    own, ratios = [], {}
    for block in (4, 8, BLOCK):
        pairs = [(speed(plain, 1), speed(engine, block)) for _ in range(1 + bench.args.pairs)][1:]
        own += [alone for alone, _ in pairs]
        ratios[str(block)] = round(statistics.median(fast / alone for alone, fast in pairs), 3)
    return {"plain_tok_s": round(statistics.median(own), 1), "ratios": ratios}


_SMALL = 6 << 20  # bytes: graphs and the like, which matter with small files only


def memory_plan(bench: Bench) -> dict[str, Any]:
    """What the plan says against what is taken on the devices."""
    files = bench.shape if bench.args.shape != "none" else (bench.target, bench.draft)
    # one width, so that there are as many snapshots as are planned
    options = {"context": 4096, "sequences": 4, "prefix_memory": 0, "block": 16}
    with bench.engine() as engine:  # what a process takes once
        engine.generate([1, 2, 3], max_tokens=9)
    before = _taken()
    with bench.engine(*files, **options) as engine:
        prompts = [[1 + (7 * i + s) % 250 for i in range(3900)] for s in range(4)]
        answers = [engine.start(prompt, ignore_end=True) for prompt in prompts]
        while max(len(answer.tokens) for answer in answers) < 150:
            engine.step()  # all are there, and nearly full
        taken = _taken() - before
        plan: Any = engine.plan
        places = [place for place in plan.places if place != "host"]
        planned = sum(plan.at(place) for place in places)
    ratio = planned / max(taken, 1)
    return {
        "pass": abs(planned - taken) <= max(0.05 * taken, _SMALL),
        "planned": planned,
        "taken": taken,
        "ratio": round(ratio, 3),
        "places": places,
    }


def _taken() -> int:
    return sum(d.memory_total - d.memory_free for d in devices() if "gpu" in d.kind.lower())


def main() -> int:
    """Run the checks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--cpu", action="store_true", help="run on the CPU, to test this script")
    parser.add_argument("--count", type=int, default=24, help="prompts")
    parser.add_argument("-n", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--blocks", type=int, default=64, help="of the reference, per mask")
    parser.add_argument("--pairs", type=int, default=3, help="of runs, per speed")
    parser.add_argument("--shape", default=None, help="a name `dflash-gguf shape` knows, or none")
    args = parser.parse_args()
    args.shape = args.shape or ("none" if args.cpu else "Qwen3.5-0.8B")
    gpus = [device for device in devices() if "gpu" in device.kind.lower()]
    say(
        check="machine",
        llama_cpp_python=LLAMA_CPP_PYTHON,
        devices=[f"{d.name}: {d.description} ({d.backend})" for d in devices()],
        system=core().system_info().strip(),
        **{"pass": bool(gpus) or args.cpu},
    )
    if not gpus and not args.cpu:
        say(
            failed=["machine"],
            hint="no GPU backend is compiled in; README.md says how to build one",
        )
        return 1
    checks: list[Callable[[Bench], dict[str, Any]]] = [
        greedy_equality,
        many_at_once,
        cancelling,
        drafts_of_pytorch,
        accept_length,
        speed_tiny,
    ]
    # on the host, tests/test_memory.py compares the two
    checks += [] if args.cpu else [partial_offload, memory_plan]
    checks += [] if args.shape == "none" else [speed_shape]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        for check in checks:
            start = time.monotonic()
            try:
                found = check(bench)
            except Exception as error:  # noqa: BLE001 (the other checks go on)
                found = {"pass": False, "error": f"{type(error).__name__}: {error}"}
            say(check=check.__name__, **found, seconds=round(time.monotonic() - start, 1))
            failed += [] if found["pass"] else [check.__name__]
    say(passed=len(checks) - len(failed), failed=failed)
    return 1 if failed else 0


def say(**line: Any) -> None:
    """Print one JSON line."""
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())

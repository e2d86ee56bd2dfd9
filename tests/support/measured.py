"""Made-up measurements whose figures can be reckoned by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dflash_gguf.bench.records import ArmFacts, Bench, Cell, Turn

BASE = ArmFacts("base", "ar", None, "dflash-gguf")
MTP3 = ArmFacts("mtp-3", "mtp", 3, "llama-server", {"version": "b1", "n-max": "3"})
WIDE4 = ArmFacts("wide-4", "dflash", 4, "dflash-gguf")
WIDE8 = ArmFacts("wide-8", "dflash", 8, "dflash-gguf")
AUTO = ArmFacts("auto", "dflash", "auto", "dflash-gguf")

FACTS: dict[str, str | int | float | bool] = {
    "date": "2026-01-02 03:04 UTC",
    "simulated": False,
    "machine.cpu": "Some CPU",
    "machine.cores": 2,
    "machine.memory": "8.0 GiB",
    "machine.os": "Linux 6 x86_64",
    "machine.devices": "CPU",
    "threads": 2,
    "target.file": "t.gguf",
    "target.size": "12.0 MB",
    "target.types": "Q8_0+F32",
    "draft.file": "d.gguf",
    "draft.types": "BF16",
    "version": "0.1.0",
    "revision": "0123abc",
    "llama.cpp": "0c1e57098",
    "python": "3.11.1",
    "settings.max_tokens": 64,
}


def turn(number: int = 0, tokens: int = 10, rounds: int | None = None, **more: Any) -> Turn:
    """An answer of `tokens` that began after 0.5 s and ended after 1."""
    values: dict[str, Any] = {
        "workload": "w",
        "question": number,
        "turn": 0,
        "prompt_tokens": 5,
        "completion_tokens": tokens,
        "text": f"answer {number}",
        "finish_reason": "stop",
        "start": 0.0,
        "first": 0.5,
        "last": 1.0,
        "rounds": rounds,
    }
    return Turn(**(values | more))


def cell(
    arm: ArmFacts,
    run: int,
    speed: float,
    *turns: Turn,
    workload: str = "w",
    concurrency: int = 1,
    **more: Any,
) -> Cell:
    """A cell of this throughput; with one answer of 10 tokens if none is given."""
    answers = tuple(replace(each, workload=workload) for each in turns or (turn(),))
    seconds = sum(each.completion_tokens for each in answers) / speed
    return Cell(arm.name, workload, concurrency, run, answers, seconds, **more)


def bench(*cells: Cell, arms: tuple[ArmFacts, ...] = (), **facts: Any) -> Bench:
    """A measurement of these cells; by default of the arms above that stand in them."""
    named = {each.arm for each in cells}
    known = tuple(arm for arm in (BASE, MTP3, WIDE4, WIDE8, AUTO) if arm.name in named)
    return Bench({**FACTS, **facts}, arms or known, tuple(cells), "ab" * 32)


def cards() -> Bench:
    """Two workloads, two concurrencies, three runs after a warm-up, of a baseline, MTP and two widths."""
    arms = ((BASE, 100.0, None), (MTP3, 200.0, 4), (WIDE4, 250.0, 5), (WIDE8, 300.0, 2))
    cells = []
    for run in range(4):
        for workload, slower in (("gsm8k", 1.0), ("mbpp", 2.0)):
            for concurrency in (1, 8):
                for arm, speed, rounds in arms:
                    place = (4, 2, 0)
                    told: dict[str, Any] = (
                        {
                            "drafted": 12,
                            "accepted": 6,
                            "drafted_at": (4, 4, 4),
                            "accepted_at": place,
                        }
                        if rounds
                        else {}
                    )
                    answer = turn(0, 10, rounds, **told)
                    # the machine is half as fast in every second run, and the warm-up is far off
                    pace = (0.01 if run == 0 else 1.0 if run % 2 else 0.5) * concurrency / slower
                    cells.append(
                        cell(
                            *(arm, run, speed * pace, answer),
                            workload=workload,
                            concurrency=concurrency,
                            shares={"verify": 3.0, "draft": 1.0} if rounds else {},
                            peak_memory=run << 20,
                        )
                    )
    return bench(*cells)

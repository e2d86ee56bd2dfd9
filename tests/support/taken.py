"""Load a pair in a process of its own, fill it, and print what it took in memory beside what was planned.

Run as `python taken.py OPTIONS`, a JSON object: target, draft, fill, and options of `load`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dflash_gguf
from dflash_gguf._native import core


def resident() -> int:
    """Bytes of this process in memory, pages of files included."""
    core().own_memory()  # gives free memory back first
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def run(target: str, draft: str | None, fill: int, **options: Any) -> dict[str, int]:
    """Return bytes: taken, planned, and what of the plan only grows with use."""
    with dflash_gguf.load(target, draft, context=256, threads=1, block=2) as engine:
        engine.generate([1, 2, 3], max_tokens=9, ignore_end=True)  # Python's own modules are in
    before = resident()
    with dflash_gguf.load(target, draft, **options) as engine:
        at_load = resident() - before
        if fill:
            prompts = [[1 + (7 * i + s) % 250 for i in range(fill)] for s in range(engine.free)]
            answers = [engine.start(prompt, ignore_end=True) for prompt in prompts]
            room = engine.n_ctx - fill
            while max(len(answer.tokens) for answer in answers) < room - 20:
                engine.step()  # all are still there, and nearly full
        plan = engine.plan
        assert plan is not None
        later = sum(line.size for line in plan.lines if line.grows)
        rounds = plan.of("target buffers", "draft buffers", "target outputs", "draft outputs")
        return {
            "at_load": at_load,
            "taken": resident() - before,
            "planned": plan.total,
            "planned_at_load": plan.total - later - rounds - plan.of("layer inputs"),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(**json.loads(sys.argv[1]))))

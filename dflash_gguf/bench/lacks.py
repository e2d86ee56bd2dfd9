"""What a measurement lacks that was cut: said wherever it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .records import Bench

_STATES = {
    "interrupted": "Interrupted",
    "running": "Not ended (it still runs, or its process was killed)",
}


def lacks(bench: Bench, names: Mapping[str, str]) -> str:
    """Return a line of what was planned and is not there, or "" for a measurement that went to its end.

    What an arm lacks that failed stands among the failures.

    Args:
        names: of the arms.
    """
    if bench.state == "complete":
        return ""
    said = _STATES[bench.state]
    plan = bench.plan
    if plan is None:
        return f"{said}."
    failed = {failure.arm for failure in bench.failures}
    arms = [arm.name for arm in bench.arms if arm.name not in failed]
    runs = Counter((c.workload, c.concurrency, c.arm) for c in bench.cells if c.run > 0)
    missing = []
    for workload in plan.workloads:
        for concurrency in plan.concurrencies:
            have = {arm: runs[workload, concurrency, arm] for arm in arms}
            if not any(have.values()):
                missing.append(f"{workload} at {concurrency}: all")
            elif any(count < plan.runs for count in have.values()):
                few = [
                    f"{plan.runs - count} of {plan.runs} runs of {names.get(arm, arm)}"
                    for arm, count in have.items()
                    if count < plan.runs
                ]
                missing.append(f"{workload} at {concurrency}: {', '.join(few)}")
    total = len(bench.arms) * len(plan.workloads) * len(plan.concurrencies) * (plan.runs + 1)
    what = f"; missing: {'; '.join(missing)}" if missing else ""
    return f"{said}: {len(bench.cells)} of {total} runs, warm-ups included, were measured{what}."

"""The reference's own client (PyPI dflash, `benchmark openai`) measures a server; only its questions are ours.

About 5 seconds. It is installed without what it asks for (datasets, and that brings much): none of it is used here.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip(
    "dflash", reason="the reference is not installed: pip install --no-deps dflash==0.1.0"
)

STUBBED = """
from dflash import benchmark, cli
benchmark.load_and_process_dataset = lambda name: [{"turns": [f"What is {n} and {n}?"]} for n in range(4)]
cli.main()
"""


@pytest.mark.parametrize("reasoning", [[], ["--reasoning", "off"]])
def test_the_references_benchmark(base: str, reasoning: list[str]) -> None:
    asked = ["--model", "tiny", "--dataset", "gsm8k", "--base-url", base, "--max-new-tokens", "24"]
    done = subprocess.run(
        [sys.executable, "-c", STUBBED, "benchmark", "openai", *asked, "--num-prompts", "5", "--concurrency", "2", *reasoning],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = dict(re.findall(r"^([A-Z][a-z ]+): +([\d.,]+)", done.stdout, re.MULTILINE))
    assert 5 <= int(told["Output tokens"]) <= 5 * 24
    assert 1 <= float(told["Accept length"]) <= 9
    # what it counts: tokens by verifies, a prompt's own token among them
    assert int(told["Output tokens"]) >= int(told["Spec verify ct"]) + 5

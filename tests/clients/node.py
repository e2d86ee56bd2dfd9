"""Node, its modules and Chromium, if this machine has them; tests that need them say what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WAIT = 90.0  # seconds


def chromium() -> str:
    """Return the browser's program, or skip the test."""
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    return next(filter(None, found), None) or _missing("there is no Chromium")


def run_node(script: str, **environment: str) -> None:
    """Run a file of tests with node's own runner, or skip the test; its output shows if one fails."""
    node = shutil.which("node")
    if node is None or _version(node) < 20:
        _missing("there is no node of version 20 or newer")
    if not (HERE / "node_modules" / "openai").is_dir():
        _missing("tests/clients/node_modules is not there: run 'make clients'")
    variables = {**os.environ, "NO_PROXY": "127.0.0.1", **environment}
    done = subprocess.run(
        [node, "--test", "--test-reporter=spec", str(HERE / script)],
        cwd=HERE,
        env=variables,
        timeout=WAIT,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def _version(node: str) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return int(said.strip().lstrip("v").split(".")[0] or 0)


def _missing(what: str) -> str:
    if os.environ.get("CLIENTS_REQUIRED") == "1":  # as `make browser-test` and CI say it
        pytest.fail(f"{what}; CLIENTS_REQUIRED says that it must be")
    pytest.skip(what)

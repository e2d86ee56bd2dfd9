"""Checks in a process of their own, which a crash of native code ends alone.

The child prints a JSON document a line: {"begins": check} or a finding's fields.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from .findings import FAULT, Check, Finding, fault, findings_of, note

# the same modules as this process has, whatever folder it was started in
_START = "import sys; sys.path[:] = {path!r}; from dflash_gguf.doctor.child import main; main()"
_REBUILD = "pip install --force-reinstall --no-cache-dir llama-cpp-python dflash-gguf"
_ILLEGAL = "the processor lacks instructions that it was compiled for"


def run_child(
    subject: str, *arguments: str, begins: Callable[[str], None] = lambda _check: None
) -> Iterator[Finding]:
    """Yield what the checks of a subject ("native" or "pair") find; a crash is a finding too.

    `begins` is called with each check's name as it begins.
    """
    code = _START.format(path=[path or os.getcwd() for path in sys.path])  # noqa: PTH109
    current = subject
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", code, subject, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            for line in process.stdout or []:
                document = json.loads(line)
                if "begins" in document:
                    current = document["begins"]
                    begins(current)
                else:
                    yield Finding(**document)
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if status:
            yield _crash(current, status, errors)


def _crash(check: str, status: int, errors: IO[bytes]) -> Finding:
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    said = f" ({lines[-1][-300:]})" if lines else ""
    if status > 0:
        return fault(
            check, f"the check ended with exit code {status}{said}", f"reinstall: {_REBUILD}"
        )
    name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
    text = f"the check was ended by {name}{said}"
    if -status == signal.SIGILL:
        return fault(check, f"{text}: {_ILLEGAL}", f"build it here: {_REBUILD}")
    if -status == signal.SIGKILL:
        return fault(
            check,
            f"{text}, perhaps by the system for want of memory",
            "give a smaller context (-c), or take a smaller model",
            4,
        )
    return fault(
        check, text, f"reinstall: {_REBUILD}; if it stays, please report it with this line"
    )


def main() -> None:
    """Do the checks of the subject in sys.argv."""
    subject, *arguments = sys.argv[1:]
    # what native code prints is none of ours
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    checks: dict[str, Check] = {}
    with suppress(KeyboardInterrupt):
        if subject == "native":
            from . import native

            checks = {"llama.cpp": native.library, "devices": native.devices}
        else:
            from . import pair_checks

            target, draft, context = arguments
            pair = pair_checks.PairChecks(
                Path(target), Path(draft) if draft else None, int(context)
            )
            checks = pair.checks()
        broken = False
        for name, look in checks.items():
            if broken:  # it would only fail for the same reason
                _send(out, asdict(note(name, "not looked at, for the fault above")))
                continue
            _send(out, {"begins": name})
            for finding in findings_of(name, look):
                _send(out, asdict(finding))
                broken |= finding.state == FAULT


def _send(out: IO[str], document: dict[str, object]) -> None:
    print(json.dumps(document), file=out, flush=True)

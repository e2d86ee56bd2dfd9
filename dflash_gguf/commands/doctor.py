"""`dflash-gguf doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._fetched import complete_model

if TYPE_CHECKING:
    from ..doctor.findings import Finding


def doctor(
    command: typer.Context,
    target: Annotated[
        Path | None,
        typer.Option(
            "--target",
            "-m",
            "--model",
            help="Check this target too: a GGUF, or user/repo[:QUANT].",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft",
            "-md",
            "--draft-model",
            help="And this drafter with it, as of `run`.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    context: Annotated[
        int,
        typer.Option("--ctx-size", "-c", min=0, help="Context to plan memory for; 0: as of `run`."),
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check the installation, the machine and a pair, and say what to do about each finding.

    Of a pair: whether the two fit, the memory plan, and a block that is drafted and verified. Exit code 0, or the
    worst fault's: 1 something is broken, 3 the models are or do not fit, 4 memory or devices are lacking.

    Examples:
        dflash-gguf doctor
        dflash-gguf doctor -m Qwen3.5-9B.gguf -md Qwen3.5-9B-DFlash-Q5_K_M.gguf
    """
    from ..doctor.findings import exit_code
    from ..errors import UsageError
    from ..terminal import write

    if draft is not None and target is None:
        text = "--draft is given without --target; expected both, or the target alone"
        raise UsageError(text)
    commands: dict[str, Any] = getattr(command.find_root().command, "commands", {})
    findings = []
    for finding in _findings(commands, target, draft, context):
        findings.append(finding)
        if not json:
            write(finding.render())
    code = exit_code(findings)
    if json:
        import json as encoder
        from dataclasses import asdict

        from .. import __version__

        document = {
            "version": __version__,
            "findings": [asdict(finding) for finding in findings],
            "exit_code": code,
        }
        write(encoder.dumps(document, indent=2) + "\n")
    raise typer.Exit(code)


def _findings(
    commands: dict[str, Any], target: Path | None, draft: Path | None, context: int
) -> Iterator[Finding]:
    from ..doctor import installation, machine
    from ..doctor.child import run_child
    from ..doctor.findings import FAULT, findings_of, note

    yield from findings_of("python", installation.python)
    yield from findings_of("packages", installation.packages)
    yield from findings_of("extras", installation.extras)
    yield from findings_of("config", lambda: installation.config(commands))
    broken = False
    for finding in run_child("native"):
        broken |= finding.state == FAULT
        yield finding
    yield from findings_of("cores", machine.cores)
    yield from findings_of("memory", machine.host_memory)
    yield from findings_of("large pages", machine.huge_pages)
    yield from findings_of("disk", machine.disk)
    if target is not None and broken:
        yield note("pair", "not looked at, for the fault of llama.cpp above")
    elif target is not None:
        yield from _pair(target, draft, context)


def _pair(target: Path, draft: Path | None, context: int) -> Iterator[Finding]:
    from ..doctor.child import run_child
    from ..doctor.findings import findings_of

    found: list[tuple[Path, Path | None]] = []

    def look() -> Iterator[Finding]:
        from ._fetched import fetched

        found.append(fetched(target, draft))
        return iter(())

    yield from findings_of("names", look)
    for path, drafter in found:
        given = "" if drafter is None else str(drafter.absolute())
        yield from run_child("pair", str(path.absolute()), given, str(context), begins=_say_block)


def _say_block(check: str) -> None:
    """Say on a terminal what takes long."""
    import sys

    from ..terminal import say

    if check in {"block", "answer"} and sys.stderr.isatty():
        say("loading the models ...")

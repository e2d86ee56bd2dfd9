"""BENCHMARKS.md and the run files it is made from.

    python benchmarks/report.py --server llama-server            # measure all, then write BENCHMARKS.md
    python benchmarks/report.py --server llama-server tiny 9b    # measure these sections, then write it
    python benchmarks/report.py --render                         # write it from the run files as they are
    python benchmarks/report.py --list                           # sections, and the minutes they take

A section is measured by the commands that BENCHMARKS.md shows, one after the other, and its file in benchmarks/runs
replaced when all of them have ended well. Nobody else should use the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from run_files import SectionRun, StepRun, read_run, write_run
from sections import SECTIONS, SERVER, Section, Step

from dflash_gguf.bench.facts import machine, revision, versions
from dflash_gguf.bench.output import md_table
from dflash_gguf.hardware import default_threads

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "benchmarks" / "runs"
REPORT = ROOT / "BENCHMARKS.md"
DEMO = ROOT / "build" / "demo"
# the package that is installed, not the folder of its source
COMMAND = [sys.executable, "-P", "-m", "dflash_gguf"]
KEPT = ROOT / "build" / "benchmarks" / "failed.txt"

_SAID = ("Machine: ", "Versions: ")  # notes whose facts stand above a section
_INTRO = """\
# Benchmarks

Every figure here is from a run file in `benchmarks/runs`, and this page is made from those files alone:

    make benchmarks LLAMA_SERVER=build/bin/llama-server          # measure everything and write this page
    make benchmarks LLAMA_SERVER=... only=tiny                   # one section, or several with spaces between
    python benchmarks/report.py --render                         # write the page again

Protocol, where a section does not say otherwise: greedy decoding; all arms of a table are measured in one run, in turns,
each run beginning with another arm; one warm-up is dropped; medians. Texts of greedy arms are compared, and a section
whose counts do not add up is not written. Where acceptance is **simulated**, titles say so: its times are real, its texts
are nobody's. Absolute figures are those of the machine named; ratios carry over better.

Commands are run in a clone whose package is installed; `llama-server` is built from the llama.cpp that llama-cpp-python
0.3.36 packages, with the same options; the draft files are those that `make demo` converts.
"""


class Failed(Exception):
    """A command of a section that did not end well, in one line."""


def measure(section: Section, server: str) -> SectionRun:
    """Run a section's commands. Raises Failed."""
    steps = tuple(_step(step, server) for step in section.steps)
    about, known = machine(), versions()
    return SectionRun(
        section=section.name,
        revision=revision(),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=", ".join(
            (
                str(about["machine.cpu"]),
                f"{about['machine.cores']} cores",
                str(about["machine.memory"]),
                str(about["machine.os"]),
                f"devices {about['machine.devices']}",
                f"threads {default_threads()}",
            )
        ),
        versions=f"dflash-gguf {known['version']}, llama.cpp {known['llama.cpp']}, Python {known['python']}",
        steps=steps,
    )


def _step(step: Step, server: str) -> StepRun:
    if SERVER in step.words and not server:
        text = "it is measured beside llama-server; name one with --server (make: LLAMA_SERVER=...)"
        raise Failed(text)
    shown = command_line(step)
    programs = {"python": [sys.executable], "dflash-gguf": COMMAND}
    words = [
        *programs[step.words[0]],
        *(server if word == SERVER else word for word in step.words[1:]),
    ]
    print(f"$ {shown}", file=sys.stderr, flush=True)
    began = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode != 0:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(done.stdout, encoding="utf-8")
        text = (
            f"status {done.returncode} of: {shown} (what it printed is in {KEPT.relative_to(ROOT)})"
        )
        raise Failed(text)
    return StepRun(shown, seconds, tuple(_printed(step, done.stdout)))


def _printed(step: Step, text: str) -> Iterator[dict[str, Any]]:
    if step.document:
        yield json.loads(text)
    else:
        yield from (json.loads(line) for line in text.splitlines() if line.strip())


def command_line(step: Step) -> str:
    """Return a step's command as people would type it."""
    return " ".join("llama-server" if word == SERVER else word for word in step.words)


def render(runs: Sequence[SectionRun]) -> str:
    """Return BENCHMARKS.md. Raises ValueError for a run that its section cannot show."""
    parts = [_INTRO]
    sections = {section.name: section for section in SECTIONS}
    for run in runs:
        parts += _section(sections[run.section], run)
    return "\n".join(parts)


def _section(section: Section, run: SectionRun) -> Iterator[str]:
    minutes = sum(step.seconds for step in run.steps) / 60
    yield f"## {section.title}\n\n{section.text}\n"
    yield (
        f"Measured {run.date} in {minutes:.1f} minutes at revision {run.revision or 'unknown'}; {run.machine}; {run.versions}. "
        f"Run file: [benchmarks/runs/{section.name}.json](benchmarks/runs/{section.name}.json).\n"
    )
    if len(run.steps) != len(section.steps):
        text = (
            f"{section.name}: it was measured by other commands than it now has; measure it again"
        )
        raise ValueError(text)
    for step, found in zip(section.steps, run.steps, strict=True):
        yield f"    {found.command}\n"
        tables = step.tables(found.lines)
        # the same lines stand under every table of a command, and some of them above
        notes = dict.fromkeys(note for table in tables for note in table.notes)
        notes = {note: None for note in notes if not note.startswith(_SAID)}
        yield from (md_table(table, heading="###", notes=False).rstrip() + "\n" for table in tables)
        if notes:
            yield "\n".join(f"- {note}" for note in notes) + "\n"


def known_runs() -> list[SectionRun]:
    """Read all run files, in the order of the sections."""
    paths = [RUNS / f"{section.name}.json" for section in SECTIONS]
    return [read_run(path) for path in paths if path.is_file()]


def prepare() -> None:
    """Convert the tiny pair's drafter, as `make demo` does, unless it is there."""
    names = ("tiny-draft-BF16.gguf", "tiny-draft-Q5_K_M.gguf")
    if not all((DEMO / name).is_file() for name in names):
        words = [
            "convert",
            "models/tiny/draft/model.safetensors",
            "--target",
            "models/tiny/target.gguf",
        ]
        words += ["--outdir", str(DEMO), "--force"]
        subprocess.run([*COMMAND, *words], cwd=ROOT, check=True)


def main() -> int:
    """Measure what is asked, write the page; the number of sections that failed decides the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [section.name for section in SECTIONS]
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(names))
    parser.add_argument("--server", default="", help="a built llama-server")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--list", action="store_true", help="name the sections")
    args = parser.parse_args()
    unknown = [name for name in args.sections if name not in names]
    if unknown:
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(names)}")
    if args.list:
        for section in SECTIONS:
            only = "" if section.unasked else " (when named)"
            print(f"{section.name:14} {section.minutes:4g} minutes{only}  {section.title}")
        return 0
    failed = 0 if args.render else _measure(args.sections, args.server)
    REPORT.write_text(render(known_runs()), encoding="utf-8")
    return 1 if failed else 0


def _measure(names: list[str], server: str) -> int:
    """Measure, each section by itself; return how many failed."""
    if server and (found := shutil.which(server)):
        server = str(Path(found).resolve())
    prepare()
    failed = 0
    for section in SECTIONS:
        if section.name not in names if names else not section.unasked:
            continue
        print(f"=== {section.name}: about {section.minutes:g} minutes", file=sys.stderr, flush=True)
        try:
            write_run(measure(section, server), RUNS / f"{section.name}.json")
        except (Failed, ValueError) as error:
            print(f"{section.name}: {error}", file=sys.stderr, flush=True)
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())

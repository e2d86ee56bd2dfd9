"""Examples of README.md and docs/, run as they stand, where the names of the real pair's files lead to the tiny one."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer

import dflash_gguf
from dflash_gguf.__main__ import app

from .support.command import command
from .support.tiny import ROOT, Tiny

README = ROOT.parent.parent / "README.md"
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]
# what the reader is said to have; everything else must come from the examples themselves
FILES = {
    "Qwen3.5-9B.gguf": "target.gguf",
    "model.safetensors": "draft/model.safetensors",
    "config.json": "draft/config.json",
}
NAMED = {"dflash_gguf": dflash_gguf, "engine": dflash_gguf.Engine, "stats": dflash_gguf.Stats}
OTHERS = {"--spec-type"}  # of mainline's tools


def blocks(language: str) -> list[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def calls() -> list[list[str]]:
    """The `dflash-gguf` lines of shell blocks, as arguments."""
    lines = [
        shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()
    ]
    return [line[1:] for line in lines if line[:1] == ["dflash-gguf"]]


def spans() -> list[str]:
    """What is set as code inside the text, but for the figures, whose options are the benchmarks' own."""
    found: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = re.sub(
            r"^## (Figures|How fast|The tiny pair's drafts)\n.*?(?=^## |\Z)",
            "",
            text,
            flags=re.MULTILINE | re.DOTALL,
        )
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        found += re.findall(r"`([^`]+)`", text)
    return found


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), (
                f"{page.name}: {link}"
            )


@pytest.fixture(scope="module")
def folder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader is: with the files that README.md asks for."""
    made = tmp_path_factory.mktemp("reader")
    for name, own in FILES.items():
        (made / name).symlink_to(tiny.target.parent / own)
    return made


@pytest.fixture(scope="module")
def converted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after the first of its lines."""
    cache = {"DFLASH_GGUF_CACHE": str(tmp_path_factory.mktemp("cache"))}
    done = command(*calls()[0], cwd=folder, env=cache)
    assert done.returncode == 0, done.stderr
    return folder


def test_there_are_examples() -> None:
    assert len(blocks("python")) >= 2
    assert [call[0] for call in calls()] == ["convert", "run", "run"]
    assert len(spans()) > 60


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_runs(converted: Path, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[number]],
        cwd=converted,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 40


@pytest.mark.parametrize("call", calls()[1:], ids=" ".join)
def test_commands_run(converted: Path, call: list[str]) -> None:
    done = command(*call, "--no-think", cwd=converted, stdin="hi\n")  # else noise thinks to the end
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "tok/s" in done.stderr


def test_commands_in_the_text_are_understood() -> None:
    """As far as the command line reads them: nothing is opened."""
    found = [shlex.split(span)[1:] for span in spans() if span.startswith("dflash-gguf ")]
    assert len(found) >= 4
    group: Any = typer.main.get_command(app)
    for call in found:
        name, own, rest = group.resolve_command(group.make_context("dflash-gguf", call), call)
        # upper-case words stand for what the reader puts there
        values = [
            "q8_0" if word == "TYPE" else str(README) if word.isupper() else word for word in rest
        ]
        own.make_context(name, values)


def test_options_in_the_text_exist() -> None:
    group: Any = typer.main.get_command(app)
    own = {
        name
        for each in (group, *group.commands.values())
        for param in each.params
        for name in (*param.opts, *param.secondary_opts)
    }
    said = [span for span in spans() if not span.startswith(("python ", "pip "))]
    found = set(chain.from_iterable(re.findall(r"(?<![\w-])--?[a-z][\w-]*", span) for span in said))
    assert len(found) > 20
    assert found - own == OTHERS


def test_names_in_the_text_exist() -> None:
    found = [
        (of, name)
        for span in spans()
        for of, name in re.findall(r"\b(dflash_gguf|engine|stats)\.(\w+)", span)
    ]
    assert len(found) > 5
    assert [f"{of}.{name}" for of, name in found if not hasattr(NAMED[of], name)] == []

"""BENCHMARKS.md is what its run files say, and those name no place of a machine."""

from __future__ import annotations

import getpass
import importlib
import json
import platform
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .support.command import command

ROOT = Path(__file__).parent.parent
RUNS = sorted((ROOT / "benchmarks" / "runs").glob("*.json"))


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("report")


@pytest.fixture
def run_files(report: ModuleType) -> ModuleType:
    return importlib.import_module("run_files")


def test_the_page_is_what_the_run_files_say(report: ModuleType) -> None:
    assert RUNS
    same = report.render(report.known_runs()) == report.REPORT.read_text(encoding="utf-8")
    assert same, "write it again: python benchmarks/report.py --render"


def doubled(value: Any) -> Any:
    """All times and speeds of a run file twice what they are."""
    if isinstance(value, float):
        return 2 * value
    if isinstance(value, dict):
        return {key: doubled(each) for key, each in value.items()}
    return [doubled(each) for each in value] if isinstance(value, list) else value


def test_the_page_follows_every_command(report: ModuleType) -> None:
    for run in report.known_runs():
        text = report.render([run])
        for number, step in enumerate(run.steps):
            changed = replace(step, lines=tuple(doubled(line) for line in step.lines))
            steps = (*run.steps[:number], changed, *run.steps[number + 1 :])
            other = report.render([replace(run, steps=steps)])
            assert (other != text) == bool(step.lines), step.command


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_run_file_names_no_place(path: Path, run_files: ModuleType) -> None:
    text = path.read_text(encoding="utf-8")
    run_files.check_places(text)
    for private in (str(ROOT), str(Path.home()) + "/", platform.node()):
        assert private not in text
    if len(getpass.getuser()) > 4:
        assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_run_is_of_a_section_and_its_commands(path: Path, report: ModuleType) -> None:
    run = report.read_run(path)
    (section,) = [section for section in report.SECTIONS if section.name == path.stem]
    assert [step.command for step in run.steps] == [
        report.command_line(step) for step in section.steps
    ]
    assert all(step.seconds > 0 for step in run.steps)
    assert run.date
    assert run.machine


def test_what_is_simulated_says_so(report: ModuleType) -> None:
    for run in report.known_runs():
        text = report.render([run]).partition("\n## ")[2]
        for step in run.steps:
            told = json.dumps(step.lines)
            if "--simulate" in step.command:
                assert '"simulated": true' in told
                titles = [line for line in text.splitlines() if line.startswith("### ")]
                assert titles
                assert all("simulated" in title for title in titles)
            else:
                assert '"simulated": true' not in told


def test_commands_are_ones_that_there_are(report: ModuleType) -> None:
    """Scripts and options are looked for; what they do is not tried."""
    for section in report.SECTIONS:
        for step in section.steps:
            program, script, *words = step.words
            options = {word.partition("=")[0] for word in words if word.startswith("-")}
            if program == "python":
                text = (ROOT / script).read_text(encoding="utf-8")
                assert all(f'"{option}"' in text for option in options), (script, options)
            else:
                text = command(script, "--help").stdout
                assert all(re.search(rf"(?<![\w-]){option}\b", text) for option in options), options


@pytest.mark.parametrize(
    "text",
    [
        '"command": "/home/me/llama-server -m t.gguf"',
        '"error": "no /tmp/x/d.gguf"',
        '"url": "http://10.0.0.1:80"',
        "no answer of 127.0.0.1:8080",
        "--draft=/work/d.gguf",
    ],
)
def test_a_place_is_noticed(text: str, run_files: ModuleType) -> None:
    with pytest.raises(ValueError, match="would name a place"):
        run_files.check_places(text)


def test_words_with_a_slash_are_no_places(run_files: ModuleType) -> None:
    run_files.check_places(
        "1,000 tok/s of models/tiny/target.gguf (z-lab/dflash), 8/8, a / b, {x}/y/z"
    )


def _run(run_files: ModuleType, **step: Any) -> Any:
    values: dict[str, Any] = {
        "command": "x",
        "seconds": 1.234,
        "lines": ({"a": 1 / 3, "b": [1, None]},),
    }
    made = run_files.StepRun(**{**values, **step})
    return run_files.SectionRun("s", "r", "d", "m", "v", (made, made))


def test_a_run_file_is_read_as_it_was_written(tmp_path: Path, run_files: ModuleType) -> None:
    path = tmp_path / "runs" / "s.json"
    run_files.write_run(_run(run_files), path)
    found = run_files.read_run(path)
    assert found == _run(run_files, seconds=1.2, lines=({"a": 0.333333, "b": [1, None]},))
    # an object on each line, for those who compare versions
    assert path.read_text().count('\n{"a"') == 2
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"s\.json: it is no run file"):
        run_files.read_run(path)
    with pytest.raises(ValueError, match="would name a place"):
        run_files.write_run(_run(run_files, command="/home/me/x y"), path)
    assert path.read_text() == "{}"


def test_a_failed_command_leaves_the_run_file_alone(
    report: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (section,) = [section for section in report.SECTIONS if section.name == "busy"]
    (step,) = section.steps
    script = tmp_path / "script.py"
    monkeypatch.setattr(report, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept" / "failed.txt")
    monkeypatch.setattr(report, "prepare", lambda: None)

    def measure(text: str) -> int:
        script.write_text(text)
        words = ("python", str(script))
        mine = replace(section, steps=(replace(step, words=words),))
        monkeypatch.setattr(report, "SECTIONS", (mine,))
        monkeypatch.setattr(report, "command_line", lambda _: shlex.join(("python", script.name)))
        return int(report._measure(["busy"], ""))

    assert measure("import sys; print('{}'); sys.exit(3)") == 1
    assert not (tmp_path / "runs").exists()
    assert report.KEPT.read_text() == "{}\n"
    assert measure('print(\'{"drafts": true, "idle": 5.5}\')') == 0
    (run,) = report.known_runs()
    assert run.steps[0].lines == ({"drafts": True, "idle": 5.5},)
    assert "| yes | 5.5 |" in report.render([run])
    assert measure("print('no JSON')") == 1
    assert report.known_runs() == [run]


def test_sections_are_named_and_unknown_ones_refused(
    report: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["report.py", "--list"])
    assert report.main() == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [section.name for section in report.SECTIONS]
    monkeypatch.setattr(sys, "argv", ["report.py", "nothing"])
    with pytest.raises(SystemExit):
        report.main()
    assert "nothing: expected some of tiny" in capsys.readouterr().err

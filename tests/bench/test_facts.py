"""What a measurement says of machine, files and versions."""

from __future__ import annotations

import getpass
import json
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf import __version__
from dflash_gguf.bench import facts

from ..support.random_pairs import Pair


def _collected(pair: Pair, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "target": pair.target,
        "draft": pair.draft,
        "threads": None,
        "simulated": "",
        "settings": {"max_tokens": 7},
    }
    return facts.collect(**(values | more))


def test_facts_name_machine_files_and_versions(dense: Pair) -> None:
    found = _collected(dense, threads=3)
    assert found["target.file"] == dense.target.name
    assert found["target.bytes"] == dense.target.stat().st_size
    assert found["target.types"] == "F32"
    assert found["draft.file"] == dense.draft.name
    assert found["threads"] == 3
    assert found["settings.max_tokens"] == 7
    assert found["version"] == __version__
    assert "0c1e57098" in found["llama.cpp"]
    assert found["machine.cores"] >= 1
    assert re.fullmatch(r"[\d,]+\.\d GiB", found["machine.memory"])
    assert "CPU" in found["machine.devices"]
    assert found["machine.cpu"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", found["date"])


def test_simulation_is_a_fact(dense: Pair) -> None:
    assert _collected(dense)["simulated"] is False
    drawn = _collected(dense, simulated="some-curve")
    assert drawn["simulated"] is True
    assert drawn["simulated.curve"] == "some-curve"


def test_no_host_no_user_no_path(dense: Pair) -> None:
    text = json.dumps(_collected(dense))
    assert str(dense.target.parent) not in text
    assert str(Path.home()) not in text
    for private in (platform.node(), getpass.getuser()):
        # a word of its own: "root" may well stand in another one
        assert not re.search(rf"\b{re.escape(private)}\b", text)


def test_a_servers_files_are_not_ours_to_tell(dense: Pair) -> None:
    found = _collected(dense, target=None, draft=None)
    assert not [key for key in found if key.startswith(("target.", "draft."))]


def test_the_commonest_type_comes_first(dense: Pair, tmp_path: Path) -> None:
    assert facts.about_file(dense.draft)["types"] == "F32"


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@x.invalid"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed copy of the running Python files, from which the package claims to be installed."""
    folder = tmp_path / "a source"
    package = Path(facts.__file__).parents[1]
    shutil.copytree(
        *(package, folder / "dflash_gguf"),
        ignore=shutil.ignore_patterns("__pycache__", "*.so", "convert"),
    )
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", "x")
    monkeypatch.setattr(facts, "_origin", lambda: {"url": folder.as_uri(), "dir_info": {}})
    return folder


def test_a_revision_is_told_while_the_source_is_what_runs(source: Path) -> None:
    head = _git(source, "rev-parse", "--short=12", "HEAD")
    assert facts.revision() == head
    (source / "dflash_gguf" / "errors.py").write_text("changed")
    assert facts.revision() == f"{head}-dirty-other"
    _git(source, "commit", "-aqm", "y")
    assert facts.revision() == _git(source, "rev-parse", "--short=12", "HEAD") + "-other"


def test_what_measurements_write_is_no_change(source: Path) -> None:
    results = [source / "BENCHMARKS.md", source / "benchmarks" / "runs" / "tiny.json"]
    results[1].parent.mkdir(parents=True)
    for path in results:
        path.write_text("before")
    (source / "benchmarks" / "peers.py").write_text("before")
    _git(source, "add", ".")
    _git(source, "commit", "-qm", "results")
    for path in results:
        path.write_text("after")
    head = _git(source, "rev-parse", "--short=12", "HEAD")
    assert facts.revision() == head
    (source / "benchmarks" / "peers.py").write_text("after")
    assert facts.revision() == f"{head}-dirty"


def test_a_revision_that_pip_noted_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = {
        "url": "https://x.invalid/y",
        "vcs_info": {"vcs": "git", "commit_id": "0123456789" * 4},
    }
    monkeypatch.setattr(facts, "_origin", lambda: noted)
    assert facts.revision() == "012345678901"


def test_no_revision_without_a_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(facts, "_origin", lambda: {"url": tmp_path.as_uri()})
    assert facts.revision() == ""

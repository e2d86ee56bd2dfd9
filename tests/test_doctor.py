"""`dflash-gguf doctor` in real processes: sound and broken installations, machines and pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf import __version__
from dflash_gguf.doctor import machine, native

from .support.command import command
from .support.random_pairs import Pair

ALWAYS = {"python", "packages", "config", "cores", "disk"}


def told(
    *arguments: object, env: dict[str, str] | None = None
) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Return the exit code and the findings by check."""
    done = command("doctor", "--json", *arguments, env=env)
    assert done.stdout.startswith("{"), done.stderr
    document = json.loads(done.stdout)
    assert done.stderr == ""
    assert document["version"] == __version__
    assert document["exit_code"] == done.returncode
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in document["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    assert set(found) >= ALWAYS
    return done.returncode, found


def planted(folder: Path, code: str) -> dict[str, str]:
    """A fault that every Python begins with."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(folder)}


def installed(folder: Path, name: str, version: str, *requires: str) -> None:
    """Have importlib.metadata tell of a package."""
    lines = [f"Requires-Dist: {line}" for line in requires]
    extras = sorted({line.split('"')[1] for line in requires if "extra" in line})
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    made = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    made.mkdir(parents=True)
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (made / "METADATA").write_text("\n".join([*head, *lines, ""]))


def test_a_sound_pair(dense: Pair) -> None:
    code, found = told("-m", dense.target, "-md", dense.draft)
    assert code == 0
    assert not [
        check for check, all_of in found.items() for one in all_of if one["state"] == "fault"
    ]
    (library,) = found["libllama"]
    assert Path(library["facts"]["path"]).name.startswith("libllama")
    assert found["device"][0]["facts"]["name"] == "CPU"
    assert found["fit"][0]["facts"] == {"block": 8, "taps": [1, 3]}
    (plan,) = found["memory plan"]
    assert plan["facts"]["total"] == sum(line["size"] for line in plan["facts"]["lines"])
    (block,) = found["block"]
    assert block["facts"]["drafted"] == 7
    assert 0 <= block["facts"]["accepted"] <= 7
    assert found["text"][0]["state"] == "ok"
    assert len(found["text"][0]["facts"]["tokens"]) == 48
    (drafts,) = found["drafts"]
    assert drafts["facts"]["emitted"] == 48
    # of random weights hardly a draft is right, and nobody trained the drafter for this target
    assert (drafts["state"] == "note") == (drafts["facts"]["accepted"] == 0)


def test_for_people(dense: Pair) -> None:
    done = command("doctor", "-m", dense.target)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith(("ok     ", "note   ", "       do: ")) for line in lines)
    assert (
        f"ok     target: {dense.target.name}: qwen3, 4 layers of width 64, 262 tokens, "
        in done.stdout
    )
    assert lines[-1].startswith("ok     answer: the target writes: ")


def test_a_pair_that_does_not_fit(dense: Pair, hybrid: Pair) -> None:
    code, found = told("-m", dense.target, "-md", hybrid.draft)
    assert code == 3
    (fit,) = found["fit"]
    assert (fit["state"], fit["code"]) == ("fault", 3)
    assert "dflash.rope.dimension_sections" in fit["text"]
    assert fit["remedy"]
    for check in ("memory plan", "block"):
        assert found[check][0]["text"] == "not looked at, for the fault above"


@pytest.mark.parametrize("swapped", [True, False])
def test_files_that_are_no_pair(dense: Pair, tmp_path: Path, swapped: bool) -> None:
    if swapped:
        code, found = told("-m", dense.draft, "-md", dense.target)
        assert "it is a drafter (dflash)" in found["target"][0]["text"]
    else:
        code, found = told("-m", dense.target, "-md", tmp_path / "none.gguf")
        assert "none.gguf: it cannot be read" in found["draft"][0]["text"]
    assert code == 3


def test_memory_that_is_not_there(dense: Pair) -> None:
    code, found = told("-m", dense.target, "-md", dense.draft, "-c", 1_000_000_000)
    assert code == 4
    (plan,) = found["memory plan"]
    assert "a context of 1,000,000,000 tokens takes" in plan["text"]
    assert "tokens would fit (-c)" in plan["remedy"]


def test_a_name_that_cannot_be_had(tmp_path: Path) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    code, found = told("-m", "lab/Nothing:q4_0", env=offline)
    assert code == 3
    assert "HF_HUB_OFFLINE forbids to fetch it" in found["names"][0]["text"]


def test_a_drafter_alone_is_a_usage_error(dense: Pair) -> None:
    done = command("doctor", "-md", dense.draft)
    assert done.returncode == 2
    assert "--draft is given without --target" in done.stderr


REFUSE = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "{name}":
            raise ImportError("libcudart.so.13: cannot open shared object file")
sys.meta_path.insert(0, Broken())
"""
KILL = """
import os, sys
class Deadly:
    def find_spec(self, name, path=None, target=None):
        if name == "{name}":
            os.kill(os.getpid(), {signal})
sys.meta_path.insert(0, Deadly())
"""


@pytest.mark.parametrize("name", ["dflash_gguf._core", "llama_cpp", "numpy"])
def test_what_does_not_load(dense: Pair, tmp_path: Path, name: str) -> None:
    env = planted(tmp_path / "broken", REFUSE.format(name=name))
    code, found = told("-m", dense.target, env=env)
    assert code == 1
    (broken,) = found["llama.cpp"]
    assert "libcudart.so.13: cannot open shared object file" in broken["text"]
    assert "pip install --force-reinstall" in broken["remedy"]
    assert found["pair"][0]["text"] == "not looked at, for the fault of llama.cpp above"


@pytest.mark.parametrize(
    ("module", "signal", "check", "code", "words"),
    [
        ("llama_cpp", 4, "llama.cpp", 1, "was ended by SIGILL: the processor lacks instructions"),
        ("dflash_gguf.doctor.pair_checks", 9, "pair", 4, "by the system for want of memory"),
    ],
)
def test_native_code_that_crashes(
    dense: Pair, tmp_path: Path, module: str, signal: int, check: str, code: int, words: str
) -> None:
    env = planted(tmp_path / "broken", KILL.format(name=module, signal=signal))
    ended, found = told("-m", dense.target, env=env)
    assert ended == code
    assert words in found[check][0]["text"]
    assert found[check][0]["remedy"]


def test_another_llama_cpp_python(tmp_path: Path) -> None:
    installed(tmp_path, "llama-cpp-python", "0.3.35")
    code, found = told(env={"PYTHONPATH": str(tmp_path)})
    assert code == 1
    (broken,) = found["llama.cpp"]
    assert "0.3.35 is installed" in broken["text"]
    assert broken["remedy"] == "run 'pip install llama-cpp-python==0.3.36'"


def test_packages_and_extras(tmp_path: Path) -> None:
    asked = ["jinja2>=3.1.6", "numpy>=1.26", "rich (>=13.9)", "never-made>=2", "typer"]
    asked += [
        'huggingface_hub>=1.0; extra == "hub"',
        'typer>=999; extra == "serve"',
        'torch; extra == "train"',
    ]
    installed(tmp_path, "dflash-gguf", __version__, *asked)
    installed(tmp_path, "jinja2", "3.1.5")
    code, found = told(env={"PYTHONPATH": str(tmp_path)})
    assert code == 1
    faults = {one["text"]: one["remedy"] for one in found["packages"] if one["state"] == "fault"}
    assert faults == {
        "jinja2 3.1.5 is installed; expected >=3.1.6": 'pip install "jinja2>=3.1.6"',
        "never-made is not installed": 'pip install "never-made>=2"',
    }
    here, missing = found["extras"]
    assert here["text"] == "hub"
    assert missing["state"] == "note"
    assert missing["text"] == "serve is not installed: typer>=999"
    assert missing["remedy"] == 'pip install "dflash-gguf[serve]", if you want it'


def test_defaults_and_their_faults(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    env = {"DFLASH_GGUF_CONFIG": str(file), "DFLASH_GGUF_TEMPP": "1", "DFLASH_GGUF_TEMP": "0.5"}
    file.write_text("[run]\ntempp = 1\n")
    code, found = told(env=env)
    assert code == 1
    (broken,) = found["config"]
    assert "[run] has 'tempp'; expected perhaps temp" in f"{broken['text']}; {broken['remedy']}"
    assert command("run", "-m", "none.gguf", env=env).returncode == 2
    file.write_text("[run]\ntemp = 1\n")
    code, found = told(env=env)
    assert code == 0
    texts = [one["text"] for one in found["config"]]
    assert texts[0] == f"{file} sets temp of run"
    assert "DFLASH_GGUF_TEMP" in texts[1]
    assert texts[2] == "the variable DFLASH_GGUF_TEMPP sets no option"
    assert found["config"][2]["state"] == "note"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": ""}, None),
        ({}, None),
    ],
)
def test_limits_of_control_groups(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.cpu_quota(tmp_path) == quota


def test_fewer_cores_than_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda _group: 0.5)
    found = next(iter(machine.cores()))
    assert (found.state, found.remedy) == ("note", "give -t 1, or threads wait for each other")


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DFLASH_GGUF_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    ours, theirs = machine.disk()
    assert ours.state == "note"
    assert "set DFLASH_GGUF_CACHE" in ours.remedy
    assert theirs.state == "ok"
    monkeypatch.delenv("DFLASH_GGUF_CACHE")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    ours, theirs = machine.disk()
    assert (ours.state, ours.code) == ("fault", 4)
    assert theirs.state == "ok"


def no_home() -> Path:
    raise RuntimeError


def test_two_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(native.mapped("libllama") or ["one"]) <= 1
    monkeypatch.setattr(native, "mapped", lambda _name: ["/a/libllama.so", "/b/libllama.so"])
    found = next(iter(native.library()))
    assert found.state == "fault"
    assert found.text.startswith(
        "2 copies are loaded: /a/libllama.so, /b/libllama.so; expected one"
    )

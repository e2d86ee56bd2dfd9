"""`dflash-gguf` itself, `convert` and `devices`, in real processes."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_gguf import __version__, hardware
from dflash_gguf._native import LLAMA_CPP, LLAMA_CPP_PYTHON
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.pair import check_pair

from .support.command import COMMAND, command
from .support.random_pairs import Pair


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_quick(option: str) -> None:
    # CPU time: what other processes take of the cores must not count
    best = 60.0
    for _ in range(20):
        begun = _children_seconds()
        subprocess.run([*COMMAND, option], check=True, capture_output=True, cwd="/")
        best = min(best, _children_seconds() - begun)
        if best < 0.3:
            return
    pytest.fail(f"{option} takes {best:.2f} s at best of 20; expected under 0.3 s")


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = "import sys, dflash_gguf.__main__; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    heavy = {
        "numpy",
        "llama_cpp",
        "jinja2",
        "gguf",
        "safetensors",
        "prompt_toolkit",
        "dflash_gguf._core",
    }
    assert not heavy & set(result.stdout.split())


def test_help_names_every_command_and_option() -> None:
    overview = command("--help").stdout
    for name in ("convert", "run", "devices", "recipe"):
        assert name in overview
    wide = {"COLUMNS": "200", "TERM": "dumb"}
    help_of_run = command("run", "--help", env=wide).stdout
    for option in ("--target", "-m", "--draft", "-md", "--prompt", "-p", "--no-draft", "--block", "--max-tokens", "-n",
                   "--temp", "--ctx-size", "-c", "--threads", "-t", "-ngl", "-ngld", "-dev", "-devd", "--quiet", "-q"):  # fmt: skip
        assert f"{option} " in help_of_run or f"{option}," in help_of_run, option
    help_of_convert = command("convert", "--help", env=wide).stdout
    for option in (
        "--target",
        "--outtype",
        "--outdir",
        "--name",
        "--force",
        "--threads",
        "--quiet",
    ):
        assert option in help_of_convert


def test_the_version_is_the_packages() -> None:
    result = command("--version")
    assert (result.returncode, result.stdout) == (0, f"dflash-gguf {__version__}\n")


def test_devices_lists_what_is_compiled_in() -> None:
    result = command("devices")
    assert result.returncode == 0
    found = hardware.devices()
    assert found
    lines = result.stdout.splitlines()
    assert lines[0] == f"llama.cpp {LLAMA_CPP} (llama-cpp-python {LLAMA_CPP_PYTHON})"
    assert lines[1] == "backends compiled into llama.cpp: " + ", ".join(
        dict.fromkeys(device.backend for device in found)
    )
    features = hardware.build_features()
    assert {device.backend for device in found} >= set(features) >= {"CPU"}
    for backend, line in zip(features, lines[2:], strict=False):
        assert line == f"{backend} features: {hardware.features_line(features[backend])}"
    for device, line in zip(found, lines[2 + len(features) :], strict=True):
        assert line.startswith(f"{device.name}\t{device.kind}\t{device.description}\t")
    if hardware.core().supports_gpu_offload():
        assert result.stderr == ""
    else:
        assert "CMAKE_ARGS" in result.stderr
        assert "--no-cache-dir --force-reinstall llama-cpp-python==" in result.stderr


def test_devices_as_json() -> None:
    result = command("devices", "--json")
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert document["llama_cpp"] == LLAMA_CPP
    assert document["features"] == hardware.build_features()
    assert [device["name"] for device in document["devices"]] == [
        device.name for device in hardware.devices()
    ]
    assert document["gpu_offload"] == hardware.core().supports_gpu_offload()


def test_features_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Core:
        def system_info(self) -> str:
            return "CUDA : ARCHS = 900 | USE_GRAPHS = 1 | CPU : AVX2 = 1 | AMX = 0 | SVE_CNT = 2 | "

    monkeypatch.setattr(hardware, "core", Core)
    found = hardware.build_features()
    assert found == {
        "CUDA": {"ARCHS": "900", "USE_GRAPHS": "1"},
        "CPU": {"AVX2": "1", "AMX": "0", "SVE_CNT": "2"},
    }
    assert hardware.features_line(found["CPU"]) == "AVX2 SVE_CNT=2"


@pytest.fixture
def source(dense: Pair, tmp_path: Path) -> Path:
    folder = tmp_path / "some-drafter"
    shutil.copytree(dense.draft.parent / "draft", folder)
    return folder


def test_convert_writes_both_files_beside_the_source(dense: Pair, source: Path) -> None:
    result = command("convert", source / "model.safetensors", "--target", dense.target)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    written = sorted(source.glob("*.gguf"))
    assert [path.name for path in written] == ["some-drafter-BF16.gguf", "some-drafter-Q5_K_M.gguf"]
    for path in written:
        assert str(path) in result.stderr
        check_pair(dense.target, path)
    again = command("convert", source, "--target", dense.target)
    assert again.returncode == 3
    assert again.stderr.count("\n") == 1
    assert "--force" in again.stderr
    assert command("convert", source, "-m", dense.target, "--force", "-q").returncode == 0


def test_convert_writes_where_and_what_it_is_told(
    dense: Pair, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "out"
    result = command(
        "convert",
        source,
        "-m",
        dense.target,
        "--outdir",
        out,
        "--name",
        "mine",
        "--outtype",
        "f32, q8_0",
        "-q",
    )
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in out.iterdir()) == ["mine-F32.gguf", "mine-Q8_0.gguf"]
    with GgufFile(out / "mine-Q8_0.gguf") as file:
        assert file.architecture == "dflash"
    assert not list(source.glob("*.gguf"))
    answer = command(
        "run", "-m", dense.target, "--draft", out / "mine-Q8_0.gguf", "-p", "hi", "-n", 9
    )
    assert answer.returncode == 0


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"source": "none"}, 3, "none"),
        ({"target": "none.gguf"}, 3, "none.gguf: it cannot be read"),
        ({"outtype": "q9_z"}, None, "q9_z"),
        ({"outtype": ","}, None, "type"),
        ({"config": {"hidden_size": 96}}, 3, "expected [96, 192] by config.json"),
        ({"outdir": "/dev/null/x"}, None, "/dev/null/x"),
    ],
)
def test_what_cannot_be_converted_is_one_line(
    dense: Pair, source: Path, change: dict[str, object], code: int | None, words: str
) -> None:
    config = json.loads((source / "config.json").read_text())
    config.update(change.get("config", {}))  # type: ignore[call-overload]
    (source / "config.json").write_text(json.dumps(config))
    result = command(
        "convert",
        change.get("source", source),
        "--target",
        change.get("target", dense.target),
        "--outtype",
        change.get("outtype", "bf16"),
        *(["--outdir", change["outdir"]] if "outdir" in change else []),
    )
    assert result.returncode == code if code else result.returncode > 0, result.stderr
    assert words in result.stderr
    assert result.stderr.startswith("dflash-gguf: ")
    assert result.stderr.count("\n") == 1
    assert not list(source.glob("*.gguf"))

"""The sdist and the wheel: what is in them, and that they work away from the clone."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from dflash_gguf.convert import convert

from .convert.made import make_checkpoint, make_config, make_target
from .support.random_pairs import Pair

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from it; one for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dist"
    with (folder.parent / "dist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
            done = subprocess.run([*command, ROOT], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


@pytest.fixture(scope="session")
def programs(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment where the wheel is installed, and this one's other packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (wheel,) = dist.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    done = subprocess.run(
        [*pip, "--quiet", "--no-deps", "--no-index", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # after its own packages, and without an editable install of the clone: .pth files there are not read
    (site,) = folder.glob("lib/python*/site-packages")
    others = dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
    (site / "others.pth").write_text("\n".join(others))
    return folder / "bin"


def in_shell(command: str, programs: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder as someone would who installed the wheel."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_CACHE": str(folder / "no cache"),
    }
    return subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )


def test_sdist_holds_the_sources_and_no_more(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "cpp_ext/session.cpp",
        "convert/pipeline.py",
        "convert/registry.toml",
        "dflash_gguf/engine.py",
        "LICENSE",
    } <= names
    assert not [name for name in names if name.startswith(("models/", "tests/", "build/", ".ci/"))]
    assert sdist.stat().st_size < 700_000


def test_wheel_holds_the_package_and_neither_libllama_nor_the_tiny_pair(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "dflash_gguf/convert/pipeline.py" in names
    assert "dflash_gguf/convert/registry.toml" in names
    assert "dflash_gguf/bench/builtin.jsonl" in names
    assert "dflash_gguf/serve/page/index.html" in names
    assert "dflash_gguf/py.typed" in names
    assert (
        len([name for name in names if name.startswith("dflash_gguf/_core.") and ".so" in name])
        == 1
    )
    assert not [
        name for name in names if "libllama" in name or "libggml" in name or name.endswith(".gguf")
    ]
    assert all(name.startswith(("dflash_gguf/", "dflash_gguf-")) for name in names)


def test_wheel_works_outside_the_clone(programs: Path, hybrid: Pair, tmp_path: Path) -> None:
    code = "import dflash_gguf; print(dflash_gguf.__file__)"
    done = in_shell(f"python -c '{code}'", programs, tmp_path)
    assert Path(done.stdout).is_relative_to(programs.parent), done.stderr
    command = f"dflash-gguf run -m '{hybrid.target}' -md '{hybrid.draft}' -p hello -n 12"
    done = in_shell(command, programs, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "12 tok" in done.stderr


def test_the_literal_command(programs: Path, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "Small-DFlash", make_config())
    target = make_target(folder / "target.gguf")
    done = in_shell("dflash-gguf convert model.safetensors", programs, folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "target.gguf is the only one near that fits" in done.stderr
    expected = convert(folder, target, outdir=tmp_path / "expected")
    assert {path.name for path in folder.glob("*.gguf")} == {
        "target.gguf",
        *(written.path.name for written in expected),
    }
    for written in expected:
        name = written.path.name
        assert (folder / name).read_bytes() == written.path.read_bytes()
        done = in_shell(f"dflash-gguf inspect {name} --target target.gguf", programs, folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_literal_command_without_a_target(programs: Path, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "Small-DFlash", make_config())
    done = in_shell("dflash-gguf convert model.safetensors", programs, folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "dflash-gguf convert model.safetensors --target TARGET.gguf" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]

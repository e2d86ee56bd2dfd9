"""The sdist and the wheel: what is in them, and that they work away from the clone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from .support.random_pairs import Pair

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_sdist_holds_the_sources_and_no_more(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "cpp_ext/session.cpp",
        "convert/pipeline.py",
        "dflash_gguf/engine.py",
        "LICENSE",
    } <= names
    assert not [name for name in names if name.startswith(("models/", "tests/", "build/", ".ci/"))]
    assert sdist.stat().st_size < 500_000


def test_wheel_holds_the_package_and_neither_libllama_nor_the_tiny_pair(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "dflash_gguf/convert/pipeline.py" in names
    assert "dflash_gguf/py.typed" in names
    assert (
        len([name for name in names if name.startswith("dflash_gguf/_core.") and ".so" in name])
        == 1
    )
    assert not [
        name for name in names if "libllama" in name or "libggml" in name or name.endswith(".gguf")
    ]
    assert all(name.startswith(("dflash_gguf/", "dflash_gguf-")) for name in names)


def test_wheel_works_outside_the_clone(dist: Path, hybrid: Pair, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # an editable install of the clone, if there is one, would be found first
    code = (
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]; "
        "import dflash_gguf, dflash_gguf.__main__ as m; "
        "assert dflash_gguf.__file__.startswith(sys.argv.pop(1)); m.main()"
    )
    arguments = [
        "run",
        "-m",
        str(hybrid.target),
        "-md",
        str(hybrid.draft),
        "-p",
        "hello",
        "-n",
        "12",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, str(site), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
    )
    assert done.returncode == 0, done.stderr
    assert "12 tok" in done.stderr

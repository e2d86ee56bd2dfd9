"""The door to the extension: one libllama, the right version, and plain words if something is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from dflash_gguf import DflashError, _native

ROOT = Path(__file__).parents[1]
LOADED = """
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libllama" in line}
print(len(libraries), *libraries)
"""


def python(code: str, cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture
def _fresh() -> Iterator[None]:
    """Let core() look again, and forget what it saw."""
    _native.core.cache_clear()
    yield
    _native.core.cache_clear()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "imports",
    [
        "from dflash_gguf._native import core; core(); import llama_cpp",
        "import llama_cpp; from dflash_gguf._native import core; core()",
        "import llama_cpp, dflash_gguf; dflash_gguf.load; from dflash_gguf import hardware; hardware.devices()",
    ],
)
def test_exactly_one_libllama_is_mapped(tmp_path: Path, imports: str) -> None:  # L8
    result = python(imports + LOADED, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == "1", result.stdout


@pytest.mark.usefixtures("_fresh")
def test_another_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: "0.3.35")
    with pytest.raises(
        DflashError, match=r"0\.3\.36 is needed .*, 0\.3\.35 is installed; run 'pip install"
    ):
        _native.core()


@pytest.mark.usefixtures("_fresh")
def test_an_absent_llama_cpp_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(DflashError, match=r"llama-cpp-python 0\.3\.36 is needed and not installed"):
        _native.core()


@pytest.mark.usefixtures("_fresh")
def test_missing_symbols_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _native.core()
    _native.core.cache_clear()
    assert module.missing_symbols() == []
    monkeypatch.setattr(module, "missing_symbols", lambda: ["llama_one", "llama_two"])
    with pytest.raises(DflashError, match="libllama lacks llama_one, llama_two: expected"):
        _native.core()


@pytest.mark.parametrize(
    "code",
    [
        "from dflash_gguf._native import core; core()",
        "import dflash_gguf; dflash_gguf.load('t.gguf')",
        "from dflash_gguf.__main__ import main; sys.argv[1:] = ['run', '-m', 't.gguf', '-p', 'x']; main()",
        "from dflash_gguf.__main__ import main; sys.argv[1:] = ['convert', 'd', '-m', 't.gguf']; main()",
        "from dflash_gguf.__main__ import main; sys.argv[1:] = ['devices']; main()",
    ],
)
def test_the_source_folder_explains_itself(tmp_path: Path, code: str) -> None:
    # -S: without the hook of an editable install, which would find the built parts after all
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("-packages"))]
    result = python(f"import sys; sys.path[:0] = {paths}\n{code}", tmp_path, "-S")
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert (
        "this looks like the source folder, not an installed package; run 'pip install .'" in last
    )
    if "main()" in code:
        assert len(result.stderr.strip().splitlines()) == 1


def test_what_is_not_there_is_an_attribute_error() -> None:
    import dflash_gguf

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        dflash_gguf.nonsense  # noqa: B018
    assert set(dflash_gguf.__all__) <= set(dir(dflash_gguf))
    for name in dflash_gguf.__all__:
        assert getattr(dflash_gguf, name).__name__ == name

"""Mainline llama.cpp's programs, built from the source that the pinned llama-cpp-python packages.

python benchmarks/mainline.py llama_cpp_python-0.3.36.tar.gz build/mainline llama-server
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from dflash_gguf.draft_family import DSPARK
from dflash_gguf.pair import read_draft


def spec_type(draft: Path) -> str:
    """Return the `--spec-type` that a drafter needs; a DFlash2's is that of a DFlash."""
    return "draft-dspark" if read_draft(draft).layout.family == DSPARK else "draft-dflash"


def build(sdist: Path, folder: Path, program: str) -> Path:
    """Build a program from the sdist of llama-cpp-python (about 6 minutes on 2 cores); returns it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.glob("*/vendor/llama.cpp")
    made = folder / "build"
    options = ["-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(["cmake", "-S", source, "-B", made, "-G", "Ninja", *options], check=True)
    subprocess.run(["ninja", "-C", made, program], check=True)
    return made / "bin" / program


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))

"""Where outputs go, what they say of their origin, and how a termination leaves things."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import UsageError
from dflash_gguf.gguf_file import GgufFile

from .made import make_checkpoint, make_config, make_shards, make_target

CARD = """---
license: apache-2.0
base_model:
- Some/Target-9B
tags: [speculative-decoding]
language: [en]
---
# A drafter
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target.gguf")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "small", make_config())


def general(path: Path) -> dict[str, Any]:
    with GgufFile(path) as file:
        return {key: file.value(key) for key in file.fields if key.startswith("general.")}


def test_one_file_by_name(draft: Path, target: Path, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "mine.gguf"
    (written,) = convert(draft, target, outfile=path, outtypes=["q8_0"])
    assert written.path == path
    assert general(path)["general.name"] == "small"
    assert [item.name for item in path.parent.iterdir()] == ["mine.gguf"]


def test_one_file_for_two_types(draft: Path, target: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 output types and one file"):
        convert(draft, target, outfile=tmp_path / "x.gguf")
    with pytest.raises(UsageError, match="expected one of them"):
        convert(draft, target, outfile=tmp_path / "x.gguf", outdir=tmp_path)
    assert not (tmp_path / "x.gguf").exists()


def test_short_names_of_types(draft: Path, target: Path) -> None:
    (written,) = convert(draft, target, outtypes=["Q5_K", "q5_k_m"])
    assert written.path.name == "small-Q5_K_M.gguf"


def test_the_card_enters_the_file(draft: Path, target: Path) -> None:
    (draft / "README.md").write_text(CARD)
    for written in convert(draft, target):
        keys = general(written.path)
        assert keys["general.license"] == "apache-2.0"
        assert keys["general.base_model.count"] == 1
        assert keys["general.base_model.0.name"] == "Target 9B"
        assert keys["general.base_model.0.organization"] == "Some"
        assert keys["general.base_model.0.repo_url"] == "https://huggingface.co/Some/Target-9B"
        assert keys["general.tags"] == ["speculative-decoding"]
        assert keys["general.languages"] == ["en"]
        assert keys["general.name"] == "small"
        assert written.warnings == ()


@pytest.mark.parametrize(
    "card",
    ["", "no front matter", "---\n: : :\n---\n", "---\n- 1\n---\n", "---\nlicense: 5\n---\n"],
)
def test_an_odd_card_is_no_reason_to_stop(card: str, draft: Path, target: Path) -> None:
    (draft / "README.md").write_text(card)
    (written,) = convert(draft, target, outtypes=["bf16"])
    assert all("README.md's front matter is not read" in text for text in written.warnings)
    assert "general.base_model.0.name" not in general(written.path)


def test_without_a_card_the_target_is_the_base(draft: Path, tmp_path: Path) -> None:
    import gguf

    path = make_target(tmp_path / "plain.gguf")
    from ..support.edited import edited

    named = edited(path, tmp_path / "named.gguf", change={"general.name": "Qwen3.5 9B"})
    assert gguf.GGUFReader(named).fields["general.name"].contents() == "Qwen3.5 9B"
    (written,) = convert(draft, named, outtypes=["bf16"])
    keys = general(written.path)
    assert (keys["general.base_model.count"], keys["general.base_model.0.name"]) == (
        1,
        "Qwen3.5 9B",
    )


def test_the_sources_digest_enters_the_file(target: Path, tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "s", make_config())
    for written in convert(shards, target):
        with GgufFile(written.path) as file:
            names = file.array("dflash_gguf.source.files")
            digests = file.array("dflash_gguf.source.sha256")
        assert names == [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
        assert digests == [
            hashlib.sha256((shards / str(name)).read_bytes()).hexdigest() for name in names
        ]


def test_the_same_input_gives_the_same_bytes(draft: Path, target: Path) -> None:
    first = [written.path.read_bytes() for written in convert(draft, target, threads=1)]
    again = [written.path.read_bytes() for written in convert(draft, target, threads=3, force=True)]
    assert first == again


TERMINATED = """
import os, signal, sys
from dflash_gguf import __main__
from dflash_gguf.convert import stream
write = stream.GgufWriter.write
def slow(self, data):
    write(self, data)
    os.kill(os.getpid(), signal.SIGTERM)
stream.GgufWriter.write = slow
sys.argv = ["dflash-gguf", "convert", *sys.argv[1:]]
__main__.main()
"""


def test_a_termination_leaves_nothing(draft: Path, target: Path) -> None:
    command = [sys.executable, "-c", TERMINATED, draft, "--target", target]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60, cwd="/")
    assert done.returncode == 143
    assert b"Traceback" not in done.stderr
    assert sorted(path.name for path in draft.iterdir()) == ["config.json", "model.safetensors"]


def test_a_termination_from_outside(target: Path, tmp_path: Path) -> None:
    draft = make_checkpoint(tmp_path / "d", make_config())
    code = (
        "import sys, time\nfrom dflash_gguf import __main__\nfrom dflash_gguf.convert import pipeline\n"
        "def wait(*_, **__):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "pipeline.find_checkpoint = wait\nsys.argv = ['dflash-gguf', 'convert', *sys.argv[1:]]\n__main__.main()\n"
    )
    command = [sys.executable, "-c", code, draft, "--target", target]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - started < 10
    assert process.returncode == 143
    assert errors == b""


def test_the_command_line(draft: Path, target: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "dflash_gguf"]
    out, small = tmp_path / "a.gguf", tmp_path / "b.gguf"
    done = subprocess.run(
        [
            *[*program, "convert", draft, "--target", target, "--outtype", "q8_0", "-o", out],
            *["--tensor-type", "fc=f32", "--tensor-type", "attn_v=q5_1"],
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{out}  Q8_0  36 tensors" in done.stderr
    with GgufFile(out) as file:
        assert file.tensors["fc.weight"].type.name == "F32"
        assert file.tensors["blk.2.attn_v.weight"].type.name == "Q5_1"
    refused = subprocess.run(
        [*program, "quantize", out, small, "Q4_K_M"],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1
    assert "use --allow-requantize" in refused.stderr
    done = subprocess.run(
        [*program, "quantize", out, small, "Q4_K_M", "--allow-requantize", "-q"],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert small.is_file()

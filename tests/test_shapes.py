"""Pairs of real shapes with random weights: their sizes, their bytes, and that they load and draft."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from typer.testing import CliRunner

import dflash_gguf
from dflash_gguf import ConvertError, UsageError
from dflash_gguf.__main__ import app
from dflash_gguf.convert.config import parse_config
from dflash_gguf.convert.types import find_output_types
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.inspection import inspect_file
from dflash_gguf.shapes import SHAPES, WrittenPair, find_shape, write_shape
from dflash_gguf.shapes.drafter import _config
from dflash_gguf.shapes.noise import Noise
from dflash_gguf.shapes.target import parameters, plan_target

from .support.shapes import MINI

QUICK: dict[str, Any] = {"threads": 1, "context": 512}
MATRIX = "blk.0.ffn_up.weight"
PROMPT = [3, 77, 150, 9, 201, 44, 5]


def files(pair: WrittenPair) -> list[Path]:
    return [pair.target_path, pair.draft.path]


def rows_of(path: Path, name: str) -> np.ndarray[Any, Any]:
    (tensor,) = (tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == name)
    return np.array(tensor.data)


def test_real_shapes_have_their_known_sizes() -> None:
    kind = find_output_types(["bf16"])[0]
    # llama.cpp counts 8.95 B parameters in Qwen3.5-9B; the vocabulary alone is 248,320 rows
    counts = {
        name: parameters(plan_target(shape, kind, Path("x"), Noise(0))[1])
        for name, shape in SHAPES.items()
    }
    assert round(counts["Qwen3.5-9B"] / 1e9, 2) == 8.95
    assert 0.7e9 < counts["Qwen3.5-0.8B"] < 0.8e9
    assert 4.0e9 < counts["Qwen3.5-4B"] < 4.3e9
    extra = plan_target(replace(SHAPES["Qwen3.5-9B"], mtp=True), kind, Path("x"), Noise(0))[1]
    # a layer with attention and, before it, a matrix of two hidden states
    assert parameters(extra) - counts["Qwen3.5-9B"] == sum(
        (4096 * (8192 + 2 * 1024) + 4096 * 4096, 3 * 4096 * 12288, 2 * 4096 * 4096, 5 * 4096 + 512)
    )
    for shape in SHAPES.values():
        parse_config(_config(shape), shape.name)
    # of z-lab's drafters
    assert find_shape("qwen3.5-9b").taps == (1, 8, 15, 22, 29)
    assert find_shape("Qwen3.5-9B").mask == 248_070
    assert find_shape("Qwen3.5-0.8B").taps == (1, 6, 11, 16, 21)


def test_unknown_shapes_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no shape 'Qwen4'; expected one of Qwen3\.5-0\.8B, "):
        find_shape("Qwen4")


@pytest.mark.parametrize("outtype", ["bf16", "q8_0", "q4_0", "q4_k_m"])
def test_a_pair_loads_and_drafts(tmp_path: Path, outtype: str) -> None:
    target, draft = files(write_shape(MINI, tmp_path, outtype=outtype))
    with dflash_gguf.load(target, draft, **QUICK) as engine:
        answer = engine.generate(PROMPT, max_tokens=80, ignore_end=True, block=8)
        prompt = engine.encode([{"role": "user", "content": "héllo"}])
    assert answer.stats is not None
    assert answer.stats.drafting_rounds > 50
    assert answer.stats.accepted < 10  # its drafts are noise
    assert len(set(answer.tokens)) > 10  # and so is the text
    assert prompt[0] == MINI.first_special + 1
    assert len(prompt) == len("<user\nhéllo>\n<assistant\n") + 1  # é has two bytes


def test_a_seed_gives_the_same_files_on_any_number_of_threads(tmp_path: Path) -> None:
    for outtype in ("bf16", "q4_0"):
        options: dict[str, Any] = {"outtype": outtype, "draft_vocab": 64}
        once = files(write_shape(MINI, tmp_path / "a", threads=1, **options))
        again = files(write_shape(MINI, tmp_path / "b", threads=3, **options))
        other = files(write_shape(MINI, tmp_path / "c", seed=1, **options))
        for first, second, third in zip(once, again, other, strict=True):
            assert first.read_bytes() == second.read_bytes()
            assert rows_of(first, MATRIX).tobytes() != rows_of(third, MATRIX).tobytes()


def test_no_two_rows_and_no_two_tensors_are_equal(tmp_path: Path) -> None:
    shape = replace(MINI, vocab=30_000, first_special=29_900)
    seen: dict[bytes, str] = {}
    for path in files(write_shape(shape, tmp_path)):
        for tensor in gguf.GGUFReader(path).tensors:
            data = np.array(tensor.data)
            rows = data.reshape(-1, data.shape[-1])
            for row in rows:
                name = f"{path.name} {tensor.name}"
                assert seen.setdefault(row.tobytes(), name) == name
            assert len(np.unique(rows, axis=0)) == len(rows), tensor.name
            assert len(np.unique(rows)) > 1, tensor.name


def test_no_two_rows_point_the_same_way(tmp_path: Path) -> None:
    shape = replace(MINI, vocab=30_000, first_special=29_900)
    target, _ = files(write_shape(shape, tmp_path, outtype="f32"))
    rows = rows_of(target, "token_embd.weight")
    ways = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert len(np.unique(ways.round(4), axis=0)) == shape.vocab


def test_weights_keep_hidden_states_at_their_size(tmp_path: Path) -> None:
    target, draft = files(write_shape(MINI, tmp_path, outtype="f32"))
    for path, name in ((target, "token_embd.weight"), (draft, "blk.1.ffn_down.weight")):
        rows = rows_of(path, name).astype(np.float64)
        sizes = np.sqrt((rows**2).sum(axis=1))
        assert abs(sizes.mean() - 1) < 0.1
        assert np.ptp(sizes) > 0.01
    norm = rows_of(target, "blk.0.attn_norm.weight")
    assert abs(norm.mean() - 1) < 0.05
    assert norm.std() > 0.05
    assert (rows_of(target, "blk.0.ssm_a") < 0).all()


def test_a_trimmed_head_has_rows_of_the_target(tmp_path: Path) -> None:
    target, draft = files(write_shape(MINI, tmp_path, outtype="q8_0", draft_vocab=100))
    with GgufFile(draft) as file:
        ids = np.frombuffer(file.data("d2t"), "<i8")
    assert len(ids) == 100
    assert MINI.first_special + 2 in ids  # the end token
    np.testing.assert_array_equal(
        rows_of(draft, "output.weight"), rows_of(target, "token_embd.weight")[ids]
    )
    with dflash_gguf.load(target, draft, **QUICK) as engine:
        answer = engine.generate(PROMPT, max_tokens=20, ignore_end=True, block=8)
    assert answer.stats is not None
    assert answer.stats.drafted > 0


def test_an_untied_head_is_written_apart(tmp_path: Path) -> None:
    target, draft = files(write_shape(replace(MINI, tied=False), tmp_path, draft_vocab=100))
    head, table = rows_of(target, "output.weight"), rows_of(target, "token_embd.weight")
    assert head.shape == table.shape
    assert (head != table).any()
    with GgufFile(draft) as file:
        ids = np.frombuffer(file.data("d2t"), "<i8")
    np.testing.assert_array_equal(rows_of(draft, "output.weight"), head[ids])


def test_inspect_finds_nothing_odd(tmp_path: Path) -> None:
    target, draft = files(write_shape(MINI, tmp_path))
    report = inspect_file(draft, target)
    assert report.oddities == []
    assert report.fit is not None
    assert report.fit.fits


def test_the_same_target_is_kept_and_any_other_file_is_refused(tmp_path: Path) -> None:
    first = write_shape(MINI, tmp_path)
    assert first.target is not None
    made = first.target_path.stat().st_mtime_ns
    second = write_shape(MINI, tmp_path, draft_vocab=64)
    assert second.target is None
    assert second.target_path.stat().st_mtime_ns == made
    assert {path.name for path in tmp_path.iterdir()} == {
        "mini-shape-BF16.gguf",
        "mini-shape-draft-BF16.gguf",
        "mini-shape-draft-64-BF16.gguf",
    }
    for other in ({"seed": 1}, {}):
        with pytest.raises(ConvertError, match="exists already"):
            write_shape(MINI, tmp_path, **other)
    with pytest.raises(ConvertError, match="exists already"):
        write_shape(replace(MINI, ffn=768), tmp_path, draft_outtype="q8_0")
    assert write_shape(MINI, tmp_path, seed=1, force=True).target is not None


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"outtype": "q9"}, "unknown output type 'q9'"),
        ({"draft_outtype": "bf16,q8_0"}, "unknown output type"),
        ({"draft_vocab": 5}, "always kept"),
        ({"draft_vocab": 5000}, "has 512 tokens"),
        ({"seed": -1}, "the seed is -1"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        write_shape(MINI, tmp_path, **options)
    assert not list(tmp_path.glob("*draft*"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's own account")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    code = (
        "import re, sys; from dataclasses import replace; from pathlib import Path\n"
        "from dflash_gguf.shapes import SHAPES, write_shape\n"
        "shape = replace(SHAPES['Qwen3.5-0.8B'], layers=4, vocab=int(sys.argv[2]), first_special=500)\n"
        "write_shape(shape, Path(sys.argv[1]), outtype='q8_0', threads=1)\n"
        # of this program alone: what getrusage says includes the one that began it
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    peaks, sizes = [], []
    for vocab in (1_000, 150_000):
        folder = tmp_path / str(vocab)
        command = [sys.executable, "-c", code, str(folder), str(vocab)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
        peaks.append(int(done.stdout) * 1024)
        sizes.append(max(path.stat().st_size for path in folder.iterdir()))
    assert sizes[1] - sizes[0] > 150e6
    assert peaks[1] - peaks[0] < 60e6  # the names of the tokens
    assert peaks[1] < 500e6


def test_the_command_writes_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "mini", MINI)
    arguments = ["shape", "mini", "--outdir", str(tmp_path), "--outtype", "q8_0"]
    done = CliRunner().invoke(app, [*arguments, "--draft-outtype", "bf16", "--draft-vocab", "64"])
    assert done.exit_code == 0, done.output
    assert "mini-shape-Q8_0.gguf  Q8_0  " in done.output
    assert "mini-shape-draft-64-BF16.gguf  BF16  " in done.output
    done = CliRunner().invoke(app, arguments)
    assert "kept: it is the same" in done.output
    assert (tmp_path / "mini-shape-draft-Q8_0.gguf").is_file()
    done = CliRunner().invoke(app, [*arguments, "--mtp"])
    assert "mini-shape-mtp-Q8_0.gguf  Q8_0  " in done.output
    assert (tmp_path / "mini-shape-mtp-draft-Q8_0.gguf").is_file()

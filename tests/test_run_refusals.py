"""`dflash-gguf run` with bad input, in real processes: one line that says what, and an exit code that says which kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_gguf._native import core

from .support.command import command
from .support.edited import edited
from .support.random_pairs import Pair


def cut(path: Path, to: Path, size: int) -> Path:
    to.write_bytes(path.read_bytes()[:size])
    return to


Make = Callable[[Pair, Path], list[object]]
BAD: dict[str, tuple[int, str, Make]] = {
    "missing target": (
        3,
        "none.gguf: it cannot be read (No such file",
        lambda _p, t: ["-m", t / "none.gguf"],
    ),
    "missing draft": (
        3,
        "none.gguf: it cannot be read",
        lambda p, t: ["-m", p.target, "--draft", t / "none.gguf"],
    ),
    "folder as target": (3, "it is a folder; expected a GGUF", lambda _p, t: ["-m", t]),
    "empty folder as draft": (
        3,
        "expected a folder with a drafter's .gguf",
        lambda p, t: ["-m", p.target, "--draft", t],
    ),
    "no gguf": (3, "it begins with b'\"\"\"`'; expected b'GGUF'", lambda _p, _t: ["-m", __file__]),
    "truncated target": (
        3,
        "behind the end of the file",
        lambda p, t: ["-m", cut(p.target, t / "c.gguf", 100_000)],
    ),
    "truncated draft": (
        3,
        "get the file again, it may be cut off or damaged",
        lambda p, t: ["-m", p.target, "--draft", cut(p.draft, t / "c.gguf", 900)],
    ),
    "swapped": (
        3,
        "it is a drafter (dflash); expected the target",
        lambda p, _t: ["-m", p.draft, "--draft", p.target],
    ),
    "other width": (
        3,
        "hidden size 96, but",
        lambda p, t: [
            "-m",
            p.target,
            "--draft",
            edited(p.draft, t / "d.gguf", change={"dflash.embedding_length": 96}),
        ],
    ),
    "context too small": (
        4,
        "tokens, the context holds 20 and one must be left for the answer; raise the context (-c)",
        lambda p, _t: ["-m", p.target, "--draft", p.draft, "-c", 20],
    ),
    "gpu layers without a gpu": (
        4,
        "without a GPU backend; rebuild it: CMAKE_ARGS",
        lambda p, _t: ["-m", p.target, "-ngl", 5],
    ),
    "all layers without a gpu": (
        4,
        "all layers are to go to the GPU",
        lambda p, _t: ["-m", p.target, "-ngl", "all"],
    ),
    "draft layers without a gpu": (
        4,
        "5 layers are to go to the GPU",
        lambda p, _t: ["-m", p.target, "--draft", p.draft, "-ngld", 5],
    ),
    "layers that are no number": (
        2,
        "-ngl some: expected a number of layers",
        lambda p, _t: ["-m", p.target, "-ngl", "some"],
    ),
    "unknown device": (
        4,
        "device 'CUDA0' is not available; this build has: ",
        lambda p, _t: ["-m", p.target, "-dev", "CUDA0"],
    ),
    "unknown draft device": (
        4,
        "device 'CUDA0' is not available",
        lambda p, _t: ["-m", p.target, "--draft", p.draft, "-devd", "CUDA0"],
    ),
    "block 0": (
        2,
        "--block 0: expected 1 (no drafts) or more",
        lambda p, _t: ["-m", p.target, "--block", 0],
    ),
    "wide block": (
        2,
        "block 9 is wider than the 8",
        lambda p, _t: ["-m", p.target, "--draft", p.draft, "--block", 9],
    ),
    "no tokens": (2, "-n 0: expected a number of tokens", lambda p, _t: ["-m", p.target, "-n", 0]),
    "negative context": (
        2,
        "-c -1: expected a number of tokens",
        lambda p, _t: ["-m", p.target, "-c", -1],
    ),
    "huge context": (
        2,
        "context is 99999999999; expected",
        lambda p, _t: ["-m", p.target, "-c", 99999999999],
    ),
    "threads": (
        2,
        "threads is 0; expected a whole number from 1",
        lambda p, _t: ["-m", p.target, "-t", 0],
    ),
    "temperature": (
        2,
        "temperature is -0.5; expected a number from 0 to 100",
        lambda p, _t: ["-m", p.target, "--temp", -0.5],
    ),
    "logit bias": (
        2,
        "--logit-bias 15043: expected a token id, + or -, and a number",
        lambda p, _t: ["-m", p.target, "--logit-bias", "15043"],
    ),
    "biased token": (
        2,
        "the bias of token 15043 is outside the vocabulary",
        lambda p, _t: ["-m", p.target, "-l", "15043-inf"],
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_an_exit_code(dense: Pair, tmp_path: Path, what: str) -> None:
    if "gpu" in what and core().supports_gpu_offload():
        pytest.skip("this llama.cpp has a GPU backend")
    code, words, make = BAD[what]
    result = command("run", *make(dense, tmp_path), "-p", "hi")
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert words in result.stderr
    assert result.stderr.startswith("dflash-gguf: ")
    assert result.stderr.count("\n") == 1


def test_the_developer_may_see_the_traceback(tmp_path: Path) -> None:
    result = command(
        "run", "-m", tmp_path / "none.gguf", "-p", "hi", env={"DFLASH_GGUF_DEBUG": "1"}
    )
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "ModelError" in result.stderr


def test_wrong_usage_is_exit_code_2() -> None:
    for arguments in (
        ["run"],
        ["run", "--nonsense"],
        ["nonsense"],
        ["run", "-m", "x", "-n", "many"],
    ):
        result = command(*arguments)
        assert result.returncode == 2, arguments
        assert "Traceback" not in result.stderr
        assert result.stdout == ""

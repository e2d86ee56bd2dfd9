"""`dflash-gguf recipe`: the lines it prints, and that llama-server takes the one for it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dflash_gguf import recipe_facts
from dflash_gguf.__main__ import app
from dflash_gguf.errors import ModelError, UsageError
from dflash_gguf.recipe import make_recipe

from .support.edited import edited
from .support.family_pairs import make_family_pair
from .support.random_pairs import Pair
from .support.tiny import BLOCK, ROOT, Tiny

SERVER = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
CHECKPOINT = ROOT / "draft"
HUB = "https://huggingface.co"
WAIT = 60


@pytest.fixture(scope="module")
def draft(tiny: Tiny) -> Path:
    return tiny.draft("bf16")


@pytest.fixture
def target_folder(tmp_path: Path) -> Path:
    """A hybrid target's checkpoint as far as a recipe reads it."""
    folder = tmp_path / "a target"
    folder.mkdir()
    layers = ["linear_attention", "full_attention"]
    (folder / "config.json").write_text(json.dumps({"text_config": {"layer_types": layers}}))
    return folder


def naming(source: Path, to: Path, **repositories: str) -> Path:
    """Write a GGUF again that names repositories, by the last parts of their keys."""
    keys = {"origin": "general.source.repo_url", "base": "general.base_model.0.repo_url"}
    change = {keys[key]: f"{HUB}/{name}" for key, name in repositories.items()}
    return edited(source, to, change=change)


def options(words: list[str]) -> dict[str, str]:
    """What a line says: each option with its value; the program under ''."""
    found, last = {"": ""}, ""
    for word in words:
        if word.startswith("--"):
            last = word
        found[last] = f"{found.get(last, '')} {'' if word == last else word}".strip()
    return found


def words(text: str) -> list[str]:
    """What a shell makes of a printed recipe."""
    notes = [line for line in text.splitlines(keepends=True) if line.startswith("#")]
    line = text.removeprefix("".join(notes))
    script = f"{''.join(notes)}set -- {line}\nprintf '%s\\0' \"$@\""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def test_llama_server(tiny: Tiny, draft: Path) -> None:
    made = make_recipe("llama-server", tiny.target, draft, concurrency=4, block=8, context=512)
    assert made.verified
    assert options(made.command) == {
        "": "llama-server",
        "--model": str(tiny.target),
        "--spec-draft-model": str(draft),
        "--spec-type": "draft-dflash",
        "--spec-draft-n-max": "7",
        "--parallel": "4",
        "--ctx-size": "2048",
        "--host": "127.0.0.1",
        "--port": "8080",
    }
    assert words(made.render()) == made.command


def test_what_is_not_asked_for_is_the_files(tiny: Tiny, draft: Path) -> None:
    line = options(make_recipe("llama-server", tiny.target, draft).command)
    assert line["--spec-draft-n-max"] == str(BLOCK - 1)
    assert line["--parallel"] == "1"
    assert "--ctx-size" not in line


@pytest.mark.parametrize("variant", ["dflash2", "dspark", "dspark-bonus"])
def test_families(variant: str, tmp_path: Path) -> None:
    made = make_family_pair(tmp_path, variant)
    line = options(make_recipe("llama-server", made.pair.target, made.pair.draft).command)
    assert line["--spec-type"] == ("draft-dflash" if variant == "dflash2" else "draft-dspark")
    assert line["--spec-draft-n-max"] == str(made.most)
    # its checkpoint tells the same
    (tmp_path / "config.json").write_text(json.dumps(made.config))
    _, facts = recipe_facts.read_pair(made.pair.target, tmp_path)
    _, of_gguf = recipe_facts.read_pair(made.pair.target, made.pair.draft)
    own = (facts.family, facts.block, facts.windows)
    assert own == (of_gguf.family, of_gguf.block, of_gguf.windows)
    target = naming(made.pair.target, tmp_path / "named.gguf", origin="maker/Target")
    for engine in ("sglang", "vllm"):
        if variant == "dflash2":
            assert make_recipe(engine, target, tmp_path).command
        else:
            with pytest.raises(ModelError, match=f"{engine}: no line is known for DSpark"):
                make_recipe(engine, target, tmp_path)


def test_sglang(target_folder: Path) -> None:
    made = make_recipe("sglang", target_folder, CHECKPOINT, concurrency=32, block=8, context=4096)
    assert not made.verified
    assert options(made.command) == {
        "": "python -m sglang.launch_server",
        "--model-path": str(target_folder),
        "--trust-remote-code": "",
        "--speculative-algorithm": "DFLASH",
        "--speculative-draft-model-path": str(CHECKPOINT),
        "--speculative-dflash-block-size": "8",
        "--speculative-dflash-draft-window-size": "64",
        "--mamba-scheduler-strategy": "extra_buffer",
        "--tp-size": "1",
        "--max-running-requests": "32",
        "--context-length": "4096",
        "--host": "127.0.0.1",
        "--port": "30000",
    }
    text = made.render()
    assert "not verified by us" in text.splitlines()[0]
    assert "layer 2 was trained without one" in text
    assert words(text) == made.command


def test_sglangs_window_is_the_drafters(target_folder: Path, tmp_path: Path) -> None:
    config = json.loads((CHECKPOINT / "config.json").read_text("utf-8"))
    folder = tmp_path / "draft"
    folder.mkdir()

    def line(**changes: Any) -> dict[str, str]:
        (folder / "config.json").write_text(json.dumps(config | changes), "utf-8")
        made = make_recipe("sglang", target_folder, folder)
        if "window" not in " ".join(made.command):
            assert "window" not in made.render()
        return options(made.command)

    key = "--speculative-dflash-draft-window-size"
    assert line(layer_types=["full_attention"] * 3, use_sliding_window=False).get(key) is None
    assert line(layer_types=["sliding_attention"] * 3)[key] == "64"
    # the engine refuses a window below the block
    assert line(sliding_window=4)[key] == str(BLOCK)


def test_vllm(target_folder: Path) -> None:
    made = make_recipe("vllm", target_folder, CHECKPOINT, concurrency=8, context=4096)
    assert not made.verified
    line = options(made.command)
    config = json.loads(line.pop("--speculative-config"))
    assert config == {
        "method": "dflash",
        "model": str(CHECKPOINT),
        "num_speculative_tokens": BLOCK - 1,
    }
    assert line == {
        "": f"vllm serve {target_folder}",
        "--attention-backend": "flash_attn",
        "--max-num-batched-tokens": "32768",
        "--max-num-seqs": "8",
        "--max-model-len": "4096",
        "--host": "127.0.0.1",
        "--port": "8000",
    }
    assert "not verified by us" in made.render().splitlines()[0]
    assert words(made.render()) == made.command


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_gguf_that_names_no_checkpoint_is_not_enough(
    engine: str, tiny: Tiny, draft: Path, target_folder: Path
) -> None:
    with pytest.raises(ModelError, match=rf"^{engine} reads .* as --target"):
        make_recipe(engine, tiny.target, CHECKPOINT)
    with pytest.raises(ModelError, match=rf"^{engine} reads .* as --draft"):
        make_recipe(engine, target_folder, draft)


def test_the_checkpoints_are_those_that_the_ggufs_name(
    tiny: Tiny, draft: Path, tmp_path: Path
) -> None:
    target = naming(tiny.target, tmp_path / "t.gguf", origin="maker/Tiny", base="maker/Tiny-Base")
    own = naming(draft, tmp_path / "d.gguf", base="maker/Tiny-DFlash")
    line = options(make_recipe("sglang", target, own).command)
    assert line["--model-path"] == "maker/Tiny"
    assert line["--speculative-draft-model-path"] == "maker/Tiny-DFlash"
    # a drafter's own word for its target goes before the target's
    both = naming(draft, tmp_path / "b.gguf", origin="maker/Tiny-DFlash", base="maker/Tiny-Chat")
    made = make_recipe("sglang", target, both)
    assert options(made.command)["--model-path"] == "maker/Tiny-Chat"
    assert "general.base_model.0.repo_url of b.gguf" in made.render()
    packed = naming(tiny.target, tmp_path / "p.gguf", origin="packer/Tiny-GGUF")
    with pytest.raises(ModelError, match="as --target"):
        make_recipe("sglang", packed, own)


def test_a_pair_known_by_name(tiny: Tiny, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (known, *_) = recipe_facts.read_registry()
    facts = {"hidden_size": 256, "vocab_size": 1280, "mask_token_id": 1277}
    fake = type(known)(("z/A-DFlash", "m/A-DFlash"), "q/A", "a card", facts, {})
    monkeypatch.setattr(recipe_facts, "read_registry", lambda: (known, fake))
    line = options(make_recipe("sglang", tiny.target, draft).command)
    assert line["--model-path"] == "q/A"
    assert line["--speculative-draft-model-path"] == "z/A-DFlash"


def test_repositories_are_read_by_their_config(
    target_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {"maker/Tiny": target_folder, "maker/Tiny-DFlash": CHECKPOINT}
    monkeypatch.setattr(recipe_facts, "fetch_config", lambda given: folders[given.as_posix()])
    line = options(
        make_recipe("sglang", Path("maker/Tiny"), Path("maker/Tiny-DFlash"), block=4).command
    )
    assert line["--model-path"] == "maker/Tiny"
    assert line["--speculative-draft-model-path"] == "maker/Tiny-DFlash"
    assert line["--speculative-dflash-draft-window-size"] == "64"
    assert "--mamba-scheduler-strategy" in line


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"engine": "tgi"}, "--engine tgi: expected sglang, vllm, llama-server"),
        ({"block": 1}, "--block 1: expected 2 to 16"),
        ({"block": 17}, "--block 17: expected 2 to 16"),
        ({"concurrency": 0}, "--concurrency 0"),
        ({"context": 0}, "--context 0"),
    ],
)
def test_what_cannot_be_is_refused(
    changes: dict[str, Any], match: str, tiny: Tiny, draft: Path
) -> None:
    given = {"engine": "llama-server", **changes}
    with pytest.raises(UsageError, match=match):
        make_recipe(given.pop("engine"), tiny.target, draft, **given)


def test_files_that_do_not_fit_are_refused(
    tiny: Tiny, draft: Path, dense: Pair, tmp_path: Path
) -> None:
    with pytest.raises(ModelError):
        make_recipe("llama-server", dense.target, draft)
    with pytest.raises(ModelError, match="hidden_size"):
        make_recipe("sglang", dense.target, CHECKPOINT)
    with pytest.raises(ModelError, match="give one as --draft"):
        make_recipe("llama-server", tiny.target, CHECKPOINT)
    with pytest.raises(ModelError, match=r"config\.json"):
        make_recipe("vllm", tmp_path, CHECKPOINT)


def test_the_command_prints_it(tiny: Tiny, draft: Path) -> None:
    given = ["recipe", "--engine", "llama-server", "-m", str(tiny.target), "-md", str(draft)]
    done = CliRunner().invoke(app, [*given, "--block", "4", "--concurrency", "2"])
    assert done.exit_code == 0, done.output
    made = make_recipe("llama-server", tiny.target, draft, block=4, concurrency=2)
    assert done.stdout == made.render()


@pytest.mark.skipif(
    SERVER is None, reason="no llama-server: set LLAMA_SERVER, or put it on the PATH"
)
def test_llama_server_takes_its_line(tiny: Tiny, draft: Path, tmp_path: Path) -> None:
    assert SERVER is not None
    made = make_recipe("llama-server", tiny.target, draft, concurrency=2, block=8, context=256)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # the last part is the port
    printed = words(made.render())
    line = [SERVER, *printed[1:-1], str(port)]
    log = tmp_path / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        assert (
            json.loads(_answer(process, log, f"http://127.0.0.1:{port}/health"))["status"] == "ok"
        )
        slots = json.loads(_answer(process, log, f"http://127.0.0.1:{port}/slots"))
        assert [slot["n_ctx"] for slot in slots] == [256, 256]
        assert all(slot["speculative"] for slot in slots)
    finally:
        process.terminate()
        process.wait(WAIT)


def _answer(process: subprocess.Popen[bytes], log: Path, url: str) -> bytes:
    limit = time.monotonic() + WAIT
    while time.monotonic() < limit and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            body: bytes = answer.read()
            return body
        time.sleep(0.05)
    said = log.read_text("utf-8", "replace")
    text = f"llama-server did not answer {url}:\n{said[-3000:]}"
    raise AssertionError(text)

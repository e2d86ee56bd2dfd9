"""Model cards: what a checkpoint's tells the GGUF, and the one written beside the outputs."""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from dflash_gguf import __version__
from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError
from dflash_gguf.gguf_file import GgufFile

from ..support.command import command
from ..support.tiny import ROOT, Tiny
from .made import make_checkpoint, make_config, make_d2t, make_target, make_weights
from .test_folder_target import make_folder
from .test_options import CARD

BASE = "https://huggingface.co/Some/Target-9B"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target.gguf")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    folder = make_checkpoint(tmp_path / "small", make_config())
    (folder / "README.md").write_text(CARD)
    return folder


def written_card(folder: Path) -> tuple[dict[str, Any], str]:
    """Its front matter, and what follows."""
    text = (folder / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    return yaml.safe_load(front), body


def keys_of(path: Path) -> dict[str, Any]:
    with GgufFile(path) as file:
        return {
            key: file.value(key)
            for key in file.fields
            if key.startswith(("general.", "dflash_gguf."))
        }


def test_the_whole_origin_is_in_the_file(draft: Path, target: Path) -> None:  # C17
    (written,) = convert(draft, target, outtypes=["bf16"])
    keys = keys_of(written.path)
    digest = hashlib.sha256((draft / "model.safetensors").read_bytes()).hexdigest()
    assert keys["general.license"] == "apache-2.0"
    assert keys["general.base_model.0.repo_url"] == BASE
    assert keys["dflash_gguf.source.files"] == ["model.safetensors"]
    assert keys["dflash_gguf.source.sha256"] == [digest]
    assert keys["dflash_gguf.version"] == __version__


def test_one_odd_key_costs_no_other(draft: Path, target: Path) -> None:
    (draft / "README.md").write_text(CARD.replace("[en]", "[no]"))  # to YAML no is false
    (written,) = convert(draft, target, outtypes=["bf16"])
    keys = keys_of(written.path)
    assert keys["general.license"] == "apache-2.0"
    assert "general.languages" not in keys
    assert written.warnings == ("general.languages of README.md is left out, for it is [False]",)


def test_a_folders_name_is_the_base(draft: Path, tmp_path: Path) -> None:
    (draft / "README.md").unlink()
    (written,) = convert(draft, make_folder(tmp_path / "Some-Model-9B"), outtypes=["bf16"])
    assert keys_of(written.path)["general.base_model.0.name"] == "Some Model 9B"
    snapshot = tmp_path / "models--Some--Target-9B" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    (written,) = convert(draft, make_folder(snapshot), outtypes=["bf16"], force=True)
    assert keys_of(written.path)["general.base_model.0.repo_url"] == BASE


def test_a_card_for_publishing(draft: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outputs = convert(draft, target, outdir=out, model_card=True)
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "small-BF16.gguf",
        "small-Q5_K_M.gguf",
    ]
    front, body = written_card(out)
    assert front["license"] == "apache-2.0"
    assert front["base_model"] == ["Some/Target-9B"]
    assert "base_model_relation" not in front  # of a drafter: it is no quantised target
    assert front["language"] == ["en"]
    assert front["library_name"] == "gguf"
    assert front["pipeline_tag"] == "text-generation"
    assert {"dflash", "speculative-decoding", "gguf", "llama.cpp"} <= set(front["tags"])
    assert len(front["tags"]) == len(set(front["tags"]))
    for output in outputs:
        digest = hashlib.sha256(output.path.read_bytes()).hexdigest()
        size = f"{output.bytes / 1e6:.1f} MB"
        assert f"| {output.path.name} | {output.type} | {size} | `{digest}` |\n" in body
    source = hashlib.sha256((draft / "model.safetensors").read_bytes()).hexdigest()
    assert f"| model.safetensors | `{source}` |\n" in body
    flags = "-m TARGET.gguf -md small-Q5_K_M.gguf --spec-type draft-dflash --spec-draft-n-max 15\n"
    assert f"\nllama-server {flags}" in body
    assert f"\nllama-cli {flags}" in body
    assert "\ndflash-gguf run --target TARGET.gguf --draft small-Q5_K_M.gguf\n" in body
    assert (
        "\ndflash-gguf convert model.safetensors --target target.gguf --outtype bf16,q5_k_m\n"
        in body
    )
    assert f"[Some/Target-9B]({BASE})" in body
    assert f"dflash-gguf {__version__} " in body
    assert str(tmp_path) not in body


def test_the_cards_own_command(tiny: Tiny, tmp_path: Path) -> None:
    convert(
        ROOT / "draft",
        tiny.target,
        outdir=tmp_path,
        outtypes=["bf16", "q8_0"],
        name="it",
        model_card=True,
    )
    (line,) = re.findall(r"^dflash-gguf (run .*)$", written_card(tmp_path)[1], re.MULTILINE)
    words = [str(tiny.target) if word == "TARGET.gguf" else word for word in shlex.split(line)]
    assert words[-1] == "it-Q8_0.gguf"  # the smallest
    done = command(*words, "-p", "1 + 1 =", "-n", 4, "--block", 8, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "accept" in done.stderr


def test_an_old_gguf_package(
    draft: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C16
    out = tmp_path / "out"
    versions = {"gguf": "0.18.9"}
    monkeypatch.setattr(metadata, "version", lambda name: versions[name])
    with pytest.raises(ConvertError, match=r"gguf has the version 0\.18\.9; expected gguf 0\.19"):
        convert(draft, target, outdir=out)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConvertError, match=r"gguf is not installed; expected gguf 0\.19 or newer"):
        convert(draft, target, outdir=out)
    assert not out.exists()


def test_a_card_tells_the_options(draft: Path, target: Path, tmp_path: Path) -> None:
    convert(
        draft,
        target,
        outfile=tmp_path / "out" / "it's.gguf",
        outtypes=["q8_0"],
        tensor_types=["fc=f32"],
        name="a b",
        model_card=True,
    )
    front, body = written_card(tmp_path / "out")
    assert "| it's.gguf | Q8_0 |" in body
    assert "--draft 'it'\"'\"'s.gguf'\n" in body
    said = "dflash-gguf convert model.safetensors --target target.gguf --outtype q8_0"
    assert f"\n{said} --tensor-type fc=f32 --name 'a b'\n" in body
    assert front["license"] == "apache-2.0"


def test_a_card_of_a_dspark(target: Path, tmp_path: Path) -> None:
    config = make_config(markov_rank=32, draft_vocab_size=100, sample_from_anchor=True)
    draft = make_checkpoint(tmp_path / "s", config, weights=make_weights(config) | make_d2t())
    convert(draft, target, outtypes=["bf16"], model_card=True)
    front, body = written_card(draft)
    assert "license" not in front
    assert "base_model" not in front
    assert "dspark" in front["tags"]
    # one that starts at the anchor drafts a whole block
    assert "--spec-type draft-dspark --spec-draft-n-max 16\n" in body
    assert "a DSpark drafter for its target." in body
    assert "dflash-gguf run" not in body  # it does not drive these


def test_a_card_of_a_repositorys_drafter(target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models--lab--Small-DFlash" / "snapshots" / "0"
    draft = make_checkpoint(folder, make_config())
    card = CARD.replace("apache-2.0", "other\nlicense_name: my own\nlicense_link: LICENSE")
    (draft / "README.md").write_text(card.replace("[en]", "['no', zh]"))
    convert(draft, target, outdir=tmp_path / "out", outtypes=["bf16"], model_card=True)
    front, body = written_card(tmp_path / "out")
    assert front["base_model"] == ["lab/Small-DFlash"]
    assert front["base_model_relation"] == "quantized"
    named = [front[key] for key in ("license", "license_name", "license_link")]
    assert named == ["other", "my own", "LICENSE"]
    assert front["language"] == ["no", "zh"]
    assert "[lab/Small-DFlash](https://huggingface.co/lab/Small-DFlash)" in body
    assert "\ndflash-gguf convert lab/Small-DFlash --target target.gguf " in body


def test_an_existing_card_is_kept(draft: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "README.md").write_text("mine")
    with pytest.raises(ConvertError, match=r"README\.md: it exists already and is kept"):
        convert(draft, target, outdir=out, model_card=True)
    assert [path.name for path in out.iterdir()] == ["README.md"]
    assert (out / "README.md").read_text() == "mine"
    convert(draft, target, outdir=out, model_card=True, force=True)
    assert written_card(out)[0]["license"] == "apache-2.0"


def test_the_checkpoints_own_card_is_never_overwritten(draft: Path, target: Path) -> None:
    for force in (False, True):
        with pytest.raises(ConvertError, match=r"would overwrite .*README\.md, which is read"):
            convert(draft, target, model_card=True, force=force)
    assert (draft / "README.md").read_text() == CARD
    assert not list(draft.glob("*.gguf"))


def test_our_card_does_not_become_the_checkpoints(target: Path, tmp_path: Path) -> None:
    draft = make_checkpoint(tmp_path / "models--lab--Small" / "snapshots" / "0", make_config())
    (first,) = convert(draft, target, outtypes=["bf16"], model_card=True)
    before, card = first.path.read_bytes(), (draft / "README.md").read_bytes()
    (again,) = convert(draft, target, outtypes=["bf16"], model_card=True, force=True)
    assert again.path.read_bytes() == before
    assert (draft / "README.md").read_bytes() == card
    assert "general.base_model.0.repo_url" not in keys_of(again.path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_error_leaves_no_card(
    error: type[BaseException], draft: Path, target: Path, tmp_path: Path
) -> None:
    def stop(done: int, total: int, name: str) -> None:
        if done == total:
            raise error

    with pytest.raises(error):
        convert(draft, target, outdir=tmp_path / "out", model_card=True, progress=stop)
    assert not (tmp_path / "out").exists()


def test_a_card_that_appears_meanwhile_is_kept(draft: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def appear(done: int, total: int, name: str) -> None:
        (out / "README.md").write_text("precious")

    with pytest.raises(ConvertError, match=r"README\.md: it exists already"):
        convert(draft, target, outdir=out, model_card=True, progress=appear)
    assert [path.name for path in out.iterdir()] == ["README.md"]
    assert (out / "README.md").read_text() == "precious"

"""`dflash-gguf models`: what can be run, which pairs fit, and files that are no use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.local_models import find_local_models

from .convert.made import make_config, make_target
from .support.command import command
from .support.hub_cache import put_in_cache
from .support.random_pairs import Pair, small_config

KNOWN = "z-lab/Qwen3.5-9B-DFlash"


@pytest.fixture
def caches(dense: Pair, hybrid: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both caches: what runs, what does not, and what is half there. Returns the first repository's snapshot."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    wide = make_target(tmp_path / "wide.gguf")
    deep = tmp_path / "config.json"
    deep.write_text(json.dumps(small_config(8, num_target_layers=9)))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(dense.target.read_bytes()[:50_000])
    main = put_in_cache(
        "lab/Small-GGUF",
        {
            "Small-Q4_K_M.gguf": dense.target,
            "Small-Q8_0.gguf": dense.target,  # of one blob
            "dflash-Small-BF16.gguf": dense.draft,
            "mmproj-F16.gguf": cut,
            "Small-Q6_K-00001-of-00002.gguf": cut,
            "gone-Q4_0.gguf": tmp_path / "gone",
        },
    )
    put_in_cache("lab/Other-GGUF", {"Wide.gguf": wide, "Other-Q5_0.gguf": cut})
    put_in_cache("lab/Hybrid-GGUF", {"Hybrid-F32.gguf": hybrid.target})  # of the same sizes
    source = dense.draft.parent / "draft"
    weights = {name: source / name for name in ("config.json", "model.safetensors")}
    put_in_cache(KNOWN, weights)
    put_in_cache("lab/Deep-DFlash", weights | {"config.json": deep})
    put_in_cache("lab/Half-DFlash", {"config.json": source / "config.json"})
    parts = tmp_path / "hub" / "models--lab--Half-DFlash" / "blobs"
    parts.mkdir()
    (parts / "abc.incomplete").write_bytes(bytes(2048))
    (tmp_path / "hub" / "models--damaged--refs" / "refs" / "main").mkdir(parents=True)
    (tmp_path / "hub" / "models--a--file").touch()
    own = Path(os.environ["DFLASH_GGUF_CACHE"]) / "0123456789abcdef"
    own.mkdir(parents=True)
    shutil.copy(dense.draft, own / "small-F32.gguf")
    (own / "old-BF16.gguf").write_bytes(b"GGUF")
    return main


def listed() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(find_local_models().as_dict()))
    return document


@pytest.mark.usefixtures("caches")
def test_the_document_is_what_is_found() -> None:
    done = command("models", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == listed()


@pytest.mark.usefixtures("caches")
def test_all_of_both_caches() -> None:
    document = listed()
    own = f"{os.environ['DFLASH_GGUF_CACHE']}/0123456789abcdef/small-F32.gguf"
    targets = {model["name"]: model for model in document["targets"]}
    small, mixed = "lab/Small-GGUF:Q4_K_M", "lab/Hybrid-GGUF:F32"
    assert list(targets) == [mixed, "lab/Other-GGUF:Wide.gguf", small]
    assert (targets[small]["family"], targets[small]["quant"]) == ("qwen3", "Q4_K_M")
    assert targets[small]["bytes"] == Path(targets[small]["path"]).stat().st_size
    drafters = {model["name"]: model["quant"] for model in document["drafters"]}
    beside, deep = "lab/Small-GGUF:BF16", "lab/Deep-DFlash"
    assert drafters == {deep: "checkpoint", beside: "BF16", KNOWN: "checkpoint", own: "F32"}
    pairs = {(pair["target"], pair["draft"]) for pair in document["pairs"]}
    # a checkpoint does not say how positions are counted, a drafter's GGUF does
    assert pairs == {(small, beside), (small, KNOWN), (small, own), (mixed, KNOWN)}


@pytest.mark.usefixtures("caches")
def test_what_cannot_be_run_is_told() -> None:
    document = listed()
    faults = {Path(entry["path"]).name: entry["fault"] for entry in document["unusable"]}
    assert set(faults) == {"Other-Q5_0.gguf", "old-BF16.gguf"}
    assert all(fault and "\n" not in fault for fault in faults.values())
    assert document["unfinished"] == [{"repository": "lab/Half-DFlash", "bytes": 2048}]


@pytest.mark.usefixtures("caches")
def test_pairs_known_by_name() -> None:
    (known,) = listed()["known"]
    assert known["target"] == "Qwen/Qwen3.5-9B"
    assert known["drafters_here"] == [KNOWN]
    assert known["targets_here"] == []
    assert known["command"] == f"dflash-gguf run -m USER/REPO:QUANT -md {KNOWN}"


def test_for_people(caches: Path) -> None:
    done = command("models")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings == [
        "targets",
        "drafters",
        "not to be run",
        "unfinished downloads; the same command goes on with them",
        "pairs known by name",
    ]
    (line,) = (line for line in lines if line.startswith("  lab/Small-GGUF:Q4_K_M"))
    assert line.split()[1:5] == ["Q4_K_M", "717.5", "KiB", "qwen3"]
    assert f"fits lab/Small-GGUF:BF16, {KNOWN}" in line
    (line,) = (line for line in lines if line.startswith("  lab/Other-GGUF:Wide.gguf"))
    assert line.endswith("fits nothing here")
    # what it calls them is what may be typed for them
    assert command("inspect", "lab/Small-GGUF:BF16", "-m", "lab/Small-GGUF:Q4_K_M").returncode == 0
    assert caches.is_dir()


def test_a_checkpoint_of_another_width_fits_nothing(caches: Path, tmp_path: Path) -> None:
    other = tmp_path / "config.json"
    other.write_text(json.dumps(make_config()))
    config = caches.parents[2] / f"models--{KNOWN.replace('/', '--')}" / "snapshots"
    (config,) = config.glob("*/config.json")
    config.unlink()
    config.symlink_to(other)
    found = find_local_models()
    assert KNOWN in [model.name for model in found.drafters]
    assert KNOWN not in [draft for target, draft in found.pairs if "Small" in target]


def test_empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    done = command("models")
    assert done.returncode == 0
    assert done.stdout.startswith(f"no models in {tmp_path / 'none'}; ")
    assert "Qwen/Qwen3.5-9B with z-lab/Qwen3.5-9B-DFlash" in done.stdout

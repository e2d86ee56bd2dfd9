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
from .support.random_pairs import Pair

KNOWN = "z-lab/Qwen3.5-9B-DFlash"


@pytest.fixture
def caches(dense: Pair, hybrid: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both caches: what runs, what does not, and what is half there. Returns the first repository's snapshot."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    other = make_target(tmp_path / "other.gguf")
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
    put_in_cache("lab/Other-GGUF", {"Other.gguf": other, "Other-Q5_0.gguf": cut})
    source = dense.draft.parent / "draft"
    weights = {name: source / name for name in ("config.json", "model.safetensors")}
    put_in_cache(KNOWN, weights)
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
    done = command("models", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.usefixtures("caches")
def test_all_of_both_caches() -> None:
    document = listed()
    own = f"{os.environ['DFLASH_GGUF_CACHE']}/0123456789abcdef/small-F32.gguf"
    targets = {model["name"]: model for model in document["targets"]}
    assert list(targets) == ["lab/Other-GGUF:Other.gguf", "lab/Small-GGUF:Q4_K_M"]
    small = targets["lab/Small-GGUF:Q4_K_M"]
    assert (small["family"], small["quant"]) == ("qwen3", "Q4_K_M")
    assert small["bytes"] == Path(small["path"]).stat().st_size
    drafters = {model["name"]: model["quant"] for model in document["drafters"]}
    assert drafters == {"lab/Small-GGUF:BF16": "BF16", KNOWN: "checkpoint", own: "F32"}
    assert document["pairs"] == [
        {"target": "lab/Small-GGUF:Q4_K_M", "draft": draft} for draft in drafters
    ]


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
    (line,) = (line for line in lines if line.startswith("  lab/Other-GGUF:Other.gguf"))
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

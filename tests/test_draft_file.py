"""What `--draft` may be: a GGUF, a folder with one, or a checkpoint that is converted once."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path

import pytest

from dflash_gguf import ConvertError, ModelError
from dflash_gguf.draft_file import cache_folder, find_draft
from dflash_gguf.pair import check_pair

from .support.random_pairs import Pair


def checkpoint(pair: Pair) -> Path:
    return pair.draft.parent / "draft"


def test_a_file_is_itself_even_if_it_is_not_there(dense: Pair, tmp_path: Path) -> None:
    assert find_draft(dense.draft, dense.target) == dense.draft
    assert find_draft(tmp_path / "none.gguf", dense.target) == tmp_path / "none.gguf"


def test_of_a_folder_the_largest_drafter_is_taken(dense: Pair, tmp_path: Path) -> None:
    shutil.copy(dense.target, tmp_path / "target.gguf")
    with (tmp_path / "target.gguf").open("ab") as file:  # larger than any drafter
        file.write(b"\0" * 10_000_000)
    shutil.copy(dense.draft, tmp_path / "a-small.gguf")
    shutil.copy(dense.draft, tmp_path / "b-large.gguf")
    with (tmp_path / "b-large.gguf").open("ab") as file:
        file.write(b"\0" * 32)
    (tmp_path / "broken.gguf").write_text("x" * 1_000_000)
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    assert find_draft(tmp_path, dense.target).name == "b-large.gguf"


def test_a_folder_without_a_drafter_says_what_is_there(dense: Pair, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"expected a folder with a drafter's \.gguf .*, found neither",
    ):
        find_draft(tmp_path, dense.target)
    shutil.copy(dense.target, tmp_path / "target.gguf")
    with pytest.raises(ModelError, match=r"found target\.gguf; give the drafter's file"):
        find_draft(tmp_path, dense.target)


@pytest.mark.parametrize("what", ["draft", "draft/model.safetensors"])
def test_a_checkpoint_is_converted_once_and_said(
    pair: Pair, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = pair.draft.parent / what
    # a test of the command line may have taken the log for itself
    caplog.set_level(logging.INFO, "dflash_gguf")
    logging.getLogger("dflash_gguf").propagate = True
    first = find_draft(source, pair.target)
    assert first.is_relative_to(cache_folder())
    assert first.name.endswith("-BF16.gguf")
    assert "converting" in caplog.text
    check_pair(pair.target, first)
    before = first.stat().st_mtime_ns
    caplog.clear()
    assert find_draft(source, pair.target) == first
    assert first.stat().st_mtime_ns == before
    assert "converted before" in caplog.text


def test_a_changed_checkpoint_or_another_target_is_converted_again(
    dense: Pair, hybrid: Pair, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(checkpoint(dense), source)
    first = find_draft(source, dense.target)
    other = find_draft(source, hybrid.target)
    os.utime(source / "config.json", ns=(1, 1))
    again = find_draft(source, dense.target)
    assert len({first, other, again}) == 3


def test_a_checkpoint_that_does_not_fit_leaves_nothing_in_the_cache(
    dense: Pair, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConvertError):
        find_draft(tmp_path, dense.target)
    assert not list(cache_folder().rglob("*.gguf"))


def test_a_missing_target_is_named_before_anything_is_converted(
    dense: Pair, tmp_path: Path
) -> None:
    import dflash_gguf

    with pytest.raises(ModelError, match=r"none\.gguf: it cannot be read"):
        dflash_gguf.load(tmp_path / "none.gguf", checkpoint(dense))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DFLASH_GGUF_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("DFLASH_GGUF_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/dflash-gguf")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "dflash-gguf"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "dflash-gguf"

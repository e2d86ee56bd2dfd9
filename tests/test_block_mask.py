"""Drafters that mix causal and bidirectional layers: each layer runs with its own mask, whatever the batch.

Against PyTorch: tests/test_reference.py. Here: the same rows alone and in company, in every form of the cache.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf._native import core

from .support.edited import edited
from .support.random_pairs import Pair
from .test_drafting import BLOCK, Rig, assert_close, fresh, strengthened

MIXED = [True, False]
TEXT = [(i * 29 + 5) % 256 for i in range(40)]


@pytest.fixture(scope="module")
def strong(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return strengthened(pair, tmp_path_factory.mktemp("strong") / "d.gguf")


@pytest.fixture(scope="module")
def windowed(strong: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Layer 0 in a window wider than any text here: another mask tensor, the same sight."""
    return with_windows(strong, tmp_path_factory.mktemp("windowed"), [True, False])


def with_windows(pair: Pair, folder: Path, pattern: list[bool], window: int = 4096) -> Pair:
    keys = {
        "dflash.attention.sliding_window": window,
        "dflash.attention.sliding_window_pattern": pattern,
    }
    return Pair(pair.target, edited(pair.draft, folder / "w.gguf", change=keys))


@given(st.data())
def test_later_cells_are_those_of_later_positions_in_the_same_stream(data: st.DataObject) -> None:
    streams, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    total = streams * rows
    positions = data.draw(st.lists(st.integers(0, 5), min_size=total, max_size=total))
    cells = data.draw(st.lists(st.integers(0, 30), min_size=total, max_size=total, unique=True))
    runs = core().later_cells(positions, cells, rows)
    found = [(row, first + i) for row, first, count in runs for i in range(count)]
    expected = [
        (row, cells[other])
        for row in range(total)
        for other in range(total)
        if row // rows == other // rows and positions[other] > positions[row]
    ]
    assert sorted(found) == sorted(expected)
    assert len(runs) <= len(found)
    assert all(count > 0 for _, _, count in runs)


def test_a_stream_of_one_cell_per_row_is_hidden_in_one_run() -> None:
    assert core().later_cells([7, 8, 9], [3, 4, 5], 3) == [(0, 4, 2), (1, 5, 1)]
    with pytest.raises(ValueError, match="one position and one cell per row"):
        core().later_cells([1], [], 1)


@pytest.mark.parametrize("mixed", [[True, False], [False, True]])
def test_one_mask_for_all_layers_or_two_makes_no_difference(
    mixed: list[bool], strong: Pair, tmp_path: Path
) -> None:
    """Without a window the layers share one mask tensor, which then changes from layer to layer."""
    shared = fresh(strong, TEXT, causal=mixed).logits(0)
    own = fresh(with_windows(strong, tmp_path, mixed), TEXT, causal=mixed).logits(0)
    assert_close(shared, own)
    for one in (True, False):
        assert not np.allclose(fresh(strong, TEXT, causal=one).logits(0), own, atol=1e-2)


def test_a_narrow_window_holds_in_the_causal_layer_alone(strong: Pair, tmp_path: Path) -> None:
    narrow = with_windows(strong, tmp_path, MIXED, window=4)
    rows = fresh(narrow, TEXT, causal=MIXED).logits(0)
    assert not np.allclose(rows, fresh(strong, TEXT, causal=MIXED).logits(0), atol=1e-2)
    other = [*TEXT[:5], 99, *TEXT[6:]]  # far outside the window: the full layer sees it
    assert not np.allclose(rows, fresh(narrow, other, causal=MIXED).logits(0), atol=1e-3)


# llama.cpp quantises values only with flash attention
@pytest.mark.parametrize(
    ("flash", "kv"), [(0, 0), (1, 0), (1, 8)], ids=["softmax", "flash", "flash-q8_0"]
)
@pytest.mark.parametrize("unified", [True, False], ids=["unified", "split"])
@pytest.mark.parametrize("count", [1, 7, 32])
def test_drafts_in_company_are_those_drafted_alone(
    windowed: Pair, count: int, unified: bool, flash: int, kv: int
) -> None:
    form = {"unified": unified, "flash_attn": flash, "type_kv": kv}
    texts = [TEXT[i % 8 :] + TEXT[: 5 + i % 3] for i in range(count)]
    rig = Rig(windowed, sequences=count, causal=MIXED, draft=form)
    for text in texts:
        rig.add(text[:-1], max_tokens=1)
    finished = 0
    while finished < count:
        finished += len(rig.session.step())
    # last first: the order in the batch is not that of the cells
    turns = [(i, len(texts[i]) - 1, texts[i][-1], BLOCK - 1) for i in reversed(range(count))]
    drafted = rig.drafter.draft(turns)
    for (number, *_), tokens in list(zip(turns, drafted, strict=True))[:: max(1, count // 4)]:
        alone = fresh(windowed, texts[number], causal=MIXED, draft=form).logits(0)
        best = alone[1:]
        chosen = best[np.arange(len(tokens)), tokens]
        assert (best.max(axis=1) - chosen).max() < (0.05 if kv else 1e-3)


def test_masks_of_too_few_layers_are_refused(strong: Pair) -> None:
    with pytest.raises(ValueError, match="masks of 3 layers, the drafter has 2"):
        Rig(strong, causal=[True, False, True])


def test_layers_of_one_mask_must_agree(windowed: Pair, tmp_path: Path) -> None:
    both = with_windows(windowed, tmp_path, [True, True])
    with pytest.raises(RuntimeError, match="shares its mask with a layer of another kind"):
        Rig(both, causal=MIXED).drafter.probe()


def test_a_probe_leaves_nothing_behind(windowed: Pair) -> None:
    rig = Rig(windowed, causal=MIXED)
    rig.drafter.probe()
    before = rig.add(TEXT[:-1], max_tokens=1)
    rig.session.step()
    rig.tokens[before] = TEXT
    assert_close(rig.logits(before), fresh(windowed, TEXT, causal=MIXED).logits(0))


def test_a_loaded_pair_runs_as_its_file_says(strong: Pair, tmp_path: Path) -> None:
    """The same block through `load`: with the file's masks, or one for all where the caller wants it."""
    stated = edited(strong.draft, tmp_path / "d.gguf", change={"dflash_gguf.layer_causal": MIXED})
    for causal, masks in ((None, MIXED), (True, [True, True]), (False, [False, False])):
        # a text read in two pieces comes out 0.01 off: flash attention has half precision
        options = {"causal": causal, "kv_type": "f32", "prefix_memory": 0}
        with dflash_gguf.load(
            strong.target, stated, options=dflash_gguf.Options(**options)
        ) as engine:
            parts = engine._parts
            assert parts is not None
            assert isinstance(parts.drafter, core().ModelDrafter)
            number = parts.session.add(TEXT[:-1], max_tokens=1, block=2, stops=set())
            parts.session.step()
            rows = parts.drafter.block_logits(number, len(TEXT) - 1, TEXT[-1], BLOCK - 1)
            assert_close(rows, fresh(strong, TEXT, causal=masks).logits(0))

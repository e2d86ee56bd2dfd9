"""Behind the tokens of greedy texts our drafts are PyTorch's, and the limits that say so see the usual faults.

A few hundred anchors of the texts whose tapped states reference.npz holds, which are PyTorch's too;
benchmarks/per_anchor.py takes all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dflash_gguf

from .support.planted import FAULTS, dspark
from .support.tiny import BLOCK, Tiny

anchors: Any = pytest.importorskip("tests.support.anchors")

MASKS = [("trained", None), ("bidirectional", False), ("causal", True)]
EVERY, FEW = 6, 4  # every so many-th token is an anchor; of those, every so many-th for a fault


@cache
def texts(every: int = EVERY) -> list[Any]:
    """The reference's texts with tapped states; their first anchors are spread."""
    reference = Tiny(Path()).reference
    return [
        anchors.Text.of(
            Tiny(Path()).text(int(number)), int(reference["prompt_length"][number]), every, 2 * i
        )
        for i, number in enumerate(reference["tap_text"])
    ]


@cache
def pytorchs(mask: str, every: int = EVERY) -> Any:
    """PyTorch's drafts behind all anchors, from PyTorch's features."""
    reference, drafter = Tiny(Path()).reference, anchors.tiny_drafter()
    tables = anchors.target_tables(Tiny(Path()).target)
    starts = reference["tap_start"]
    taps = np.split(reference["taps"].astype(np.float32), starts[1:-1])
    return np.concatenate(
        [
            anchors.torch_drafts(drafter, tables, text, anchors.torch.from_numpy(rows), mask)
            for text, rows in zip(texts(every), taps, strict=True)
        ]
    )


def ours(
    target: Path, draft: Path, causal: bool | None, every: int = EVERY, missing: int = 0
) -> Any:
    kv = "f16" if target == Tiny(Path()).target else "f32"
    options: dict[str, Any] = {"threads": 1, "context": 512, "block": BLOCK, "kv_type": kv}
    # prefixes in its caches are all that is to be kept
    with dflash_gguf.load(target, draft, causal=causal, prefix_memory=1, **options) as engine:
        return np.concatenate(
            [anchors.engine_drafts(engine, text, missing=missing) for text in texts(every)]
        )


def compare(found: Any, mask: str, every: int = EVERY) -> Any:
    wanted = np.concatenate([text.wanted() for text in texts(every)])
    agreement = anchors.agreement(found, pytorchs(mask, every), wanted)
    print(mask, agreement)
    return agreement


@pytest.mark.parametrize(("mask", "causal"), MASKS)
def test_drafts_behind_every_anchor_are_pytorchs(  # P8
    tiny: Tiny, mask: str, causal: bool | None
) -> None:
    found = compare(ours(tiny.target_f32, tiny.draft("f32"), causal), mask)
    assert found.anchors >= 200
    assert found.same_prefix >= 0.98
    assert found.ratio == pytest.approx(1, abs=0.01)


def test_they_are_in_bf16(tiny: Tiny) -> None:
    found = compare(ours(tiny.target, tiny.draft("bf16"), None), "trained")
    assert found.same_prefix >= 0.97  # of 13,000 anchors: 0.99
    assert found.ratio == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("mask", [mask for mask, _ in MASKS])
def test_pytorchs_accepted_counts_are_those_of_the_reference(mask: str) -> None:
    """The other side of the comparison is what made reference.npz, in another process and precision of taps."""
    reference = Tiny(Path()).reference
    counts = {
        (int(text), int(place)): int(count)
        for text, place, count in zip(
            reference["anchor_text"],
            reference["anchor_position"],
            reference[f"accept_{mask}"],
            strict=True,
        )
    }
    stored = [
        counts[int(number), place]
        for number, text in zip(reference["tap_text"], texts(), strict=True)
        for place in text.anchors
    ]
    wanted = np.concatenate([text.wanted() for text in texts()])
    assert (anchors.accepted(pytorchs(mask), wanted) == stored).mean() >= 0.99


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_breaks_the_limits(tiny: Tiny, fault: str) -> None:
    few = FEW * EVERY
    found = compare(ours(tiny.target_f32, FAULTS[fault](tiny), None, few), "trained", few)
    assert not found.holds
    assert found.same_prefix < 0.9


# all layers causal is too near to what it was trained with; tests/test_reference.py sees it in the logits
@pytest.mark.parametrize(("causal", "missing"), [(False, 0), (None, 1)], ids=["both ways", "R7"])
def test_another_mask_and_a_missing_row_break_them(
    tiny: Tiny, causal: bool | None, missing: int
) -> None:
    few = FEW * EVERY
    draft = tiny.draft("f32")
    assert not compare(ours(tiny.target_f32, draft, causal, few, missing), "trained", few).holds


def test_the_layout_it_was_trained_with_is_no_fault(tiny: Tiny) -> None:  # C12
    draft = dspark(tiny, from_anchor=False)
    few = FEW * EVERY
    assert compare(ours(tiny.target_f32, draft, None, few), "trained", few).holds


@pytest.mark.parametrize(
    ("change", "prefix", "accepted", "block"),
    [
        (lambda d: None, 1.0, 1.0, 1.0),
        (lambda d: d.__setitem__((0, 3), 99), 1.0, 1.0, 0.5),  # behind what the text contradicts
        (lambda d: d.__setitem__((0, 2), 99), 0.5, 1.0, 0.5),  # another wrong token
        (lambda d: d.__setitem__((0, 0), 99), 0.5, 0.5, 0.5),
        (lambda d: d.__setitem__((0, 2), 7), 0.5, 0.5, 0.5),  # right where the other is wrong
        (lambda d: d.__setitem__((1, 2), 99), 1.0, 1.0, 0.5),  # behind the end of the text
    ],
)
def test_how_agreement_is_counted(
    change: Callable[[Any], None], prefix: float, accepted: float, block: float
) -> None:
    wanted = np.array([[5, 6, 7, 8], [7, 8, anchors.NONE, anchors.NONE]])
    reference = np.array([[5, 6, 9, 9], [7, 8, 9, 9]])
    found = reference.copy()
    change(found)
    agreement = anchors.agreement(found, reference, wanted)
    assert (agreement.same_prefix, agreement.same_accepted, agreement.same_block) == (
        prefix,
        accepted,
        block,
    )


def test_what_follows_each_anchor() -> None:
    text = anchors.Text.of([4, 5, 6, 7, 8], prompt=1)
    assert text.anchors == [1, 2, 3]
    assert text.wanted(3).tolist() == [[6, 7, 8], [7, 8, anchors.NONE], [8, *[anchors.NONE] * 2]]
    assert anchors.Text.of([4, 5, 6, 7, 8], prompt=1, every=2, first=3).anchors == [2]

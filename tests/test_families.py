"""DFlash2 and DSpark drafters: their blocks are PyTorch's, whoever else drafts and however wide they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .support.family_pairs import VARIANTS, FamilyPair, make_family_pair
from .support.family_rig import FamilyRig, target_tables

torch_drafter = pytest.importorskip("tests.support.torch_drafter")

TEXTS = [[(i * 37 + 11 * k) % 256 for i in range(12 + 5 * k)] for k in range(4)]
MARGIN = 1e-3  # below it sums of another order may choose another token
CLOSE = 2e-3


@pytest.fixture(scope="module", params=[(v, h) for v in VARIANTS for h in (False, True)], ids=str)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FamilyPair:
    variant, hybrid = request.param
    return make_family_pair(tmp_path_factory.mktemp(variant), variant, hybrid=hybrid)


def reference(made: FamilyPair, causal: list[bool] | None = None) -> Any:
    return torch_drafter.TorchDrafter(made.config, made.weights, *target_tables(made), causal)


def agree(found: tuple[list[int], list[float]], wanted: Any) -> bool:
    """Compare a block with PyTorch's; False if that is too near a tie to say."""
    if wanted.margin < MARGIN:
        return False
    assert found[0] == wanted.tokens
    np.testing.assert_allclose(found[1], wanted.confidence, atol=CLOSE)
    return True


def test_blocks_are_pytorchs(made: FamilyPair) -> None:
    """The widest block, narrower ones, and after other text has been drafted and forgotten."""
    rig, torch = FamilyRig(made), reference(made)
    said = []
    for k, text in enumerate(TEXTS):
        number, features = rig.read(text)
        for count in (made.most, 3, 1, made.most):
            (found,) = rig.draft((number, len(text), 65 + k, count))
            said.append(agree(found, torch.draft(features, 65 + k, count)))
            assert len(found[0]) == count
        rig.session.remove(number)
    assert sum(said) >= 0.8 * len(said)


def test_several_draft_in_one_decode_as_alone(made: FamilyPair) -> None:
    """Of unequal counts, and not in the order of their ids."""
    rig, torch = FamilyRig(made, sequences=4), reference(made)
    features = [rig.read(text)[1] for text in TEXTS]
    turns = [(k, len(TEXTS[k]), 65 + k, count) for k, count in ((2, 2), (0, 7), (3, 1), (1, 5))]
    said = []
    for (k, _, anchor, count), found in zip(turns, rig.draft(*turns), strict=True):
        # drafted as far as the longest, and cut
        wanted = torch.draft(features[k], anchor, 7)
        del wanted.tokens[count:], wanted.confidence[count:]
        said.append(agree((found[0][:count], found[1][:count]), wanted))
        assert len(found[0]) == count
    assert sum(said) >= 3

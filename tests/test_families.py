"""DFlash2 and DSpark drafters: their blocks are PyTorch's, mainline's and the reference's.

PyTorch's come from tests/support/torch_drafter.py, the others from drafts.json, which regenerate_drafts.py makes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_gguf._native import core
from dflash_gguf.convert import convert
from dflash_gguf.gguf_file import GgufFile

from .regenerate_drafts import ANCHORS, GOLDEN, NARROW, TEXTS, digest
from .support.family_pairs import VARIANTS, FamilyPair, make_family_pair
from .support.family_rig import FamilyRig, target_tables
from .support.random_pairs import VOCAB, Pair

MARGIN = 1e-3  # below it sums of another order may choose another token
CLOSE = 2e-3
SEED = 42
KINDS = [f"{variant}{hybrid}" for variant in VARIANTS for hybrid in ("", "-hybrid")]


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FamilyPair:
    return make(request.param, tmp_path_factory.mktemp(request.param))


def make(kind: str, folder: Path, **changes: Any) -> FamilyPair:
    variant = kind.removesuffix("-hybrid")
    return make_family_pair(folder, variant, hybrid=kind != variant, **changes)


def reference(made: FamilyPair, **options: Any) -> Any:
    torch_drafter = pytest.importorskip("tests.support.torch_drafter")
    return torch_drafter.TorchDrafter(made.config, made.weights, *target_tables(made), **options)


def agree(found: tuple[list[int], list[float]], wanted: Any) -> bool:
    """Compare a block with PyTorch's; False if that is too near a tie to say."""
    if wanted.margin < MARGIN:
        return False
    assert found[0] == wanted.tokens
    np.testing.assert_allclose(found[1], wanted.confidence, atol=CLOSE)
    return True


def gumbel_of(position: int, count: int) -> Any:
    """The target's noise at `count` positions, [count, n_vocab]."""
    at = range(position, position + count)
    return np.array([[core().gumbel(SEED, i, token) for token in range(VOCAB)] for i in at])


def test_blocks_are_pytorchs(made: FamilyPair) -> None:
    """The widest block, narrower ones, and after other text has been drafted and forgotten."""
    rig, torch = FamilyRig(made), reference(made)
    said = []
    for text, anchor in zip(TEXTS, ANCHORS, strict=True):
        number, features = rig.read(text)
        for count in (made.most, NARROW, 1, made.most):
            (found,) = rig.draft((number, len(text), anchor, count))
            said.append(agree(found, torch.draft(features, anchor, count)))
            assert len(found[0]) == count
        rig.session.remove(number)
    assert sum(said) >= 0.8 * len(said)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_mainlines_and_the_references(kind: str, tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["pairs"][kind]
    made = make(kind, tmp_path)
    assert digest(made) == golden["weights"], "another pair than drafts.json is of: make it again"
    rig = FamilyRig(made)
    for count in (made.most, NARROW):
        found = []
        for text, anchor in zip(TEXTS, ANCHORS, strict=True):
            number, _ = rig.read(text)
            found.append(rig.draft((number, len(text), anchor, count))[0][0])
            rig.session.remove(number)
        assert found == golden[str(count)]
        assert len(set(map(tuple, found))) == len(found)
        if count == made.most and "reference" in golden:
            assert found == golden["reference"]


@pytest.mark.parametrize("company", [4, 32])
def test_several_draft_in_one_decode_as_alone(made: FamilyPair, company: int) -> None:
    """Of unequal counts, and not in the order of their ids."""
    rig, torch = FamilyRig(made, sequences=company), reference(made)
    texts = [TEXTS[k % 4][k // 4 :] for k in range(company)]
    features = [rig.read(text)[1] for text in texts]
    order = [2, 0, 3, 1, *range(company - 1, 3, -1)]
    turns = [(k, len(texts[k]), 65 + k, (7, 5, 2, 1)[k % 4]) for k in order]
    found = rig.draft(*turns)
    said = []
    for (k, _, anchor, count), (tokens, confidence) in zip(turns[:6], found, strict=False):
        # drafted as far as the longest, and cut
        wanted = torch.draft(features[k], anchor, 7)
        del wanted.tokens[count:], wanted.confidence[count:]
        said.append(agree((tokens, confidence), wanted))
    assert [len(tokens) for tokens, _ in found] == [count for *_, count in turns]
    assert sum(said) >= 3


CACHES = [{"flash_attn": 1}, {"flash_attn": 1, "type_kv": 8}, {"unified": False}]


# a DSpark's cache is always unified; llama.cpp quantises values only with flash attention
@pytest.mark.parametrize(
    ("kind", "form"),
    [(kind, form) for kind in KINDS for form in CACHES[: 3 if "dflash2" in kind else 2]],
    ids=str,
)
def test_caches_of_every_form(kind: str, form: dict[str, Any], tmp_path: Path) -> None:
    made = make(kind, tmp_path)
    rig, torch = FamilyRig(made, sequences=4, draft=form), reference(made)
    features = [rig.read(text)[1] for text in TEXTS]
    turns = [(k, len(TEXTS[k]), 65 + k, made.most) for k in (2, 0, 1, 3)]
    same = []
    for (k, _, anchor, count), (tokens, _) in zip(turns, rig.draft(*turns), strict=True):
        wanted = torch.draft(features[k], anchor, count)
        same += [a == b for a, b in zip(tokens, wanted.tokens, strict=True)]
    print(kind, form, sum(same) / len(same))
    # rounded sums differ, and a token that does changes what follows
    assert sum(same) / len(same) >= (0.5 if "type_kv" in form else 0.9)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
def test_a_sampler_draws_along_its_own_way(made: FamilyPair, temperature: float) -> None:
    """With the target's noise of (seed, position, token), each token scored behind the one drawn before."""
    rig, torch = FamilyRig(made, sequences=2), reference(made)
    sampling = core().Sampling()
    sampling.temperature, sampling.seed = temperature, SEED
    features = [rig.read(text)[1] for text in TEXTS[:2]]
    for anchor in ANCHORS:
        turns = [(k, len(text), anchor, made.most - k) for k, text in enumerate(TEXTS[:2])]
        said, moved = [], False
        if temperature == 0:  # not the best either: some tokens are wanted more
            sampling.bias = [(token, 8.0) for token in range(anchor % 7, VOCAB, 7)]
        for (k, pos, _, count), found in zip(
            turns, rig.draft(*turns, sampling=sampling), strict=True
        ):
            noise = np.zeros((made.most, VOCAB))
            for token, value in sampling.bias:
                noise[:, token] = value
            if temperature > 0:
                noise = gumbel_of(pos + 1, made.most)
            wanted = torch.draft(
                features[k], anchor, made.most, temperature=temperature or 1.0, noise=noise
            )
            del wanted.tokens[count:], wanted.confidence[count:]
            moved |= wanted.tokens[:-1] != torch.draft(features[k], anchor, count).tokens[:-1]
            said.append(agree(found, wanted))
        assert any(said)
        assert moved or made.config["dflash_config"].get("selector_rank")


@pytest.mark.parametrize("variant", ["dflash2", "dspark", "dspark-bonus"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_layers_run_with_the_masks_they_were_trained_with(
    variant: str, hybrid: bool, tmp_path: Path
) -> None:
    changes = {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 128,
        "use_sliding_window": True,
        "max_window_layers": 2,
    }
    made = make_family_pair(tmp_path, variant, hybrid=hybrid, **changes)
    rig = FamilyRig(made, sequences=2)
    assert rig.facts.causal == (True, False)
    features = [rig.read(text)[1] for text in TEXTS[:2]]
    turns = [(k, len(text), 65, 6) for k, text in enumerate(TEXTS[:2])]
    found = rig.draft(*turns)
    trained = reference(made, causal=[True, False])
    other = reference(made, causal=[False, False])
    assert all(agree(found[k], trained.draft(features[k], 65, 6)) for k in range(2))
    assert all(found[k][0] != other.draft(features[k], 65, 6).tokens for k in range(2))
    sampling = core().Sampling()
    sampling.temperature, sampling.seed = 0.5, SEED
    for k, drawn in enumerate(rig.draft(*turns, sampling=sampling)):
        noise = gumbel_of(len(TEXTS[k]) + 1, 6)
        assert agree(drawn, trained.draft(features[k], 65, 6, temperature=0.5, noise=noise))


@pytest.mark.parametrize("variant", ["dflash2", "dspark"])
def test_a_trimmed_head_drafts_what_it_knows(variant: str, tmp_path: Path) -> None:
    made = make_family_pair(tmp_path, variant)
    (written,) = convert(
        tmp_path / "draft",
        made.pair.target,
        outdir=tmp_path / "t",
        outtypes=["f32"],
        draft_vocab=50,
    )
    with GgufFile(written.path) as file:
        known = np.frombuffer(file.data("d2t"), "<i8").tolist()
    trimmed = replace(made, pair=Pair(made.pair.target, written.path))
    rig, torch = FamilyRig(trimmed), reference(made, known=known)
    for text, anchor in zip(TEXTS[:3], ANCHORS, strict=False):
        number, features = rig.read(text)
        (found,) = rig.draft((number, len(text), anchor, 7))
        assert agree(found, torch.draft(features, anchor, 7))
        assert set(found[0]) <= set(known)
        rig.session.remove(number)


def rolled(name: str, axis: int = 0) -> Any:
    def change(weights: dict[str, Any]) -> None:
        weights[name] = np.roll(weights[name], 1, axis)

    return change


def swapped(weights: dict[str, Any]) -> None:
    one, other = (
        f"candidate_selector.{name}"
        for name in ("predecessor_codebook", "successor_codebook.weight")
    )
    weights[one], weights[other] = weights[other], weights[one]


FAULTS = [
    ("dflash2", swapped),
    ("dflash2", rolled("candidate_selector.predecessor_codebook")),
    ("dflash2", rolled("layers.0.attention_conv.base_kernel", 1)),
    ("dflash2", rolled("layers.1.mlp_conv.base_kernel")),
    ("dspark", rolled("markov_head.markov_w1.weight")),
    ("dspark-bonus", rolled("markov_head.markov_w2.weight")),
    ("dspark-reduced", rolled("markov_head.markov_w2.weight")),
]


@pytest.mark.parametrize(("variant", "fault"), FAULTS)
def test_the_comparison_sees_faults(variant: str, fault: Any, tmp_path: Path) -> None:
    made = make_family_pair(tmp_path, variant)
    rig = FamilyRig(made)
    number, features = rig.read(TEXTS[3])
    (found,) = rig.draft((number, len(TEXTS[3]), 65, 7))
    assert agree(found, reference(made).draft(features, 65, 7))
    fault(made.weights)
    assert found[0] != reference(made).draft(features, 65, 7).tokens


def test_another_layout_drafts_something_else(tmp_path: Path) -> None:
    """The same weights, with the first row read as a draft or not."""
    drafts = []
    for variant in ("dspark", "dspark-bonus"):
        rig = FamilyRig(make_family_pair(tmp_path / variant, variant))
        number, _ = rig.read(TEXTS[1])
        drafts.append(rig.draft((number, len(TEXTS[1]), 65, 7))[0])
    assert drafts[0][0][:3] != drafts[1][0][:3]
    assert drafts[0][1] != drafts[1][1]

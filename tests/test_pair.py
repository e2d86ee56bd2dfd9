"""Files that cannot be a pair are refused before anything is loaded, with both values named."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import ModelError
from dflash_gguf.convert.target import read_target
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.pair import check_pair, read_draft

from .support.edited import edited
from .support.random_pairs import HIDDEN, LAYERS, MASK, VOCAB, Pair, make_target

AGAIN = "converted by an older tool; convert it again with 'dflash-gguf convert'"


def refusal(target: Path, draft: Path) -> str:
    """The one line that a pair is refused with, by the check and by load alike."""
    with pytest.raises(ModelError) as caught:
        check_pair(target, draft)
    with pytest.raises(ModelError) as again:
        dflash_gguf.load(target, draft, threads=1)
    assert str(again.value) == str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_pair_that_fits_gives_the_drafters_facts(pair: Pair) -> None:
    draft = check_pair(pair.target, pair.draft)
    assert (draft.block, draft.mask, draft.taps, draft.causal) == (
        8,
        MASK,
        (1, 3),
        (False, False),
    )
    assert draft == read_draft(pair.draft)
    with GgufFile(pair.target) as file:
        read_target(file)


def test_the_drafters_own_causality_is_read(dense: Pair, tmp_path: Path) -> None:
    causal = edited(dense.draft, tmp_path / "d.gguf", change={"dflash.attention.causal": True})
    assert read_draft(causal).causal


@pytest.mark.parametrize(
    "key",
    [
        "tokenizer.ggml.mask_token_id",
        "tokenizer.ggml.tokens",
        "dflash.target_layers",
        "dflash.block_size",
        "dflash.block_count",
        "dflash.context_length",
        "dflash.embedding_length",
        "dflash.feed_forward_length",
        "dflash.attention.head_count",
        "dflash.attention.head_count_kv",
        "dflash.attention.layer_norm_rms_epsilon",
        "dflash.rope.freq_base",
    ],
)
def test_a_missing_key_is_named(pair: Pair, tmp_path: Path, key: str) -> None:  # C17
    draft = edited(pair.draft, tmp_path / "d.gguf", drop=(key,))
    assert refusal(pair.target, draft) == f"{draft}: the key {key} is missing; the file was {AGAIN}"


def test_a_window_needs_its_pattern_and_the_other_way_round(dense: Pair, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "dflash.attention.sliding_window": 64,
        "dflash.attention.sliding_window_pattern": [True, False],
    }
    for missing in keys:
        half = {key: value for key, value in keys.items() if key != missing}
        draft = edited(dense.draft, tmp_path / "d.gguf", change=half)
        assert f"the key {missing} is missing" in refusal(dense.target, draft)
    check_pair(dense.target, edited(dense.draft, tmp_path / "d.gguf", change=keys))


def test_any_key_may_be_missing_without_a_crash(pair: Pair, tmp_path: Path) -> None:
    for path in (pair.draft, pair.target):
        with GgufFile(path) as file:
            keys = [key for key in file.fields if key != "general.architecture"]
        for key in keys:
            other = edited(path, tmp_path / "other.gguf", drop=(key,))
            files = (pair.target, other) if path == pair.draft else (other, pair.draft)
            with suppress(ModelError):
                dflash_gguf.load(*files, threads=1, context=64).close()


def change(key: str, value: Any) -> dict[str, Any]:
    return {key: value}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (change("dflash.embedding_length", 96), [f"hidden size 96, but {{target}} has {HIDDEN}"]),
        (
            change("tokenizer.ggml.tokens", ["a", "b"]),
            [f"vocabulary size 2, but {{target}} has {VOCAB}"],
        ),
        (
            change("tokenizer.ggml.mask_token_id", VOCAB),
            [f"mask token {VOCAB} is outside the vocabulary of {VOCAB}"],
        ),
        (
            change("dflash.target_layers", [1, LAYERS]),
            [f"layers [1, {LAYERS}]", "{target} has layers 0 to 3"],
        ),
        (change("dflash.target_layers", [-1, 2]), ["layers [-1, 2]", "{target} has layers 0 to 3"]),
        (change("dflash.block_size", 1), ["dflash.block_size 1; expected", "a block of 2"]),
    ],
)
def test_values_that_do_not_fit_are_named(
    dense: Pair, tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:  # L5
    draft = edited(dense.draft, tmp_path / "d.gguf", change=changes)
    text = refusal(dense.target, draft)
    assert text.startswith(f"{draft}: ")
    for part in words:
        assert part.format(target=dense.target) in text


def test_taps_must_be_numbers(dense: Pair, tmp_path: Path) -> None:
    source = edited(dense.draft, tmp_path / "a.gguf", drop=("dflash.target_layers",))
    draft = edited(source, tmp_path / "b.gguf", change={"dflash.target_layers": ["one", "two"]})
    assert "dflash.target_layers is ['one', 'two']" in refusal(dense.target, draft)


def test_other_tokens_of_the_same_number_are_refused(dense: Pair, tmp_path: Path) -> None:  # L5
    with GgufFile(dense.draft) as file:
        tokens = file.array("tokenizer.ggml.tokens")
    swapped = [tokens[1], tokens[0], *tokens[2:]]
    draft = edited(dense.draft, tmp_path / "d.gguf", change={"tokenizer.ggml.tokens": swapped})
    text = refusal(dense.target, draft)
    assert "though both have the same size; give the target this drafter was trained for" in text
    ours, theirs = re.findall(r"\b[0-9a-f]{12}\b", text)
    assert ours != theirs


PADDED = VOCAB + 10


def padded_tokens(source: Path, to: Path) -> Path:
    """Write a target or a drafter as converters pad it: tokens that nobody says, up to a round number."""
    with GgufFile(source) as file:
        tokens = file.array("tokenizer.ggml.tokens")
        kinds = file.array("tokenizer.ggml.token_type")
    more = [f"[PAD{number}]" for number in range(VOCAB, PADDED)]
    unused = [5] * len(more)
    return edited(
        source,
        to,
        change={
            "tokenizer.ggml.tokens": tokens + more,
            "tokenizer.ggml.token_type": kinds + unused,
        },
    )


def test_a_padded_vocabulary_is_refused_by_both_sizes(pair: Pair, tmp_path: Path) -> None:  # L5
    draft, target = (
        padded_tokens(path, tmp_path / path.name) for path in (pair.draft, pair.target)
    )
    assert refusal(pair.target, draft) == (
        f"{draft}: vocabulary size {PADDED}, but {pair.target} has {VOCAB}; give the target this drafter was "
        "trained for"
    )
    assert refusal(target, pair.draft) == (
        f"{pair.draft}: vocabulary size {VOCAB}, but {target} has {PADDED}; give the target this drafter was "
        "trained for"
    )


@pytest.mark.parametrize("rows", [PADDED, VOCAB - 1])
@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight"])
def test_padded_rows_are_refused_by_both_sizes(
    pair: Pair, tmp_path: Path, name: str, rows: int
) -> None:  # L5
    words = f"{name} has {rows} rows, but the vocabulary of {{}} has {VOCAB} tokens; one of them"
    draft = edited(pair.draft, tmp_path / "d.gguf", rows={name: rows})
    assert refusal(pair.target, draft).startswith(f"{draft}: {words.format(pair.target)}")
    target = edited(pair.target, tmp_path / "t.gguf", rows={name: rows})
    assert refusal(target, pair.draft).startswith(f"{target}: {words.format(target)}")


def test_sections_must_be_as_the_target_needs_them(
    dense: Pair, hybrid: Pair, tmp_path: Path
) -> None:
    sections = "dflash.rope.dimension_sections"
    without = edited(hybrid.draft, tmp_path / "without.gguf", drop=(sections,))
    assert f"lacks {sections}, but the positions of qwen35 need the sections" in refusal(
        hybrid.target, without
    )
    # as the dense target's drafter would have been converted for a hybrid one
    with_them = edited(dense.draft, tmp_path / "with.gguf", change={sections: [16, 0, 0, 0]})
    assert f"has {sections}, but the positions of qwen3 need no sections" in refusal(
        dense.target, with_them
    )


@pytest.mark.parametrize("arch", ["dflash-draft", "dflash_draft", "dspark"])
def test_forks_formats_are_named(dense: Pair, tmp_path: Path, arch: str) -> None:  # L1
    draft = edited(dense.draft, tmp_path / "d.gguf", arch=arch)
    text = refusal(dense.target, draft)
    assert f"architecture '{arch}' is a fork's format; expected 'dflash'" in text
    assert "convert the drafter's checkpoint" in text


SELECTOR, MARKOV = "selector_hidden.weight", "markov_w1.weight"
CONVOLUTION = {"conv_kernel_size": 3, "conv_group_size": 16, "selector_rank": 16}


@pytest.mark.parametrize(
    ("tensors", "keys", "said"),
    [
        ((SELECTOR, MARKOV), {}, "it has tensors of DFlash2 and DSpark drafters"),
        ((MARKOV,), {"hyper_connection_count": 4}, "DeepSeek-V4's DSpark drafters are not driven"),
        ((MARKOV,), {"has_confidence_head": True}, "but there is no conf_proj.weight"),
        ((SELECTOR,), {}, "dflash.conv_kernel_size is missing or below 1"),
        ((SELECTOR,), {**CONVOLUTION, "selector_top_k": 0}, "dflash.selector_top_k is missing or"),
        ((SELECTOR,), {**CONVOLUTION, "selector_top_k": 8}, "at most dflash.embedding_length = 64"),
        ((), {"selector_top_k": 6}, "but there is no selector_hidden.weight"),
    ],
)
def test_layouts_that_are_not_driven_are_named(
    dense: Pair, tmp_path: Path, tensors: tuple[str, ...], keys: dict[str, Any], said: str
) -> None:
    change = {f"dflash.{key}": value for key, value in keys.items()}
    draft = edited(dense.draft, tmp_path / "d.gguf", add_tensors=tensors, change=change)
    text = refusal(dense.target, draft)
    assert said in text
    assert text.startswith(f"{draft}: ")


def test_the_wrong_way_round(pair: Pair) -> None:
    assert "expected 'dflash'; is this the target? Then give it as --target" in refusal(
        pair.target, pair.target
    )
    assert "it is a drafter (dflash); expected the target model" in refusal(pair.draft, pair.draft)
    with pytest.raises(ModelError, match="it is a drafter"):
        dflash_gguf.load(pair.draft)


def test_a_target_that_gives_no_features_is_refused_only_with_a_drafter(
    dense: Pair, tmp_path: Path
) -> None:  # L6
    target = edited(
        dense.target,
        tmp_path / "t.gguf",
        arch="gpt2",
        change={"gpt2.embedding_length": HIDDEN, "gpt2.block_count": LAYERS},
    )
    text = refusal(target, dense.draft)
    assert "architecture 'gpt2' does not give out its layers' inputs in llama.cpp" in text
    assert "run it without --draft" in text
    with GgufFile(target) as file:
        read_target(file)


def test_another_targets_width_is_named(dense: Pair, tmp_path: Path) -> None:
    wide = edited(dense.target, tmp_path / "t.gguf", change={"qwen3.embedding_length": 128})
    assert f"hidden size {HIDDEN}, but {wide} has 128" in refusal(wide, dense.draft)


def not_models(folder: Path) -> dict[str, tuple[Path, str]]:
    text, empty = folder / "text.gguf", folder / "empty.gguf"
    text.write_text("hello, I am no model\n")
    empty.write_bytes(b"")
    return {
        "a text": (text, "it begins with b'hell'; expected b'GGUF'"),
        "an empty file": (empty, "it is empty; expected a GGUF model file"),
        "a missing file": (folder / "none.gguf", "it cannot be read (No such file or directory)"),
    }


@pytest.mark.parametrize("what", ["a text", "an empty file", "a missing file"])
def test_what_is_no_gguf_is_refused_on_either_side(dense: Pair, tmp_path: Path, what: str) -> None:
    path, words = not_models(tmp_path)[what]
    assert words in refusal(dense.target, path)
    assert words in refusal(path, dense.draft)
    with pytest.raises(ModelError) as caught:
        dflash_gguf.load(path)
    assert words in str(caught.value)


def test_a_folder_is_no_target(dense: Pair, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="it is a folder; expected a GGUF model file"):
        dflash_gguf.load(tmp_path, dense.draft)


@given(st.floats(0, 1, exclude_max=True), st.booleans())
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_a_file_cut_off_anywhere_is_refused(
    dense: Pair, tmp_path: Path, share: float, target: bool
) -> None:
    whole = dense.target if target else dense.draft
    cut = tmp_path / "cut.gguf"
    shutil.copy(whole, cut)
    with cut.open("r+b") as file:
        file.truncate(int(whole.stat().st_size * share))
    files = (cut, dense.draft) if target else (dense.target, cut)
    with pytest.raises(ModelError) as caught:
        dflash_gguf.load(*files)
    assert str(caught.value).startswith(f"{cut}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("short", [1, 31])
def test_a_file_that_lacks_its_last_bytes_is_refused(
    pair: Pair, tmp_path: Path, short: int
) -> None:
    for path in (pair.target, pair.draft):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(path.read_bytes()[:-short])
        files = (cut, pair.draft) if path == pair.target else (pair.target, cut)
        with pytest.raises(ModelError, match=f"ends {short} bytes behind the end of the file"):
            dflash_gguf.load(*files)


def test_a_hybrid_target_of_another_seed_is_another_model_with_the_same_shape(
    hybrid: Pair, tmp_path: Path
) -> None:
    # nothing in the files tells them apart: the drafter is merely bad, and the text stays the target's
    other = make_target(tmp_path / "t.gguf", hybrid=True, seed=1)
    check_pair(other, hybrid.draft)

"""A head of the drafter's own for a part of the vocabulary: which tokens, which bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest

from dflash_gguf._native import core
from dflash_gguf.convert import convert
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.inspection import inspect_file, render

from ..support.command import command
from ..support.edited import edited
from .cases import CASES
from .made import (
    EOS,
    VOCAB,
    make_checkpoint,
    make_config,
    make_mask,
    make_values,
    vocabulary,
)
from .trimmed import (
    BY_NAME,
    HIDDEN,
    SPECIAL,
    edited_target,
    head_of,
    ids_of,
    rows_of,
    run,
    target_of,
)


@pytest.mark.parametrize("size", [20, 21, 100, 290, VOCAB])
def test_the_first_tokens_and_the_special_ones(size: int, tmp_path: Path) -> None:
    (written,) = run(tmp_path, size)
    ids = ids_of(written.path)
    assert ids == [*range(size - len(SPECIAL)), *SPECIAL]
    assert head_of(written.path) == ("F32", rows_of(tmp_path / "t.gguf", "output.weight", ids))
    with GgufFile(written.path) as file:
        assert file.tensors["output.weight"].shape == (HIDDEN, size)
        assert "token_embd.weight" not in file.tensors
        told = {
            key.rpartition(".")[2]: file.value(key) for key in file.fields if ".draft_vocab." in key
        }
    assert told == {
        "tokens": size,
        "always_kept": len(SPECIAL),
        "order": "merges",
        "head": "output.weight F32",
    }


def test_a_tied_targets_embeddings_are_its_head(tmp_path: Path) -> None:
    (written,) = run(tmp_path, 64, tied=True)
    rows = rows_of(tmp_path / "t.gguf", "token_embd.weight", ids_of(written.path))
    assert head_of(written.path) == ("F32", rows)
    with GgufFile(written.path) as file:
        assert file.string("dflash_gguf.draft_vocab.head") == "token_embd.weight F32"


@pytest.mark.parametrize("dtype", ["Q8_0", "Q6_K", "Q4_K", "Q4_0", "Q2_K"])
def test_a_quantised_head_stays_byte_for_byte(dtype: str, tmp_path: Path) -> None:
    files = run(tmp_path, 77, dtype=dtype, outtypes=["f32", "bf16", "q5_k_m", "q4_0"])
    rows = rows_of(tmp_path / "t.gguf", "output.weight", ids_of(files[0].path))
    for written in files:
        assert head_of(written.path) == (dtype, rows)
        assert not any("output.weight" in text for text in written.warnings)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_a_plain_head_takes_the_outputs_type(dtype: str, tmp_path: Path) -> None:
    files = run(tmp_path, 77, dtype=dtype, outtypes=["f32", "bf16", "q8_0", "q5_k_m"])
    assert [head_of(written.path)[0] for written in files] == ["F32", "BF16", "Q8_0", "Q6_K"]
    # by another way: all rows first, then the chosen ones
    whole = bytearray(VOCAB * HIDDEN * 4)
    with GgufFile(tmp_path / "t.gguf") as file:
        number = file.tensors["output.weight"].type.number
        core().convert_rows(file.data("output.weight"), number, whole, 0, VOCAB, HIDDEN, 1)
    values = np.frombuffer(whole, "<f4").reshape(VOCAB, HIDDEN)
    chosen = np.ascontiguousarray(values[ids_of(files[0].path)])
    for written in files:
        kind, data = head_of(written.path)
        expected = bytearray(77 * BY_NAME[kind].row_bytes(HIDDEN))
        core().convert_rows(chosen.data, 0, expected, BY_NAME[kind].number, 77, HIDDEN, 1)
        assert data == bytes(expected)


@pytest.mark.parametrize("dtype", ["F32", "Q8_0"])
def test_the_heads_type_can_be_wished_for_in_every_output(dtype: str, tmp_path: Path) -> None:
    outtypes = ["bf16", "q4_k_m"]
    files = run(tmp_path, 50, dtype=dtype, outtypes=outtypes, tensor_types=["^output=q6_K"])
    plain = run(tmp_path / "other", 50, dtype=dtype, outtypes=outtypes)
    for written, other in zip(files, plain, strict=True):
        assert head_of(written.path)[0] == "Q6_K"
        types, others = (
            {t.name: t.type for t in w.tensors if t.name != "output.weight"}
            for w in (written, other)
        )
        assert types == others
    (wide,) = run(tmp_path, 50, dtype="Q8_0", tensor_types=["^output=f32"])
    assert head_of(wide.path)[0] == "F32"


def test_pieces_of_scattered_rows_come_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text"
    text.write_text("".join("etaoinshrdlu"[i % 12] * (i % 5 + 1) + "!?#"[i % 3] for i in range(99)))
    (whole,) = run(tmp_path, 111, draft_vocab_text=text)
    monkeypatch.setattr("dflash_gguf.convert.stream._PIECE", 3 * HIDDEN * 4 + 5)
    (pieces,) = run(tmp_path / "other", 111, draft_vocab_text=text)
    ids = ids_of(whole.path)
    assert ids == ids_of(pieces.path)
    assert max(np.diff(ids)) > 1
    rows = rows_of(tmp_path / "t.gguf", "output.weight", ids)
    assert head_of(whole.path) == head_of(pieces.path) == ("F32", rows)


def test_the_most_frequent_tokens_of_a_text(tmp_path: Path) -> None:
    tokens, _ = vocabulary()
    last = tokens[EOS - 1]
    text = tmp_path / "text"
    # the mark of a special token is one, not its letters; broken UTF-8 does not matter
    text.write_bytes(f"{last}\n".encode() * 50_000 + b"zz<|special_3|>" * 2000 + b"\xff" * 10)
    (written,) = run(tmp_path, len(SPECIAL) + 3, draft_vocab_text=text)
    chosen = [tokens[token] for token in ids_of(written.path) if token < EOS]
    assert sorted(chosen) == sorted([last, "\u010a", "z"])
    with GgufFile(written.path) as file:
        assert file.string("dflash_gguf.draft_vocab.order") == "text"
        covered = file.number("dflash_gguf.draft_vocab.text_coverage")
        assert 0.999 < covered < 1
        assert len(file.string("dflash_gguf.draft_vocab.text_sha256")) == 64
    # what the text does not have comes in the usual order
    (wider,) = run(tmp_path, len(SPECIAL) + 100, draft_vocab_text=text)
    expected = {*SPECIAL, *range(100)}
    assert len(expected ^ set(ids_of(wider.path))) < 12


def test_a_text_without_lines_or_words(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("e" * 200_000)
    (written,) = run(tmp_path, len(SPECIAL) + 2, draft_vocab_text=text)
    tokens, _ = vocabulary()
    assert [tokens[i] for i in ids_of(written.path) if i < EOS][-1] == "ee"


def chosen_by(target: Path, folder: Path, size: int) -> list[int]:
    draft = make_checkpoint(folder / "d", make_config())
    (written,) = convert(
        draft, target, outtypes=["bf16"], outdir=folder / "out", draft_vocab=size, force=True
    )
    return ids_of(written.path)


def test_the_order_of_merges_counts_not_that_of_ids(tmp_path: Path) -> None:
    _, merges = vocabulary()
    target = edited_target(tmp_path, merges=merges[::-1])
    assert chosen_by(target, tmp_path, 256 + 20 + 3) == [
        *range(256),
        *[EOS - 3, EOS - 2, EOS - 1],
        *SPECIAL,
    ]


def test_scores_tell_where_there_are_no_merges(tmp_path: Path) -> None:
    scores = [float(i % 7) for i in range(VOCAB)]
    bare = edited(target_of(tmp_path), tmp_path / "b.gguf", drop=("tokenizer.ggml.merges",))
    target = edited(bare, tmp_path / "s.gguf", change={"tokenizer.ggml.scores": scores})
    assert chosen_by(target, tmp_path, 25) == [6, 13, 20, 27, 34, *SPECIAL]
    assert chosen_by(bare, tmp_path, 25) == [0, 1, 2, 3, 4, *SPECIAL]


def test_what_is_always_kept(tmp_path: Path) -> None:
    tokens, _ = vocabulary()
    kinds = [1] * VOCAB
    kinds[290], kinds[291], kinds[292], kinds[10] = 4, 2, 6, 5
    tokens[295], tokens[296] = "<|im_end|>", "<end_of_turn>"
    target = edited_target(
        tmp_path, tokens=tokens, token_type=kinds, bos_token_id=270, eos_token_ids=[280, 281]
    )
    marks = [i for i, token in enumerate(tokens) if token.startswith("<|")]
    kept = sorted({270, 280, 281, 290, 291, 296, EOS, *marks})
    assert chosen_by(target, tmp_path, len(kept)) == kept
    # a token that is never used comes last
    free = [i for i in range(VOCAB) if i not in kept]
    assert chosen_by(target, tmp_path, len(kept) + 11) == sorted(
        [*kept, *[i for i in free if i != 10][:11]]
    )
    assert 10 not in chosen_by(target, tmp_path, VOCAB - 1)
    assert 10 in chosen_by(target, tmp_path, VOCAB)


def test_a_dspark_keeps_the_rows_of_its_markov_head(tmp_path: Path) -> None:
    changes = {"markov_rank": 32, "block_size": 8, "sample_from_anchor": True}
    (written,) = run(tmp_path, 90, changes=changes)
    ids = ids_of(written.path)
    with GgufFile(written.path) as file:
        assert file.tensors["markov_w1.weight"].shape == (32, VOCAB)
        assert file.tensors["markov_w2.weight"].shape == (32, 90)
        found = np.frombuffer(file.data("markov_w2.weight"), "<f4").reshape(90, 32)
    values = make_values("markov_head.markov_w2.weight", VOCAB * 32).reshape(VOCAB, 32)
    np.testing.assert_array_equal(found, values[ids])


@pytest.mark.parametrize("name", ["plain", "windows", "dflash2", "dspark", "mask"])
def test_llama_cpp_loads_it(name: str, tmp_path: Path) -> None:
    core()
    case = next(case for case in CASES if case.name == name)
    if case.mask:
        pytest.importorskip("torch")
    draft, _ = case.write(tmp_path)
    for written in convert(draft, target_of(tmp_path / "with"), draft_vocab=100):
        model = llama_cpp.llama_model_load_from_file(
            str(written.path).encode(), llama_cpp.llama_model_default_params()
        )
        assert model, written.path
        llama_cpp.llama_model_free(model)


def test_a_learned_mask_row_and_a_trimmed_head(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    draft = make_checkpoint(tmp_path / "d", make_config(tie_word_embeddings=True))
    make_mask(draft / "mask_embedding.pt", HIDDEN)
    (written,) = convert(draft, target_of(tmp_path), outtypes=["f32"], draft_vocab=100)
    with GgufFile(written.path) as file:
        assert file.tensors["token_embd.weight"].shape == (HIDDEN, VOCAB)
        assert file.tensors["output.weight"].shape == (HIDDEN, 100)


def test_inspect_says_it(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("in the sun")
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {},
            "its own, for 50 of 320 tokens: the first ones by the tokenizer's merges, and 20 that",
        ),
        ({"draft_vocab_text": text}, "tokens: the most frequent ones of a text (sha256 "),
    ]
    for options, said in cases:
        (written,) = run(tmp_path, 50, **options)
        report = inspect_file(written.path, tmp_path / "t.gguf")
        assert said in report.head
        assert f"  head: {report.head}\n" in render(report)
        assert report.as_dict()["head"] == report.head
        assert report.fit is not None
        assert report.fit.fits, report.fit.reason
    assert "100.00% of it" in report.head


def test_the_command_line(tmp_path: Path) -> None:
    draft, target = make_checkpoint(tmp_path / "d", make_config()), target_of(tmp_path)
    text = tmp_path / "text"
    text.write_text("the end")
    arguments = ("convert", draft, "--target", target, "--outtype", "bf16", "--draft-vocab")
    done = command(*arguments, 60, "--draft-vocab-text", text, "--tensor-type", "^output=q4_k")
    assert done.returncode == 0, done.stderr
    assert head_of(draft / "d-BF16.gguf")[0] == "Q4_K"
    shown = command("inspect", draft / "d-BF16.gguf")
    assert "head: its own, for 60 of 320 tokens: the most frequent ones of a text" in shown.stdout
    failed = command(*arguments, 5, "--force")
    assert failed.returncode == 2
    assert "20 tokens of" in failed.stderr

"""A head of the drafter's own for a part of the vocabulary: which tokens, which bytes, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest

from dflash_gguf._native import core
from dflash_gguf.convert import Written, convert
from dflash_gguf.errors import ConvertError, DflashError, UsageError
from dflash_gguf.ggml_types import TENSOR_TYPES
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.inspection import inspect_file, render

from ..support.command import command
from ..support.edited import edited
from .cases import CASES
from .made import (
    EOS,
    VOCAB,
    Weights,
    make_checkpoint,
    make_config,
    make_d2t,
    make_mask,
    make_tables,
    make_target,
    make_values,
    make_weights,
    pack,
    vocabulary,
)

SPECIAL = list(range(EOS, VOCAB))
HIDDEN = 256
_BY_NAME = {kind.name: kind for kind in TENSOR_TYPES.values()}


def tables(dtype: str) -> Weights:
    """A target's embeddings and head; quantised ones are made of the f32 ones."""
    if dtype in {"F32", "F16", "BF16"}:
        return make_tables(HIDDEN, dtype)
    kind = _BY_NAME[dtype]
    found = {}
    for name, (_, shape, data) in make_tables(HIDDEN, "F32").items():
        rows = bytearray(VOCAB * kind.row_bytes(HIDDEN))
        core().convert_rows(data, 0, rows, kind.number, VOCAB, HIDDEN, 1)
        # gguf-py takes the shape in bytes
        found[name] = (dtype, shape, bytes(rows))
    return found


def target_of(folder: Path, dtype: str = "F32", *, tied: bool = False, **options: Any) -> Path:
    weights = tables(dtype)
    if tied:
        del weights["output.weight"]
    return make_target(folder / "t.gguf", architecture="qwen3", tensors=weights, **options)


def run(
    folder: Path,
    size: int,
    *,
    dtype: str = "F32",
    tied: bool = False,
    changes: dict[str, Any] | None = None,
    extra: Weights | None = None,
    outtypes: Sequence[str] = ("f32",),
    **options: Any,
) -> list[Written]:
    """Convert a made checkpoint with a trimmed head."""
    config = make_config(**(changes or {}))
    weights = make_weights(config, "F32") | (extra or {})
    draft = make_checkpoint(folder / "d", config, weights=weights)
    target = target_of(folder, dtype, tied=tied)
    return convert(draft, target, outtypes=outtypes, draft_vocab=size, force=True, **options)


def ids_of(path: Path) -> list[int]:
    with GgufFile(path) as file:
        assert file.tensors["d2t"].type.name == "I64"
        found: list[int] = np.frombuffer(file.data("d2t"), "<i8").tolist()
        return found


def head_of(path: Path) -> tuple[str, bytes]:
    with GgufFile(path) as file:
        return file.tensors["output.weight"].type.name, file.data("output.weight")


def rows_of(target: Path, name: str, ids: list[int]) -> bytes:
    with GgufFile(target) as file:
        info = file.tensors[name]
        row = info.length // VOCAB
        data = file.data(name)
    return b"".join(data[row * token : row * (token + 1)] for token in ids)


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
        expected = bytearray(77 * _BY_NAME[kind].row_bytes(HIDDEN))
        core().convert_rows(chosen.data, 0, expected, _BY_NAME[kind].number, 77, HIDDEN, 1)
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


def edited_target(folder: Path, **changes: Any) -> Path:
    """A target whose tokenizer has other keys."""
    return edited(
        target_of(folder),
        folder / "e.gguf",
        change={f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    )


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


def refused(kind: type[DflashError], folder: Path, size: int, **options: Any) -> str:
    with pytest.raises(kind) as error:
        run(folder, size, **options)
    assert not list(folder.rglob("*.gguf.*"))
    assert not list((folder / "d").glob("*.gguf"))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_sizes_that_cannot_be(tmp_path: Path) -> None:
    text = refused(UsageError, tmp_path, VOCAB + 1)
    assert f"--draft-vocab is {VOCAB + 1}, but {tmp_path / 't.gguf'} has {VOCAB} tokens" in text
    text = refused(UsageError, tmp_path, len(SPECIAL) - 1)
    assert f"but {len(SPECIAL)} tokens of {tmp_path / 't.gguf'} are special" in text
    assert "expected at least 1 token" in refused(UsageError, tmp_path, 0)
    changes = {
        "architectures": ["DFlash2DraftModel"],
        "dflash_config": {
            **make_config()["dflash_config"],
            "conv_kernel_size": 4,
            "conv_group_size": 64,
            "selector_rank": 32,
            "selector_top_k": 15,
        },
    }
    assert "among 15 candidates" in refused(UsageError, tmp_path, 14, changes=changes)


def test_a_target_without_weights(tmp_path: Path) -> None:
    draft = make_checkpoint(tmp_path / "d", make_config())
    target = make_target(tmp_path / "t.gguf")
    with pytest.raises(ConvertError, match=r"t\.gguf: it has no tensor output\.weight or token_em"):
        convert(draft, target, draft_vocab=100)
    tables = {
        "token_embd.weight": ("F32", (VOCAB, 128), pack(make_values("x", VOCAB * 128), "F32"))
    }
    make_target(tmp_path / "t.gguf", tensors=tables)
    with pytest.raises(ConvertError, match=r"has the shape \[128, 320\]; expected \[256, 320\]"):
        convert(draft, target, draft_vocab=100)
    scaled = edited(target_of(tmp_path), tmp_path / "s.gguf", add_tensors=("output.scale",))
    with pytest.raises(ConvertError, match=r"a scale of its own \(output\.scale\)"):
        convert(draft, scaled, draft_vocab=100)
    assert not list(draft.glob("*.gguf"))


TABLE = ("F32", (VOCAB, HIDDEN), pack(make_values("own table", VOCAB * HIDDEN), "F32"))
SPARK = {"markov_rank": 32, "block_size": 8, "sample_from_anchor": True, "draft_vocab_size": 100}


@pytest.mark.parametrize(
    ("changes", "extra", "said"),
    [
        ({}, {"lm_head.weight": TABLE}, f"one for {VOCAB} tokens"),
        (
            {"tie_word_embeddings": True},
            {"embed_tokens.weight": TABLE},
            "its embeddings are its head",
        ),
        (SPARK, make_d2t(100), "one for 100 tokens"),
    ],
)
def test_a_drafter_with_a_head_of_its_own(
    changes: dict[str, Any], extra: Weights, said: str, tmp_path: Path
) -> None:
    text = refused(ConvertError, tmp_path, 50, changes=changes, extra=extra)
    assert f"the drafter has a head of its own ({said})" in text


def test_texts_that_cannot_be(tmp_path: Path) -> None:
    draft = make_checkpoint(tmp_path / "d", make_config())
    target = target_of(tmp_path)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(UsageError, match="expected the number of tokens too"):
        convert(draft, target, draft_vocab_text=empty)
    with pytest.raises(ConvertError, match="empty: it is empty"):
        convert(draft, target, draft_vocab=100, draft_vocab_text=empty)
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ConvertError, match="it cannot be read"):
            convert(draft, target, draft_vocab=100, draft_vocab_text=path)
    empty.write_text("some words")
    with pytest.raises(ConvertError, match="which is read"):
        convert(
            draft,
            target,
            outtypes=["bf16"],
            outfile=empty,
            draft_vocab=100,
            draft_vocab_text=empty,
            force=True,
        )
    assert empty.read_text() == "some words"
    assert not list(draft.glob("*.gguf"))


def test_wishes_that_cannot_be(tmp_path: Path) -> None:
    text = refused(UsageError, tmp_path, 50, tensor_types=["attn_v=q8_0"])
    assert "--tensor-type is for quantised types, not F32" in text
    narrow = {"hidden_size": 192, "num_attention_heads": 3, "num_key_value_heads": 1}
    draft = make_checkpoint(tmp_path / "n", make_config(**narrow))
    table = ("F32", (VOCAB, 192), pack(make_values("t", VOCAB * 192), "F32"))
    target = make_target(
        tmp_path / "n.gguf", architecture="qwen3", hidden=192, tensors={"token_embd.weight": table}
    )
    with pytest.raises(UsageError, match="have 192 values, which Q6_K cannot hold"):
        convert(draft, target, outtypes=["bf16"], draft_vocab=50, tensor_types=["^output=q6_k"])
    (written,) = convert(draft, target, outtypes=["q5_k_m"], draft_vocab=50)
    assert head_of(written.path)[0] == "Q8_0"
    assert any("output.weight Q8_0" in text for text in written.warnings)


def test_a_head_that_is_not_finite(tmp_path: Path) -> None:
    target = target_of(tmp_path)
    reader = gguf.GGUFReader(target, "r+")
    (head,) = (tensor for tensor in reader.tensors if tensor.name == "output.weight")
    head.data[EOS, 3] = np.nan
    reader.data.flush()
    draft = make_checkpoint(tmp_path / "d", make_config())
    with pytest.raises(ConvertError, match=r"t\.gguf: output\.weight: near row .* not a number"):
        convert(draft, target, outtypes=["bf16"], draft_vocab=30)
    assert not list(draft.glob("*.gguf*"))


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

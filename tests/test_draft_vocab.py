"""A drafter with a trimmed head drafts from its part of the vocabulary; the text stays the target's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import dflash_gguf
from dflash_gguf import Engine, ModelError, Sampling
from dflash_gguf.convert import convert
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.inspection import inspect_file

from .support.edited import edited
from .support.random_pairs import VOCAB, Pair
from .support.tiny import ROOT, Tiny

QUICK: dict[str, Any] = {"threads": 1, "context": 512, "kv_type": "f32"}
PROMPTS = [[(i * 37 + 11 * k) % 256 for k in range(7 + 9 * i)] for i in range(4)]
SIZE = 100
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def trimmed(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The random pair, its drafter with a head for 100 of 262 tokens."""
    folder = tmp_path_factory.mktemp("trimmed")
    source = pair.target.parent / "draft"
    (written,) = convert(source, pair.target, outdir=folder, outtypes=["f32"], draft_vocab=SIZE)
    return Pair(pair.target, written.path)


def table_of(path: Path) -> list[int]:
    with GgufFile(path) as file:
        found: list[int] = np.frombuffer(file.data("d2t"), "<i8").tolist()
        return found


def block_logits(engine: Engine, anchor: int) -> Array:
    """Logits of a block at the beginning of an empty sequence."""
    drafter: Any = engine._open().drafter
    found: Array = drafter.block_logits(0, 0, anchor, 7)
    return found


def test_logits_stand_at_the_target_ids(pair: Pair, trimmed: Pair) -> None:
    ids = table_of(trimmed.draft)
    with (
        dflash_gguf.load(pair.target, pair.draft, **QUICK) as whole,
        dflash_gguf.load(trimmed.target, trimmed.draft, **QUICK) as part,
    ):
        for anchor in (5, 77, 255):
            full, some = block_logits(whole, anchor), block_logits(part, anchor)
            assert some.shape == full.shape == (8, VOCAB)
            np.testing.assert_allclose(some[:, ids], full[:, ids], rtol=1e-4, atol=1e-4)
            left_out = np.delete(some, ids, axis=1)
            assert np.isneginf(left_out).all()


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=1, top_k=200, seed=5)])
@pytest.mark.parametrize("block", [2, 5, 8])
def test_text_of_random_pairs_is_the_targets_own(
    pair: Pair, trimmed: Pair, block: int, sampling: Sampling | None
) -> None:
    options: dict[str, Any] = {"max_tokens": 90, "ignore_end": True, "sampling": sampling}
    with (
        dflash_gguf.load(pair.target, **QUICK) as plain,
        dflash_gguf.load(trimmed.target, trimmed.draft, sequences=len(PROMPTS), **QUICK) as engine,
    ):
        expected = [plain.generate(prompt, **options).tokens for prompt in PROMPTS]
        answers = [engine.start(prompt, block=block, **options) for prompt in PROMPTS]
        while engine.busy:
            engine.step()
        assert [answer.tokens for answer in answers] == expected
        for answer in answers:
            assert answer.stats is not None
            assert answer.stats.drafted > 0
            assert answer.stats.emitted == 1 + answer.stats.rounds + answer.stats.accepted
        # the target says what the drafter cannot know, too
        assert not {token for tokens in expected for token in tokens} <= set(
            table_of(trimmed.draft)
        )


@pytest.fixture(scope="module")
def plain_tokens(tiny: Tiny) -> list[list[int]]:
    with dflash_gguf.load(tiny.target_f32, threads=1, context=2048) as engine:
        return [engine.generate(p["messages"], max_tokens=120).tokens for p in tiny.prompts[::8]]


def run_tiny(tiny: Tiny, draft: Path, plain: list[list[int]]) -> float:
    """Compare all texts with the target's own; returns the accept length."""
    rounds = accepted = 0
    with dflash_gguf.load(tiny.target_f32, draft, threads=1, context=2048, block=16) as engine:
        for prompt, tokens in zip(tiny.prompts[::8], plain, strict=True):
            answer = engine.generate(prompt["messages"], max_tokens=120)
            assert answer.tokens == tokens, prompt["id"]
            assert answer.stats is not None
            rounds += answer.stats.rounds
            accepted += answer.stats.accepted
    return 1 + accepted / rounds


def tiny_draft(tiny: Tiny, folder: Path, **options: Any) -> Path:
    target, source = tiny.target, ROOT / "draft"
    (written,) = convert(source, target, outdir=folder, outtypes=["bf16"], force=True, **options)
    return written.path


def test_text_of_the_trained_pair_is_the_targets_own(
    tiny: Tiny, plain_tokens: list[list[int]], tmp_path: Path
) -> None:
    whole = run_tiny(tiny, tiny_draft(tiny, tmp_path), plain_tokens)
    lengths = {}
    for size, options in (
        (200, {}),
        (700, {}),
        (700, {"tensor_types": ["^output=q6_K"]}),
        (1280, {}),
    ):
        draft = tiny_draft(tiny, tmp_path, draft_vocab=size, **options)
        lengths[size, bool(options)] = run_tiny(tiny, draft, plain_tokens)
    print(f"accept lengths: whole {whole:.3f}, trimmed {lengths}")
    assert lengths[1280, False] == pytest.approx(whole, rel=0.02)
    assert 1 < lengths[200, False] < lengths[700, False] <= whole * 1.02
    assert lengths[700, True] == pytest.approx(lengths[700, False], rel=0.1)


def test_a_text_of_the_same_kind_chooses_better(
    tiny: Tiny, plain_tokens: list[list[int]], tmp_path: Path
) -> None:
    with dflash_gguf.load(tiny.target, threads=1, context=2048) as engine:
        texts = [engine.generate(p["messages"], max_tokens=200).text for p in tiny.prompts[1::8]]
    text = tmp_path / "text"
    text.write_text("\n".join(texts))
    by_merges = run_tiny(tiny, tiny_draft(tiny, tmp_path, draft_vocab=200), plain_tokens)
    draft = tiny_draft(tiny, tmp_path, draft_vocab=200, draft_vocab_text=text)
    by_text = run_tiny(tiny, draft, plain_tokens)
    print(f"accept lengths with 200 tokens: by merges {by_merges:.3f}, by text {by_text:.3f}")
    assert by_text > by_merges


def with_table(source: Path, to: Path, table: Array) -> Path:
    """Write a drafter again with another table of token ids."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(to, "dflash")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind = field.types[0]
            sub = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, sub_type=sub)
    for tensor in reader.tensors:
        if tensor.name == "d2t":
            writer.add_tensor("d2t", table)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def refusal(pair: Pair, draft: Path) -> str:
    with pytest.raises(ModelError) as caught:
        dflash_gguf.load(pair.target, draft, **QUICK)
    report = inspect_file(draft, pair.target)
    assert report.fit is not None
    assert report.fit.reason == str(caught.value)
    fault = str(caught.value).removeprefix(f"{draft}: ").removesuffix("; convert the drafter again")
    assert fault in report.oddities
    return fault


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda ids: ids[:-1], f"but d2t has {SIZE - 1} token ids; expected a row for each"),
        (lambda ids: ids.astype(np.int32), f"d2t is I32 of shape [{SIZE}]; expected a list of I64"),
        (lambda ids: ids.reshape(2, -1), f"d2t is I64 of shape [{SIZE // 2}, 2]; expected a list"),
        (lambda ids: ids - 1, f"token ids -1 to {VOCAB - 2}; expected 0 to {VOCAB - 1}"),
        (lambda ids: ids + 1, f"token ids 1 to {VOCAB}; expected 0 to {VOCAB - 1}"),
        (lambda ids: ids * 0, "d2t has a token id twice; expected different ones"),
    ],
)
def test_a_table_that_would_end_the_process_is_refused(
    trimmed: Pair, tmp_path: Path, change: Any, said: str
) -> None:
    table = change(np.array(table_of(trimmed.draft), np.int64))
    assert said in refusal(trimmed, with_table(trimmed.draft, tmp_path / "d.gguf", table))


def test_a_table_without_a_head_is_refused(pair: Pair, tmp_path: Path) -> None:
    draft = edited(pair.draft, tmp_path / "d.gguf", add_tensors=("d2t",))
    assert (
        refusal(pair, draft) == "it has d2t but no output.weight: its head cannot be the target's"
    )

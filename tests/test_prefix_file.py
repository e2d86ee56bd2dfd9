"""Prefixes saved to a file: brought back they save what they would have, and nothing else gets in."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Engine, ModelError, ResourceError, UsageError

from .support.random_pairs import Pair, make_pair

QUICK: dict[str, Any] = {"threads": 1, "context": 512, "kv_type": "f32"}
MESSAGES = [{"role": "user", "content": "Why is the sky blue? " * 4}]
ENDLESS: dict[str, Any] = {"max_tokens": 24, "ignore_end": True}


def load(pair: Pair, **options: Any) -> Engine:
    return dflash_gguf.load(pair.target, pair.draft, **{**QUICK, **options})


@pytest.fixture(scope="module")
def saved(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved prefix of MESSAGES."""
    path = tmp_path_factory.mktemp("saved") / "prefix"
    with load(pair) as engine:
        assert engine.save_prefix(path, MESSAGES) == len(engine.encode(MESSAGES))
        assert [file.name for file in path.parent.iterdir()] == ["prefix"]
    return path


def test_a_restored_prefix_saves_its_reading(pair: Pair, saved: Path) -> None:
    longer = [
        *MESSAGES,
        {"role": "assistant", "content": "Air scatters blue light."},
        {"role": "user", "content": "And at sunset?"},
    ]
    with load(pair) as fresh, load(pair) as engine:
        count = engine.restore_prefix(saved)
        for prompt in (longer, MESSAGES):
            expected = fresh.generate(prompt, **ENDLESS)
            answer = engine.generate(prompt, **ENDLESS)
            assert answer.tokens == expected.tokens
            assert answer.stats is not None
            assert expected.stats is not None
            assert answer.stats.accepted_at == expected.stats.accepted_at
            assert count - 20 < answer.stats.reused_tokens < count
            fresh.forget_prefixes()


def test_saving_again_replaces_the_file_and_changes_no_answer(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "prefix"
    path.write_text("an older one")
    with load(pair, sequences=2) as engine, load(pair, prefix_memory=0) as plain:
        text = list(range(100))
        first = engine.generate(text, **ENDLESS)
        again = [*first.prompt, *first.tokens, 1, 2, 3]
        assert engine.save_prefix(path, again) == len(again)
        engine.forget_prefixes()
        assert engine.restore_prefix(path) == len(again)
        second = engine.generate([*again, 4], **ENDLESS)
        assert second.stats is not None
        assert second.stats.reused_tokens == len(again)
        assert second.tokens == plain.generate([*again, 4], **ENDLESS).tokens


def change(header: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Return a forger of the header, whose checksum is right."""

    def forge(data: bytes) -> bytes:
        (length,) = struct.unpack_from("<I", data, 8)
        fields = json.loads(data[12 : 12 + length])
        header(fields)
        text = json.dumps(fields).encode()
        new = data[:8] + struct.pack("<I", len(text)) + text + data[12 + length : -32]
        return new + hashlib.sha256(new).digest()

    return forge


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda data: b"", "it is no saved prefix"),
        (lambda data: b"GGUF" + data[4:], "it is no saved prefix"),
        (lambda data: data[:30], "it is no saved prefix"),
        (lambda data: data[:-1], "it is damaged"),
        (lambda data: data[: len(data) // 2], "it is damaged"),
        (lambda data: data + b"x", "it is damaged"),
        (flipped(9), "it is damaged"),
        (flipped(40), "it is damaged"),
        (flipped(-5000), "it is damaged"),
        (flipped(-1), "it is damaged"),
        (change(lambda fields: fields.update(format=2)), "it has format 2, expected 1"),
        (change(lambda fields: fields.pop("format")), "its header makes no sense"),
        (
            change(lambda fields: fields["target"].update(size=1)),
            "it was saved with another target",
        ),
        (change(lambda fields: fields.update(draft=None)), "saved with another drafter or none"),
        (
            change(lambda fields: fields.update(llama_cpp_python="0.3.1")),
            r"with llama-cpp-python 0\.3\.1, here is 0\.3\.36",
        ),
        (change(lambda fields: fields.pop("context")), "it was saved with kv_type None"),
        (change(lambda fields: fields["lengths"].append(0)), "its parts do not fit"),
        (change(lambda fields: fields["lengths"].__setitem__(1, 5)), "its parts do not fit"),
        (change(lambda fields: fields["lengths"].__setitem__(1, -5)), "its parts do not fit"),
        (change(lambda fields: fields.update(lengths=None)), "its parts do not fit"),
        (change(lambda fields: fields.update(points=[10**6])), "its parts do not fit"),
        (change(lambda fields: fields.update(fed="all")), "its parts do not fit"),
    ],
)
def test_a_damaged_file_is_refused_and_harms_nothing(
    pair: Pair, saved: Path, tmp_path: Path, damage: Callable[[bytes], bytes], found: str
) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(damage(saved.read_bytes()))
    with load(pair) as engine:
        first = engine.generate(MESSAGES, **ENDLESS)
        with pytest.raises(ModelError, match=found) as refusal:
            engine.restore_prefix(path)
        assert str(refusal.value).count("\n") == 0
        second = engine.generate(MESSAGES, **ENDLESS)
        assert second.tokens == first.tokens
        assert second.stats is not None
        assert second.stats.reused_tokens > 0


def test_states_that_llama_cpp_refuses_harm_nothing(
    pair: Pair, saved: Path, tmp_path: Path
) -> None:
    """A header that fits, states that do not: cut short, or the draft's in the target's place."""

    def cut(data: bytes) -> bytes:
        def shorten(fields: dict[str, Any]) -> None:
            fields["lengths"][1] -= 64

        (length,) = struct.unpack_from("<I", data, 8)
        end = 12 + length + sum(json.loads(data[12 : 12 + length])["lengths"][:2])
        return change(shorten)(data[: end - 64] + data[end:])

    def swap(data: bytes) -> bytes:
        def other(fields: dict[str, Any]) -> None:
            sizes = fields["lengths"]
            sizes[1], sizes[2] = sizes[2], sizes[1]

        (length,) = struct.unpack_from("<I", data, 8)
        sizes = json.loads(data[12 : 12 + length])["lengths"]
        start = 12 + length + sizes[0]
        target = data[start : start + sizes[1]]
        draft = data[start + sizes[1] : start + sizes[1] + sizes[2]]
        rest = data[start + len(target) + len(draft) :]
        return change(other)(data[:start] + draft + target + rest)

    path = tmp_path / "odd"
    for damage in (cut, swap):
        path.write_bytes(damage(saved.read_bytes()))
        with load(pair) as engine:
            with pytest.raises(ModelError, match=r"llama\.cpp refuses the state"):
                engine.restore_prefix(path)
            answer = engine.generate(MESSAGES, **ENDLESS)
            assert answer.stats is not None
            assert answer.stats.reused_tokens == 0
            with load(pair, prefix_memory=0) as plain:
                assert answer.tokens == plain.generate(MESSAGES, **ENDLESS).tokens


def test_a_prefix_of_another_pair_or_of_other_contexts_is_refused(
    dense: Pair, tmp_path: Path
) -> None:
    path = tmp_path / "prefix"
    with load(dense) as engine:
        engine.save_prefix(path, list(range(100)))
    other = make_pair(tmp_path / "other", hybrid=False, seed=1)
    refusals: list[tuple[Any, str]] = [
        (lambda: load(other), "it was saved with another target"),
        (lambda: load(dense, kv_type="f16"), "it was saved with kv_type f32, here it is f16"),
        (lambda: load(dense, sequences=2), "it was saved with sequences 1, here it is 2"),
        (lambda: load(dense, context=90), "100 tokens, expected 1 to 90"),
        (lambda: load(Pair(dense.target, other.draft)), "it was saved with another drafter"),
    ]
    for opener, found in refusals:
        with opener() as engine, pytest.raises(ModelError, match=found):
            engine.restore_prefix(path)
    with dflash_gguf.load(dense.target, **QUICK) as engine:  # the target alone may use its part
        assert engine.restore_prefix(path) == 100
        answer = engine.generate(list(range(101)), **ENDLESS)
        assert answer.stats is not None
        assert answer.stats.reused_tokens == 100


def test_what_cannot_be_saved_or_restored_is_said(dense: Pair, tmp_path: Path) -> None:
    path = tmp_path / "prefix"
    copy = shutil.copy(dense.target, tmp_path / "target.gguf")
    with load(Pair(copy, dense.draft)) as engine:
        with pytest.raises(ResourceError, match="it cannot be written"):
            engine.save_prefix(tmp_path / "no" / "such" / "folder", "hi")
        with pytest.raises(ModelError, match="it cannot be read"):
            engine.restore_prefix(path)
        for name in ("", "/", "a\0b"):  # names that no file can have
            with pytest.raises(ResourceError, match="it cannot be written"):
                engine.save_prefix(name, "hi")
            with pytest.raises(ModelError, match="it cannot be read"):
                engine.restore_prefix(name)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ResourceError, match="no regular file; give another place"):
            engine.save_prefix(tmp_path / "pipe", "hi")
        assert (tmp_path / "pipe").is_fifo()
        answer = engine.start("hi", **ENDLESS)
        with pytest.raises(UsageError, match="1 answers are in progress"):
            engine.save_prefix(path, "hi")
        with pytest.raises(UsageError, match="all 1 sequences are in use"):
            engine.restore_prefix(path)
        engine.cancel(answer)
        Path(copy).touch()
        with pytest.raises(ModelError, match="was changed after it was loaded"):
            engine.save_prefix(path, "hi")
    with load(dense, prefix_memory=0) as engine:
        with pytest.raises(UsageError, match="prefix_memory is 0"):
            engine.save_prefix(path, "hi")
        with pytest.raises(UsageError, match="prefix_memory is 0"):
            engine.restore_prefix(path)
    assert not path.exists()

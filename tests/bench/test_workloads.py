"""workloads.py: where questions come from, which are asked, and what their hash tells apart."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dflash_gguf.bench.forms import FORMS
from dflash_gguf.bench.records import Ask, Question
from dflash_gguf.bench.workloads import (
    Workload,
    parse_workloads,
    prompt_hash,
    read_questions,
    select,
)
from dflash_gguf.errors import DflashError, UsageError

from ..support.tiny import ROOT
from .test_forms import ROWS, TURNS

ASK = Ask(max_tokens=64)


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def questions(count: int) -> list[Question]:
    return [Question("own", number, (f"question {number}",)) for number in range(count)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["gsm8k"], [Workload("gsm8k")]),
        (["gsm8k, tiny", "mt-bench"], [Workload(n) for n in ("gsm8k", "tiny", "mt-bench")]),
        (["gsm8k=a b.jsonl,builtin"], [Workload("gsm8k", Path("a b.jsonl")), Workload("builtin")]),
        (["mine=x=y.jsonl"], [Workload("mine", Path("x=y.jsonl"))]),
        (["tiny:qa,tiny:code"], [Workload("tiny", kind="qa"), Workload("tiny", kind="code")]),
        (["mine:a=x.jsonl"], [Workload("mine", Path("x.jsonl"), "a")]),
    ],
)
def test_workloads_are_read_from_the_command_line(
    given: list[str], expected: list[Workload]
) -> None:
    assert list(parse_workloads(given)) == expected


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([], "no workload is given"),
        ([","], "no workload is given"),
        (["gsm9k"], "'gsm9k' is unknown; expected gsm8k, .*tiny, or gsm9k=FILE"),
        (["mine="], "expected NAME=FILE"),
        (["=a.jsonl"], "expected NAME=FILE"),
        (["tiny:"], "expected .*NAME:KIND"),
        ([":code"], "expected .*NAME:KIND"),
        (["tiny:qa", "tiny:qa"], "tiny:qa is given twice"),
        (["tiny", "tiny=a.jsonl"], "tiny is given twice"),
    ],
)
def test_workloads_that_cannot_be_are_refused(given: list[str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        parse_workloads(given)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_file_has_rows_as_the_public_set(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", ROWS[name], ROWS[name])
    found = read_questions(Workload(name, path))
    assert found == tuple(Question(name, number, TURNS[name]) for number in range(2))


@pytest.mark.parametrize("name", ["mine", "gsm8k"])
def test_a_file_of_ones_own(name: str, tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
    ]
    rows = [
        {"turns": ["a", "b\u2028c"], "kind": "chat"},
        {"messages": messages},
        {"question": "d"} if name in FORMS else {"prompt": "d"},
    ]
    found = read_questions(Workload(name, written(tmp_path / "rows.jsonl", *rows)))
    assert [question.turns for question in found[:2]] == [("a", "b\u2028c"), ("Three?",)]
    assert found[2].turns[0].startswith("d")
    assert [question.kind for question in found] == ["chat", "", ""]
    assert found[1].opening() == messages[:-1]
    assert found[0].opening() == []
    assert [question.number for question in found] == [0, 1, 2]


def test_blank_lines_and_a_byte_order_mark_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n  \n{"prompt": "b"}')
    found = read_questions(Workload("mine", path))
    assert [(question.number, question.turns) for question in found] == [(0, ("a",)), (1, ("b",))]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({}, "found the fields none"),
        ({"text": "a"}, "found the fields text"),
        ({"prompt": ["a"]}, "found the fields prompt"),
        ({"turns": []}, "turns is"),
        ({"turns": ["a", " "]}, "turns is"),
        ({"turns": "a"}, "turns is"),
        ({"messages": []}, "messages is"),
        ({"messages": [{"role": "user"}]}, "messages is"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages is"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "the last of its messages"),
        (["a"], "expected a JSON object"),
    ],
)
def test_a_row_that_asks_nothing_is_named(row: object, match: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", {"prompt": "a"}, row)
    with pytest.raises(UsageError, match=rf"^mine, line 2 of .*rows\.jsonl: .*{match}"):
        read_questions(Workload("mine", path))


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    with pytest.raises(UsageError, match=r"^mine: .*missing\.jsonl cannot be read"):
        read_questions(Workload("mine", missing))
    with pytest.raises(UsageError, match="cannot be read"):
        read_questions(Workload("mine", tmp_path))
    empty = written(tmp_path / "empty.jsonl")
    with pytest.raises(UsageError, match="is empty"):
        read_questions(Workload("mine", empty))
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"prompt": "a"}\n{"prompt"\n', "utf-8")
    with pytest.raises(UsageError, match=r"line 2 of .* it is not JSON"):
        read_questions(Workload("mine", broken))
    broken.write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(UsageError, match="not UTF-8"):
        read_questions(Workload("mine", broken))


def test_builtin_has_ten_of_each_kind() -> None:
    found = read_questions(Workload("builtin"))
    kinds = Counter(question.kind for question in found)
    assert set(kinds) == {"arithmetic", "code", "chat", "novel"}
    assert min(kinds.values()) >= 10
    assert len({turn for question in found for turn in question.turns}) == sum(
        len(question.turns) for question in found
    )
    for kind in kinds:
        own = [question for question in found if question.kind == kind]
        lengths = [len(question.turns[0]) for question in own]
        assert max(lengths) > 3 * min(lengths), kind
        assert max(len(question.turns) for question in own) > 1, kind
        assert any(not turn.isascii() for question in own for turn in question.turns), kind


def test_tiny_is_found_beside_the_target() -> None:
    found = read_questions(Workload("tiny"), target=ROOT / "target.gguf")
    assert found == read_questions(Workload("tiny", ROOT / "prompts.jsonl"))
    rows = [json.loads(line) for line in (ROOT / "prompts.jsonl").read_text("utf-8").splitlines()]
    assert len(found) == len(rows) == 96
    for question, row in zip(found, rows, strict=True):
        last = {"role": "user", "content": question.turns[0]}
        assert [*question.opening(), last] == row["messages"]
        assert question.kind == row["kind"]
    assert any(question.before for question in found)


@pytest.mark.parametrize("target", [None, Path("nowhere/target.gguf")])
def test_tiny_says_where_it_looked(target: Path | None) -> None:
    with pytest.raises(UsageError, match=r"give the file: tiny=models/tiny/prompts\.jsonl"):
        read_questions(Workload("tiny"), target=target)


class Hub(ModuleType):
    """Stands in for `datasets`, and keeps what it was asked."""

    def __init__(self, rows: list[dict[str, Any]] | Exception) -> None:
        super().__init__("datasets")
        self.rows = rows
        self.asked: list[tuple[tuple[str, ...], str]] = []

    def load_dataset(self, *names: str, split: str) -> list[dict[str, Any]]:
        self.asked.append((names, split))
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


@pytest.mark.parametrize("name", sorted(FORMS))
def test_the_hub_is_asked_for_a_set_without_a_file(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub([ROWS[name]])
    monkeypatch.setitem(sys.modules, "datasets", hub)
    assert read_questions(Workload(name)) == (Question(name, 0, TURNS[name]),)
    assert hub.asked == [(FORMS[name].hub, FORMS[name].split)]


def test_the_hubs_rows_are_counted_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Hub([ROWS["gsm8k"], {"answer": "4"}]))
    with pytest.raises(UsageError, match="gsm8k, row 2: the field 'question' is missing"):
        read_questions(Workload("gsm8k"))


def test_without_datasets_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r'pip install "dflash-gguf\[bench\]".*gsm8k=FILE\.jsonl'):
        read_questions(Workload("gsm8k"))


@pytest.mark.parametrize("rows", [ConnectionError("no route\nto the Hub"), []])
def test_a_set_that_does_not_come_is_one_line(
    rows: list[dict[str, Any]] | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", Hub(rows))
    with pytest.raises(DflashError, match=r"openai/gsm8k.*gsm8k=FILE\.jsonl") as told:
        read_questions(Workload("gsm8k"))
    assert "\n" not in str(told.value)
    assert not isinstance(told.value, UsageError)


def reference(dataset: list[Question], count: int | None) -> list[Question]:
    """dflash 0.1.0's choice with repetition, written down anew from its description."""
    places = list(range(len(dataset)))
    random.Random(42).shuffle(places)
    wanted = len(places) if count is None else count
    return [dataset[places[number % len(places)]] for number in range(wanted)]


@pytest.mark.parametrize("count", [None, 1, 5, 7, 20])
def test_selection_is_the_references(count: int | None) -> None:
    own = questions(7)
    assert list(select(own, count)) == reference(own, count)


def test_selection_is_shuffled_the_same_everywhere() -> None:
    # Random(42).shuffle is the same in every Python since 3.2
    assert [question.number for question in select(questions(10), 4)] == [7, 3, 2, 8]


@pytest.mark.parametrize("count", [0, -1])
def test_nothing_cannot_be_asked(count: int) -> None:
    with pytest.raises(UsageError, match="expected 1 or more"):
        select(questions(3), count)


def test_the_hash_is_of_the_bytes_said() -> None:
    own = [Question("own", 0, ("é",))]
    assert prompt_hash(own, ASK) == prompt_hash(tuple(own), Ask(max_tokens=64))
    assert len(prompt_hash(own, ASK)) == 64


def test_the_hash_tells_everything_apart() -> None:
    one, two = questions(2)
    said = replace(one, before=(("system", "Be brief."),))
    hashes = [
        prompt_hash(asked, ask)
        for asked, ask in (
            ([one, two], ASK),
            ([two, one], ASK),
            ([one], ASK),
            ([one, one], ASK),
            ([said, two], ASK),
            ([replace(one, turns=("question 0", "more")), two], ASK),
            ([replace(one, workload="other"), two], ASK),
            ([one, two], replace(ASK, max_tokens=65)),
            ([one, two], replace(ASK, temperature=0.5)),
            ([one, two], replace(ASK, think=True)),
            ([one, two], replace(ASK, think=False)),
            ([one, two], replace(ASK, seed=1)),
        )
    ]
    assert len(set(hashes)) == len(hashes)


def test_one_kind_of_a_workloads_questions() -> None:
    target = ROOT / "target.gguf"
    (whole,) = parse_workloads(["tiny"])
    every = read_questions(whole, target=target)
    (code,) = parse_workloads(["tiny:code"])
    found = read_questions(code, target=target)
    assert {question.workload for question in found} == {"tiny:code"}
    assert [question.number for question in found] == [
        question.number for question in every if question.kind == "code"
    ]
    (other,) = parse_workloads(["tiny:poems"])
    with pytest.raises(UsageError, match=r"tiny:poems: .* kinds: arithmetic, code, qa"):
        read_questions(other, target=target)

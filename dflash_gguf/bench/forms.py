"""How a public set's row is put to the model: word for word as DFlash's reference puts it.

The words around a question, the sets' names on the Hub and their splits are quoted from dflash/benchmark.py of PyPI's
dflash 0.1.0 (MIT licence, see NOTICE), so that accept lengths can be compared with the model cards'. Alpaca stands on a
card but not in the reference; the rule for it is ours: the instruction and, if the row has one, the input after an
empty line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

Row = Mapping[str, Any]

_REASON = "\nPlease reason step by step, and put your final answer within \\boxed{}."
_SOLVE = (
    "Write a solution to the following problem and make sure that it passes the tests:\n"
    "```python\n{}\n```"
)


@dataclass(frozen=True, slots=True)
class Form:
    """A public set.

    Attributes:
        hub: what `datasets.load_dataset` is given for it: repository and, where there are several, configuration.
        split: of the set, as the reference takes it.
        fields: what a row must have; all are texts, but mt-bench's `prompt`, a list of them.
        turns: from a row that has them to what the user says, turn by turn.
    """

    hub: tuple[str, ...]
    split: str
    fields: tuple[str, ...]
    turns: Callable[[Row], tuple[str, ...]]


def _instruction(row: Row) -> tuple[str, ...]:
    given = row.get("input")
    return (f"{row['instruction']}\n\n{given}" if given else row["instruction"],)


FORMS: Mapping[str, Form] = {
    "gsm8k": Form(
        ("openai/gsm8k", "main"), "test", ("question",), lambda row: (row["question"] + _REASON,)
    ),
    "math500": Form(
        ("HuggingFaceH4/MATH-500",), "test", ("problem",), lambda row: (row["problem"] + _REASON,)
    ),
    "humaneval": Form(
        ("openai/openai_humaneval",),
        "test",
        ("prompt",),
        lambda row: (_SOLVE.replace("{}", row["prompt"]),),
    ),
    "mbpp": Form(
        ("google-research-datasets/mbpp", "sanitized"),
        "test",
        ("prompt",),
        lambda row: (row["prompt"],),
    ),
    "mt-bench": Form(
        ("HuggingFaceH4/mt_bench_prompts",),
        "train",
        ("prompt",),
        lambda row: tuple(row["prompt"]),
    ),
    "alpaca": Form(("tatsu-lab/alpaca",), "train", ("instruction",), _instruction),
}
_SEVERAL = {"mt-bench"}  # sets whose field holds several turns


def put_row(name: str, row: Row, where: str) -> tuple[str, ...]:
    """Return the turns of a row of the public set `name`; `where` names the row, such as "row 3".

    Raises UsageError, naming set, row and field, for a row that lacks a field or has something else in it.
    """
    form = FORMS[name]
    for field in form.fields:
        if field not in row:
            text = (
                f"{name}, {where}: the field {field!r} is missing; expected rows as in {' '.join(form.hub)}, found "
                f"the fields {', '.join(map(str, row)) or 'none'}"
            )
            raise UsageError(text)
        _check(name, field, row[field], where)
    given = row.get("input")
    if name == "alpaca" and given is not None and not isinstance(given, str):
        _refuse(name, "input", given, where, "a text")
    return form.turns(row)


def _check(name: str, field: str, value: object, where: str) -> None:
    if name in _SEVERAL:
        if not isinstance(value, list | tuple) or not value or not all(map(_is_text, value)):
            _refuse(name, field, value, where, "a list of texts, one for each turn")
    elif not _is_text(value):
        _refuse(name, field, value, where, "a text")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _refuse(name: str, field: str, value: object, where: str, expected: str) -> None:
    text = f"{name}, {where}: the field {field!r} is {value!r:.60}; expected {expected}"
    raise UsageError(text)

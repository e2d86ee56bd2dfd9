"""forms.py: rows as the public sets have them, put as the reference puts them."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_gguf.bench.forms import FORMS, put_row
from dflash_gguf.errors import UsageError

# the fields of each set's rows, their texts made up
ROWS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "Two and {two}?", "answer": "It is 4.\n#### 4"},
    "math500": {
        "problem": "Find $\\frac{1}{2} + x$.",
        "solution": "...",
        "answer": "1",
        "subject": "Algebra",
        "level": 1,
        "unique_id": "test/algebra/1.json",
    },
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": 'def double(x):\n    """Twice {x}."""\n',
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "double",
    },
    "mbpp": {
        "source_file": "a.ipynb",
        "task_id": 2,
        "prompt": "Write a function to double a number.",
        "code": "def double(x): return 2 * x",
        "test_imports": [],
        "test_list": ["assert double(1) == 2"],
    },
    "mt-bench": {
        "prompt": ["Describe a lake.", "Now without the letter e."],
        "reference": [],
        "category": "writing",
        "prompt_id": 81,
    },
    "alpaca": {
        "instruction": "Name the animal.",
        "input": "It barks.",
        "output": "A dog.",
        "text": "...",
    },
}
REASON = "Please reason step by step, and put your final answer within \\boxed{}."
SOLVE = (
    "Write a solution to the following problem and make sure that it passes the tests:\n"
    '```python\ndef double(x):\n    """Twice {x}."""\n\n```'
)
TURNS: dict[str, tuple[str, ...]] = {
    "gsm8k": (f"Two and {{two}}?\n{REASON}",),
    "math500": (f"Find $\\frac{{1}}{{2}} + x$.\n{REASON}",),
    "humaneval": (SOLVE,),
    "mbpp": ("Write a function to double a number.",),
    "mt-bench": ("Describe a lake.", "Now without the letter e."),
    "alpaca": ("Name the animal.\n\nIt barks.",),
}


def test_every_set_has_a_row_here() -> None:
    assert set(ROWS) == set(FORMS)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_row_is_put_as_the_reference_does(name: str) -> None:
    assert put_row(name, ROWS[name], "row 1") == TURNS[name]


@pytest.mark.parametrize("given", ["", None])
def test_an_alpaca_row_without_an_input_is_its_instruction(given: str | None) -> None:
    assert put_row("alpaca", {**ROWS["alpaca"], "input": given}, "row 1") == ("Name the animal.",)
    without = {key: value for key, value in ROWS["alpaca"].items() if key != "input"}
    assert put_row("alpaca", without, "row 1") == ("Name the animal.",)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_row_that_lacks_a_field_is_named(name: str) -> None:
    for field in FORMS[name].fields:
        row = {key: value for key, value in ROWS[name].items() if key != field}
        with pytest.raises(
            UsageError, match=rf"^{name}, row 7: the field '{field}' is missing"
        ) as told:
            put_row(name, row, "row 7")
        # what is there instead, for someone who has another version of the set
        assert next(iter(row)) in str(told.value)


@pytest.mark.parametrize("name", sorted(FORMS))
@pytest.mark.parametrize("value", [None, 3, "  ", [], ["one", 2], {}])
def test_a_field_of_another_kind_is_refused(name: str, value: object) -> None:
    (field,) = FORMS[name].fields
    expected = "a list of texts" if name == "mt-bench" else "a text"
    with pytest.raises(
        UsageError, match=rf"^{name}, row 2: the field '{field}' is .*; expected {expected}"
    ):
        put_row(name, {**ROWS[name], field: value}, "row 2")


def test_an_alpaca_input_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="alpaca, row 2: the field 'input' is 5; expected a text"):
        put_row("alpaca", {**ROWS["alpaca"], "input": 5}, "row 2")


def test_the_sets_are_the_references() -> None:
    assert {name: (*form.hub, form.split) for name, form in FORMS.items()} == {
        "gsm8k": ("openai/gsm8k", "main", "test"),
        "math500": ("HuggingFaceH4/MATH-500", "test"),
        "humaneval": ("openai/openai_humaneval", "test"),
        "mbpp": ("google-research-datasets/mbpp", "sanitized", "test"),
        "mt-bench": ("HuggingFaceH4/mt_bench_prompts", "train"),
        # not the reference's: ours
        "alpaca": ("tatsu-lab/alpaca", "train"),
    }

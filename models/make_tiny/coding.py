"""Small Python functions, planned in the thinking part and written after it."""

from __future__ import annotations

from collections.abc import Sequence

from .arithmetic import Piece
from .words import Pool, Templates, listed

ASK = Templates(
    "ask_code",
    (
        "Write a Python function {f} that {d}.",
        "Please write {f}, a Python function that {d}.",
        "I need a Python function named {f}. It {d}.",
        "Define a function {f} in Python. The function {d}.",
        "Show me the Python code of a function {f} that {d}.",
    ),
    (
        "Please show me a Python function named {f} that {d}.",
        "I need the code of {f}, a function in Python that {d}.",
    ),
)

# description, plan, body; {x} and {y} are arguments, {k} a constant
TASKS: Sequence[tuple[str, str, str]] = (
    (
        "takes a number {x} and returns {x} plus {k}",
        "Add {k} to {x} and return it.",
        "    return {x} + {k}\n",
    ),
    (
        "takes a number {x} and returns {x} times {k}",
        "Multiply {x} by {k} and return it.",
        "    return {x} * {k}\n",
    ),
    (
        "takes a list {x} and returns the items greater than {k}",
        "Make an empty list, loop over {x}, keep each item greater than {k}, return the list.",
        (
            "    result = []\n    for item in {x}:\n        if item > {k}:\n"
            "            result.append(item)\n    return result\n"
        ),
    ),
    (
        "takes a list {x} and returns the sum of the items less than {k}",
        "Start with total 0, loop over {x}, add each item less than {k}, return the total.",
        (
            "    total = 0\n    for item in {x}:\n        if item < {k}:\n"
            "            total = total + item\n    return total\n"
        ),
    ),
    (
        "takes a list {x} and counts the items equal to {k}",
        "Start with count 0, loop over {x}, add 1 for each item equal to {k}, return the count.",
        (
            "    count = 0\n    for item in {x}:\n        if item == {k}:\n"
            "            count = count + 1\n    return count\n"
        ),
    ),
    (
        "takes two numbers {x} and {y} and returns the larger one",
        "If {x} is greater than {y} return {x}, otherwise return {y}.",
        "    if {x} > {y}:\n        return {x}\n    return {y}\n",
    ),
    (
        "takes two numbers {x} and {y} and returns the smaller one",
        "If {x} is less than {y} return {x}, otherwise return {y}.",
        "    if {x} < {y}:\n        return {x}\n    return {y}\n",
    ),
    (
        "takes a list {x} and returns each item times {k}",
        "Make an empty list, loop over {x}, keep each item times {k}, return the list.",
        (
            "    result = []\n    for item in {x}:\n        result.append(item * {k})\n"
            "    return result\n"
        ),
    ),
    (
        "takes a text {x} and repeats it {k} times",
        "Multiply the text {x} by {k} and return it.",
        "    return {x} * {k}\n",
    ),
    (
        "takes a number {x} and tells whether it is divisible by {k}",
        "Compare the remainder of {x} and {k} with 0 and return the result.",
        "    return {x} % {k} == 0\n",
    ),
    (
        "takes a list {x} and a number {y} and returns the index of the first item equal to {y}",
        (
            "Loop over {x} with the index, return the index when the item equals {y}, "
            "otherwise return -1."
        ),
        (
            "    for index, item in enumerate({x}):\n        if item == {y}:\n"
            "            return index\n    return -1\n"
        ),
    ),
    (
        "takes two lists {x} and {y} and returns the sum of the products of their items",
        "Start with total 0, loop over pairs from {x} and {y}, add each product, return the total.",
        (
            "    total = 0\n    for first, second in zip({x}, {y}):\n"
            "        total = total + first * second\n    return total\n"
        ),
    ),
)
PREFIXES = listed("get make find check do run")


def make_code(pool: Pool) -> Piece:
    """One function with made-up names for itself and its arguments."""
    rng = pool.rng
    function = f"{rng.choice(PREFIXES)}_{pool.word()}"
    description, plan, body = rng.choice(TASKS)
    fills = {"x": pool.word(), "y": pool.word(), "k": str(pool.number(2, 99))}
    description, plan, body = (text.format(**fills) for text in (description, plan, body))
    arguments = fills["x"] if fills["y"] not in description else f"{fills['x']}, {fills['y']}"
    question = pool.template(ASK).format(f=function, d=description)
    think = (
        f"The task is to write a Python function named {function}.\n"
        f"The function {description}.\nPlan: {plan}\n"
        f"The first line is def {function}({arguments}):"
    )
    head = f'def {function}({arguments}):\n    """The function {description}."""\n'
    code = f"```python\n{head}{body}```"
    answer = f"Here is the Python function {function}:\n\n{code}\n\nThe function {description}."
    return Piece("code", question, think, answer, answer)

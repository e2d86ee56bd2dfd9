"""Word problems of one to three steps, solved digit by digit in the thinking part."""

from __future__ import annotations

from dataclasses import dataclass

from .words import OBJECTS, Pool, Templates, listed

START = Templates(
    "start",
    (
        "{n} has {a} {o}.",
        "{n} starts with {a} {o}.",
        "{n} owns {a} {o}.",
        "At first {n} has {a} {o}.",
        "There are {a} {o} in the box of {n}.",
        "In the morning {n} owns {a} {o}.",
    ),
    ("On one day {n} has {a} {o}.", "The box of {n} holds {a} {o}."),
)
START_TIMES = Templates(
    "start_times",
    (
        "{n} has {k} boxes with {a} {o} in each box.",
        "{n} owns {k} bags, and each bag holds {a} {o}.",
        "There are {k} boxes of {n}, each with {a} {o}.",
        "{n} starts with {k} bags of {a} {o} each.",
    ),
    ("At first {n} owns {k} boxes with {a} {o} in each.", "{n} has {k} bags, each with {a} {o}."),
)
MORE = Templates(
    "more",
    (
        "{n} {v} {a} more {o}.",
        "Then {n} {v} {a} more.",
        "Later {n} {v} {a} {o}.",
        "{n} {v} another {a} {o}.",
        "Next, {n} {v} {a} {o}.",
        "On that day {n} {v} {a} more.",
    ),
    ("After that, {n} {v} another {a}.", "The next day {n} {v} {a} more {o}."),
    (
        "Soon {n} {v} {a} more {o}.",
        "A day later {n} {v} {a} {o}.",
        "In the evening {n} {v} another {a}.",
        "After lunch, {n} {v} {a} more.",
        "The same day {n} {v} another {a} {o}.",
        "After this, {n} {v} another {a}.",
    ),
)
LESS = Templates(
    "less",
    (
        "{n} {v} {a} of the {o}.",
        "Then {n} {v} {a} of them.",
        "Later {n} {v} {a} {o}.",
        "After this {n} {v} {a} {o}.",
        "Next, {n} {v} {a} {o}.",
        "On that day {n} {v} {a} of them.",
    ),
    ("After that, {n} {v} {a} of the {o}.", "The next day {n} {v} {a} {o}."),
    (
        "Soon {n} {v} {a} {o}.",
        "A day later {n} {v} {a} of them.",
        "In the evening {n} {v} {a} of the {o}.",
        "After lunch, {n} {v} {a} {o}.",
        "The same day {n} {v} {a} of the {o}.",
        "After this, {n} {v} {a} of the {o}.",
    ),
)
ASK = Templates(
    "ask",
    (
        "How many {o} does {n} have now?",
        "How many {o} does {n} have at the end?",
        "Find the number of {o} that {n} has now.",
        "What is the number of {o} that {n} has at the end?",
        "Tell me how many {o} {n} has.",
    ),
    ("How many {o} are there for {n} at the end?", "Find how many {o} {n} has now."),
)
MORE_VERBS = listed("buys finds gets picks collects wins")
LESS_VERBS = listed("loses sells uses drops breaks eats")


@dataclass(frozen=True)
class Piece:
    """One question with its worked answer; kinds share this form."""

    kind: str
    question: str
    think: str
    answer: str
    short: str  # the reply when thinking is off
    value: str = ""


def add_steps(a: int, b: int) -> str:
    """Column addition in words, ones first."""
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    head = f"{a} + {b}: ones {a % 10} + {b % 10} = {ones}, carry {carry}, "
    return f"{head}tens {a // 10} + {b // 10} + {carry} = {tens}. So {a} + {b} = {a + b}."


def take_steps(a: int, b: int) -> str:
    """Column subtraction in words, ones first."""
    borrow = int(a % 10 < b % 10)
    top = a % 10 + 10 * borrow
    tens = a // 10 - b // 10 - borrow
    head = f"{a} - {b}: ones {top} - {b % 10} = {top - b % 10}, borrow {borrow}, "
    return f"{head}tens {a // 10} - {b // 10} - {borrow} = {tens}. So {a} - {b} = {a - b}."


def times_steps(a: int, b: int) -> str:
    """Column multiplication of a two-digit number by a digit, ones first."""
    ones = (a % 10) * b
    carry = ones // 10
    tens = (a // 10) * b + carry
    head = f"{a} x {b}: ones {a % 10} x {b} = {ones}, carry {carry}, "
    return f"{head}tens {a // 10} x {b} + {carry} = {tens}. So {a} x {b} = {a * b}."


def make_drill(pool: Pool) -> Piece:
    """Three or four bare sums worked out one after the other; for training only."""
    tasks, work = [], []
    for _ in range(pool.rng.choice((3, 4))):
        kind = pool.rng.choice("+-x")
        if kind == "x":
            a, b = pool.number(10, 49), pool.rng.randint(2, 4)
        elif kind == "+":
            a, b = pool.number(10, 100), pool.number(10, 99)
        else:
            a = pool.number(25, 198)
            b = pool.number(10, min(a - 2, 99))
        tasks.append(f"{a} {kind} {b}")
        work.append({"+": add_steps, "-": take_steps, "x": times_steps}[kind](a, b))
    question, text = f"Work out {', '.join(tasks)}.", "\n".join(work)
    answer = "All steps are done."
    return Piece("drill", question, text, answer, f"{text}\n{answer}")


def make_arithmetic(pool: Pool) -> Piece:
    """A problem whose amounts stay between 2 and 200."""
    rng = pool.rng
    name, thing = pool.name(), rng.choice(OBJECTS)
    said: list[str] = []
    think = [f"The question is about the {thing} of {name}."]
    brief: list[str] = []
    if rng.random() < 0.3:
        a, k = pool.number(10, 49), rng.randint(2, 4)
        said.append(pool.template(START_TIMES).format(n=name, a=a, k=k, o=thing))
        total = a * k
        think += [f"{name} has {k} times {a} {thing}, so multiply.", times_steps(a, k)]
        brief.append(f"{a} x {k} = {total}.")
    else:
        total = pool.number(10, 99)
        said.append(pool.template(START).format(n=name, a=total, o=thing))
        think.append(f"{name} starts with {total} {thing}.")
    for _ in range(rng.choice((1, 2, 2))):
        can_add = total <= 100
        can_take = total >= 25 and pool.can_draw(10, min(total - 2, 99))
        if can_add and (not can_take or rng.random() < 0.5):
            b, verb = pool.number(10, 99), rng.choice(MORE_VERBS)
            said.append(pool.template(MORE).format(n=name, a=b, o=thing, v=verb))
            think += [f"{name} {verb} {b} {thing}, so add.", add_steps(total, b)]
            brief.append(f"{total} + {b} = {total + b}.")
            total += b
        else:
            limit = min(total - 2, 99)
            b, verb = pool.number(10, limit), rng.choice(LESS_VERBS)
            said.append(pool.template(LESS).format(n=name, a=b, o=thing, v=verb))
            think += [f"{name} {verb} {b} {thing}, so subtract.", take_steps(total, b)]
            brief.append(f"{total} - {b} = {total - b}.")
            total -= b
        think.append(f"Now {name} has {total} {thing}.")
    said.append(pool.template(ASK).format(n=name, o=thing))
    answer = f"{name} has {total} {thing}."
    think.append(f"All steps are done, and the result is {total}.")
    return Piece(
        "arithmetic",
        " ".join(said),
        "\n".join(think),
        answer,
        " ".join([*brief, answer]),
        str(total),
    )

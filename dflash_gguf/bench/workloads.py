"""A workload's questions: a file of ours, a person's, or a public set; which of them are asked; and their hash.

A file has one JSON object a line: under the name of a public set a row as that set has them, otherwise (and there too)
`turns`, a list of texts; `messages`, in OpenAI's form, ending with a user's; or `prompt`, a text. `kind` may be told.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import DflashError, UsageError
from .forms import FORMS, put_row
from .records import Ask, Question

OWN = ("builtin", "tiny")
EXTRA = 'pip install "dflash-gguf[bench]"'
_TINY = "prompts.jsonl"
_SEED = 42  # the reference's
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as it is asked for: its name, its file where one is given, and the kind of questions that are wanted.

    `label` is what tables call it.
    """

    name: str
    path: Path | None = None
    kind: str = ""

    @property
    def label(self) -> str:
        """Name and kind."""
        return f"{self.name}:{self.kind}" if self.kind else self.name


def parse_workloads(given: Iterable[str]) -> tuple[Workload, ...]:
    """Read `NAME` and `NAME=FILE`, several of them with commas between; `NAME:KIND` for one kind of its questions.

    Raises UsageError for a name that is neither known nor given a file, and for one that stands there twice.
    """
    found = [_parse(part.strip()) for text in given for part in text.split(",") if part.strip()]
    if not found:
        text = f"no workload is given; expected some of {_known()}, or NAME=FILE"
        raise UsageError(text)
    names = [workload.label for workload in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        text = f"the workload {twice} is given twice; name it once, or give one a file: NAME=FILE.jsonl"
        raise UsageError(text)
    return tuple(found)


def read_questions(workload: Workload, *, target: Path | None = None) -> tuple[Question, ...]:
    """Return all questions of a workload, in its own order, or all of the kind that is wanted.

    `target` is where `tiny` is looked for if it has no file: prompts.jsonl beside it.
    Raises UsageError for a file that is not there or has no questions in it, naming line and field, for a kind that
    it has no questions of, and where `datasets` is not installed; DflashError for a set that the Hub does not give.
    """
    questions = _all(workload, target)
    if not workload.kind:
        return questions
    found = [
        replace(each, workload=workload.label) for each in questions if each.kind == workload.kind
    ]
    if not found:
        kinds = ", ".join(sorted({each.kind for each in questions} - {""})) or "none"
        text = f"{workload.label}: it has no questions of that kind; expected one of its kinds: {kinds}"
        raise UsageError(text)
    return tuple(found)


def _all(workload: Workload, target: Path | None) -> tuple[Question, ...]:
    name, path = workload.name, workload.path
    if name == "tiny" and path is None:
        path = _beside(target)
    if path is not None:
        return _read_file(name, path)
    if name == "builtin":
        text = resources.files(__package__).joinpath("builtin.jsonl").read_text("utf-8")
        return _read_lines(name, text, "builtin.jsonl")
    rows = _load(name)
    return tuple(
        Question(name, number, put_row(name, row, f"row {number + 1}"))
        for number, row in enumerate(rows)
    )


def select(questions: Sequence[Question], count: int | None = None) -> tuple[Question, ...]:
    """Return `count` of the questions (None: all) as the reference chooses: shuffled by one seed, the first ones.

    If more are asked for than there are, they come round again. Raises UsageError for a count below 1.
    """
    if count is not None and count < 1:
        text = f"{count} questions are asked for; expected 1 or more"
        raise UsageError(text)
    order = list(range(len(questions)))
    random.Random(_SEED).shuffle(order)
    count = len(order) if count is None else count
    return tuple(questions[order[index % len(order)]] for index in range(count))


def prompt_hash(questions: Iterable[Question], ask: Ask) -> str:
    """Return the SHA-256, in hexadecimal, of all that is asked and how: equal for equal measurements only."""
    asked = {"ask": asdict(ask), "questions": [asdict(question) for question in questions]}
    # one way to write it: keys in order, no spaces, ASCII
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _known() -> str:
    return ", ".join((*FORMS, *OWN))


def _parse(text: str) -> Workload:
    label, equals, file = text.partition("=")
    name, colon, kind = label.partition(":")
    if not name or bool(kind) != bool(colon) or bool(file) != bool(equals):
        problem = f"the workload {text!r}: expected NAME=FILE, NAME or NAME:KIND"
        raise UsageError(problem)
    if equals:
        return Workload(name, Path(file), kind)
    if name not in FORMS and name not in OWN:
        problem = f"the workload {name!r} is unknown; expected {_known()}, or {name}=FILE"
        raise UsageError(problem)
    return Workload(name, kind=kind)


def _beside(target: Path | None) -> Path:
    path = None if target is None else target.parent / _TINY
    if path is None or not path.is_file():
        looked = "no target is given to look beside" if path is None else f"{path} is not there"
        text = f"tiny: {looked}; give the file: tiny=models/tiny/{_TINY}"
        raise UsageError(text)
    return path


def _read_file(name: str, path: Path) -> tuple[Question, ...]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        problem = f"{name}: {path} cannot be read ({error.strerror}); expected a file of JSON lines"
        raise UsageError(problem) from None
    except UnicodeDecodeError as error:
        problem = (
            f"{name}: {path} is not UTF-8 (at byte {error.start}); expected a file of JSON lines"
        )
        raise UsageError(problem) from None
    return _read_lines(name, text, str(path))


def _read_lines(name: str, text: str, path: str) -> tuple[Question, ...]:
    questions: list[Question] = []
    # not splitlines(): JSON strings may hold U+2028 and the like
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"line {number} of {path}"
            questions.append(_question(name, len(questions), _object(name, line, where), where))
    if not questions:
        problem = f"{name}: {path} is empty; expected a JSON object on each line"
        raise UsageError(problem)
    return tuple(questions)


def _object(name: str, line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = f"{name}, {where}: it is not JSON ({error}); expected an object on each line"
        raise UsageError(problem) from None
    if not isinstance(row, dict):
        problem = f"{name}, {where}: it holds {line.strip()!r:.60}; expected a JSON object"
        raise UsageError(problem)
    return row


def _question(name: str, number: int, row: Mapping[str, Any], where: str) -> Question:
    before: tuple[tuple[str, str], ...] = ()
    if "turns" in row:
        turns = _texts(name, row["turns"], where)
    elif "messages" in row:
        *said, (role, last) = _messages(name, row["messages"], where)
        if role != "user":
            problem = f"{name}, {where}: the last of its messages is of {role!r}; expected 'user'"
            raise UsageError(problem)
        before, turns = tuple(said), (last,)
    elif name in FORMS:
        turns = put_row(name, row, where)
    elif isinstance(row.get("prompt"), str) and row["prompt"].strip():
        turns = (row["prompt"],)
    else:
        problem = (
            f"{name}, {where}: expected turns (a list of texts), messages (role and content, the last one a "
            f"user's) or prompt (a text), found the fields {', '.join(row) or 'none'}"
        )
        raise UsageError(problem)
    kind = row.get("kind", "")
    return Question(name, number, turns, before, kind if isinstance(kind, str) else "")


def _texts(name: str, turns: object, where: str) -> tuple[str, ...]:
    if (
        isinstance(turns, list)
        and turns
        and all(isinstance(turn, str) and turn.strip() for turn in turns)
    ):
        return tuple(turns)
    problem = f"{name}, {where}: turns is {turns!r:.60}; expected a list of texts"
    raise UsageError(problem)


def _messages(name: str, messages: object, where: str) -> list[tuple[str, str]]:
    if isinstance(messages, list) and messages and all(map(_is_message, messages)):
        return [(message["role"], message["content"]) for message in messages]
    problem = (
        f"{name}, {where}: messages is {messages!r:.60}; expected a list of objects with role "
        f"({', '.join(_ROLES)}) and content (a text)"
    )
    raise UsageError(problem)


def _is_message(message: object) -> bool:
    return (
        isinstance(message, dict)
        and message.get("role") in _ROLES
        and isinstance(message.get("content"), str)
    )


def _load(name: str) -> list[Mapping[str, Any]]:
    """Load a public set's rows through `datasets`."""
    form = FORMS[name]
    instead = f"or give its rows as a file of JSON lines: {name}=FILE.jsonl"
    try:
        from datasets import load_dataset
    except ImportError as error:
        text = f"{name}: Python's datasets, which fetches it, cannot be imported ({error}); run '{EXTRA}', {instead}"
        raise UsageError(text) from None
    try:
        rows = list(load_dataset(*form.hub, split=form.split))
    except Exception as error:  # its errors, the Hub's and the network's are many
        first = str(error).strip().split("\n")[0]
        text = f"{name}: {form.hub[0]} cannot be loaded ({type(error).__name__}: {first}); try again, {instead}"
        raise DflashError(text) from error
    if not rows:
        text = (
            f"{name}: the split {form.split} of {form.hub[0]} has no rows; expected some, {instead}"
        )
        raise DflashError(text)
    return rows

"""Dialogues of the three kinds: an endless seeded training stream and the held-out prompts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .arithmetic import Piece, make_arithmetic, make_drill
from .chat import END, Message, render
from .coding import make_code
from .reading import make_reading
from .words import NUMBER, Pool, check_unseen

MAKERS: dict[str, Callable[[Pool], Piece]] = {
    "arithmetic": make_arithmetic,
    "code": make_code,
    "qa": make_reading,
}
MIXTURE = {"arithmetic": 0.5, "code": 0.25, "qa": 0.25}
LATE_MIXTURE = {"arithmetic": 0.56, "code": 0.22, "qa": 0.22}
DRILL_SHARE = 0.3  # of the dialogues of a stream with drills
DRILL_SEED, LATE_SEED = 2000, 3000  # added to the seed for such streams
HELD_OUT = {"arithmetic": 40, "code": 28, "qa": 28}
SYSTEM = (
    "You are a helpful assistant.",
    "Answer short and clear.",
    "You solve small tasks step by step.",
    "You help with numbers, code and texts.",
)
THINK_SHARE, SYSTEM_SHARE, TURNS_SHARE = 0.8, 0.2, 0.12


@dataclass(frozen=True)
class Dialogue:
    """Messages up to the last user turn and the reply to it."""

    kind: str
    messages: list[Message]
    think: bool
    reply: str  # what follows the generation prompt, without the end token
    value: str
    names: list[str]
    templates: list[str]

    @property
    def prompt(self) -> str:
        """The rendered messages, ending with the generation prompt."""
        return render(self.messages, think=self.think)

    @property
    def text(self) -> str:
        """Prompt, reply and end token."""
        return self.prompt + self.reply + END


def make_dialogue(
    rng: random.Random,
    *,
    held: bool,
    kind: str | None = None,
    think: bool | None = None,
    late: bool = False,
    mixture: Mapping[str, float] = MIXTURE,
) -> Dialogue:
    """One dialogue with all names, numbers and templates from one side."""
    kind = kind or rng.choices(list(mixture), weights=list(mixture.values()))[0]
    think = rng.random() < THINK_SHARE if think is None else think
    pool = Pool(rng, held, late)
    messages: list[Message] = []
    if rng.random() < SYSTEM_SHARE:
        messages.append({"role": "system", "content": rng.choice(SYSTEM)})
    if rng.random() < TURNS_SHARE:
        earlier = MAKERS[rng.choice(list(MAKERS))](pool)
        messages += [
            {"role": "user", "content": earlier.question},
            {"role": "assistant", "content": earlier.answer},
        ]
    piece = make_drill(pool) if kind == "drill" else MAKERS[kind](pool)
    messages.append({"role": "user", "content": piece.question})
    reply = f"{piece.think}\n</think>\n\n{piece.answer}" if think else piece.short
    return Dialogue(kind, messages, think, reply, piece.value, pool.names, pool.templates)


def training_stream(
    seed: int,
    *,
    drills: bool = False,
    late: bool = False,
    mixture: Mapping[str, float] = MIXTURE,
) -> Iterator[Dialogue]:
    """Endless training dialogues; texts with a number to avoid anywhere are passed over.

    Late streams have drills too, more templates, and COLUMN numbers.
    """
    rng = random.Random(seed)
    avoid = Pool(rng, held=False, late=late).avoids
    while True:
        kind = "drill" if (drills or late) and rng.random() < DRILL_SHARE else None
        dialogue = make_dialogue(rng, held=False, kind=kind, late=late, mixture=mixture)
        while any(avoid(int(n)) for n in NUMBER.findall(dialogue.text)):
            dialogue = make_dialogue(rng, held=False, kind=kind, late=late, mixture=mixture)
        yield dialogue


def held_out_prompts(seed: int) -> list[Dialogue]:
    """The held-out prompts, thinking on, in a fixed order."""
    rng = random.Random(f"test {seed}")
    return [
        make_dialogue(rng, held=True, kind=kind, think=True)
        for kind, count in HELD_OUT.items()
        for _ in range(count)
    ]


def check_split(training: list[Dialogue], held: list[Dialogue]) -> None:
    """Raises if any held-out name, number or phrase stands in the training text."""
    check_unseen(
        (d.text for d in training),
        {name for d in held for name in d.names},
        {template for d in held for template in d.templates},
    )


def write_prompts(path: Path, held: list[Dialogue]) -> None:
    """Writes prompts.jsonl: id, kind, messages, think, and the answer of arithmetic ones."""
    with path.open("w", encoding="utf-8") as file:
        for i, d in enumerate(held):
            line: dict[str, object] = {"id": f"{d.kind}-{i:02d}", "kind": d.kind}
            line |= {"messages": d.messages, "think": d.think}
            if d.value:
                line["answer"] = d.value
            file.write(json.dumps(line) + "\n")

"""Short questions about a few facts that stand in the prompt."""

from __future__ import annotations

from dataclasses import dataclass

from .arithmetic import Piece
from .words import COLORS, FOODS, JOBS, PETS, Pool, Templates


@dataclass(frozen=True)
class Relation:
    """How one fact is said, asked for and answered; {n} is the person, {v} the value."""

    fact: str
    about: str
    values: tuple[str, ...]  # empty: a made-up place
    ask: Templates


RELATIONS = (
    Relation(
        "{n} lives in {v}.",
        "where {n} lives",
        (),
        Templates(
            "where",
            ("Where does {n} live?", "Tell me where {n} lives.", "In which town does {n} live?"),
            ("Which town does {n} live in?",),
        ),
    ),
    Relation(
        "{n} works as a {v}.",
        "what {n} works as",
        tuple(JOBS),
        Templates(
            "job",
            ("What is the job of {n}?", "Tell me the job of {n}.", "As what does {n} work?"),
            ("What does {n} work as?",),
        ),
    ),
    Relation(
        "{n} has a {v}.",
        "which pet {n} has",
        tuple(PETS),
        Templates(
            "pet",
            ("Which pet does {n} have?", "What is the pet of {n}?", "Tell me which pet {n} has."),
            ("Tell me what pet {n} has.",),
        ),
    ),
    Relation(
        "{n} likes {v}.",
        "which food {n} likes",
        tuple(FOODS),
        Templates(
            "food",
            ("Which food does {n} like?", "What does {n} like to eat?", "Tell me what {n} likes."),
            ("Tell me which food {n} likes.",),
        ),
    ),
    Relation(
        "{n} wears a {v} coat.",
        "the color of the coat of {n}",
        tuple(COLORS),
        Templates(
            "color",
            (
                "Which color is the coat of {n}?",
                "What is the color of the coat of {n}?",
                "Tell me the color of the coat of {n}.",
            ),
            ("What color does the coat of {n} have?",),
        ),
    ),
)


def make_reading(pool: Pool) -> Piece:
    """Three to five facts about two or three people, and a question about one of them."""
    rng = pool.rng
    people = [pool.name() for _ in range(rng.choice((2, 2, 3)))]
    facts: list[tuple[str, Relation, str]] = []
    for person in people:
        for relation in rng.sample(RELATIONS, rng.choice((1, 2))):
            value = rng.choice(relation.values) if relation.values else pool.name()
            facts.append((person, relation, value))
    rng.shuffle(facts)
    named = list(dict.fromkeys(n for n, _, _ in facts))  # in the order of the text
    person, relation, value = rng.choice(facts)
    said = " ".join(r.fact.format(n=n, v=v) for n, r, v in facts)
    question = pool.template(relation.ask).format(n=person)
    answer = relation.fact.format(n=person, v=value)
    think = (
        f"The question asks for {relation.about.format(n=person)}.\n"
        f"The text names {len(named)} people: {', '.join(named)}.\n"
        f"I look for the facts about {person} in the text.\n"
        f"The text says: {answer}\nSo the answer is {value}."
    )
    return Piece("qa", f"{said} {question}", think, answer, answer)

"""The pools that texts are made of, and the rule that keeps some of them out of training.

Three things are held out: names, numbers of two digits or more, and sentence templates. A
`Pool` draws either only training members or only held-out members, so one generator
serves both sides and cannot mix them. `check_unseen` verifies the result on the finished text.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


def listed(words: str) -> list[str]:
    """The words of a line."""
    return words.split()


CONSONANTS = listed("b d f k l m n r t v")
VOWELS = listed("a e i o u")
TAILS = listed("n l r s m")
GIVEN = listed(
    "Anna Ben Carla David Emma Felix Greta Hugo Ida Jonas Karl Lena Mia Noah Oskar Paula Rosa "
    "Simon Tina Vera Walter Nina Otto Lukas Sofia Maria Peter Julia Daniel Laura Martin Clara"
)
# unseen as words, but spelled with letters that training names have in the same places
GIVEN_HELD = listed("Boris Dora Frida Kurt Linda Marek Nora")
OBJECTS = listed(
    "apples pears books pens coins stones cards shells eggs cups plates tickets stamps balls "
    "flowers candles buttons keys lemons cookies"
)
JOBS = listed("baker teacher doctor farmer pilot painter tailor driver cook nurse singer writer")
PETS = listed("cat dog horse rabbit parrot goat duck turtle")
FOODS = listed("bread soup rice cheese honey plums beans cake salad fish")
COLORS = listed("red blue green yellow white black brown purple")

NUMBER = re.compile(r"\d+")


# sums and products of two digits: to hold one out would hold out a fact, not a number
COLUMN = frozenset({13, 19, 24})


def number_is_rare(n: int) -> bool:
    """True for about one in six of the numbers from 10 up; the early training texts lack them."""
    return n >= 10 and (n * 7 + n // 10) % 6 == 2


def number_is_held(n: int) -> bool:
    """True for the rare numbers that column work cannot produce; no training text has them."""
    return number_is_rare(n) and n not in COLUMN


def name_is_held(name: str) -> bool:
    """True for the held-out given names and for one in eight of all made-up words."""
    if (usual := name.capitalize()) in GIVEN or usual in GIVEN_HELD:
        return usual in GIVEN_HELD
    return zlib.crc32(name.lower().encode()) % 8 == 0


@dataclass(frozen=True)
class Templates:
    """Sentence templates of one role; the held-out ones are worded in no other place."""

    role: str
    train: Sequence[str]
    held: Sequence[str]
    late: Sequence[str] = ()  # more for training, in late texts only


@dataclass
class Pool:
    """Draws words for one text and remembers what it drew."""

    rng: random.Random
    held: bool
    late: bool = False  # texts of the target's last cycle: all templates, COLUMN numbers too
    names: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)

    def word(self) -> str:
        """A made-up lower-case word of two or three syllables."""
        while True:
            parts = [
                self.rng.choice(CONSONANTS) + self.rng.choice(VOWELS)
                for _ in range(self.rng.choice((2, 2, 3)))
            ]
            if self.rng.random() < 0.4:
                parts.append(self.rng.choice(TAILS))
            word = "".join(parts)
            if name_is_held(word) == self.held and word not in self.names:
                self.names.append(word)
                return word

    def name(self) -> str:
        """A person's or a place's name: one in three is a usual one, the others are made up."""
        if self.rng.random() < 0.33:
            name = self.rng.choice(GIVEN_HELD if self.held else GIVEN)
            if name not in self.names:
                self.names.append(name)
                return name
        word = self.word()
        self.names[-1] = word.capitalize()
        return word.capitalize()

    def number(self, low: int, high: int) -> int:
        """A number in [low, high] from this side; a range of single digits has no sides."""
        while True:
            n = self.rng.randint(low, high)
            if self.allows(n):
                self.numbers.append(n)
                return n

    def allows(self, n: int) -> bool:
        """True if this side may use the number."""
        if n < 10:
            return True
        return number_is_held(n) if self.held else not self.avoids(n)

    def avoids(self, n: int) -> bool:
        """True if a training text of this pool must not have the number."""
        return number_is_held(n) if self.late else number_is_rare(n)

    def can_draw(self, low: int, high: int) -> bool:
        """True if this side has a number in [low, high]."""
        return any(self.allows(n) for n in range(low, high + 1))

    def template(self, templates: Templates) -> str:
        """One sentence template of this side."""
        train = [*templates.train, *templates.late] if self.late else templates.train
        text = self.rng.choice(templates.held if self.held else train)
        self.templates.append(text)
        return text


def has_held_number(text: str) -> bool:
    """True if any whole number in `text` is a held-out one."""
    return any(number_is_held(int(n)) for n in NUMBER.findall(text))


def template_pattern(template: str) -> str:
    """A regular expression for the sentences that a template makes."""
    parts = (re.escape(part) for part in re.split(r"\{\w+\}", template))
    return r"[^.?!\n]+".join(parts)


def check_unseen(training: Iterable[str], names: set[str], templates: Iterable[str]) -> None:
    """Raises if a held-out name, number or template occurs anywhere in the training text."""
    phrase = re.compile("|".join(template_pattern(t) for t in sorted(templates)))
    for text in training:
        if seen := set(re.findall(r"[A-Za-z]+", text)) & names:
            msg = f"held-out names in training text: {sorted(seen)[:5]}"
            raise AssertionError(msg)
        if has_held_number(text):
            msg = f"held-out number in training text: {text!r}"
            raise AssertionError(msg)
        if found := phrase.search(text):
            msg = f"held-out phrase in training text: {found[0]!r}"
            raise AssertionError(msg)

"""Rules of a grammar that come back to themselves without a character, which llama.cpp does not survive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True)
class Item:
    """A part of an alternative: what it refers to, and whether it may be empty by itself."""

    elements: int = 1
    nullable: bool = False
    rule: str | None = None
    choices: list[list[Item]] = field(default_factory=list)  # of a group
    depth: int = 0  # of groups and repeats within it


Choices: TypeAlias = Sequence[Sequence[Item]]


def left_recursive(rules: Mapping[str, Choices]) -> str | None:
    """Return a rule that begins with itself, with something left to do after it; None if there is none.

    llama.cpp looks for left recursion too, but not through rules that may be empty only by others; such a
    grammar makes it fill the memory.
    """
    nullable = _nullable(rules)
    firsts = {name: _firsts(choices, nullable) for name, choices in rules.items()}
    reach = {name: _reachable(name, firsts) for name in firsts}
    for name, edges in firsts.items():
        for other, rest in edges.items():
            if rest and (name == other or name in reach[other]):
                return name
    return None


def _empty(item: Item, nullable: set[str]) -> bool:
    return item.nullable or item.rule in nullable or _any_empty(item.choices, nullable)


def _any_empty(choices: Choices, nullable: set[str]) -> bool:
    for choice in choices:
        for item in choice:
            if not _empty(item, nullable):
                break
        else:
            return True
    return False


def _nullable(rules: Mapping[str, Choices]) -> set[str]:
    """Rules that may be empty."""
    found: set[str] = set()
    while True:
        more = {name for name, choices in rules.items() if _any_empty(choices, found)}
        if more == found:
            return found
        found = more


def _firsts(choices: Choices, nullable: set[str]) -> dict[str, bool]:
    """Rules that may come first, and whether anything is left to do after them."""
    found: dict[str, bool] = {}
    todo: list[tuple[Choices, bool]] = [(choices, False)]
    while todo:
        choices, rest = todo.pop()
        for choice in choices:
            for i, item in enumerate(choice):
                after = rest or i + 1 < len(choice)
                if item.rule is not None:
                    found[item.rule] = found.get(item.rule, False) or after
                todo.append((item.choices, after))
                if not _empty(item, nullable):
                    break
    return found


def _reachable(start: str, edges: Mapping[str, Mapping[str, bool]]) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for other in edges[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen

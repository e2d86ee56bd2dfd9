"""Checks of GBNF grammars, with line numbers, before llama.cpp sees them.

llama.cpp prints a bad grammar's faults to stderr, runs out of memory on some and out of stack on others. This
walks the text as its parser does (src/llama-grammar.cpp), builds nothing, and refuses by name what it would not
survive or would quietly take for something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ._native import core
from .errors import UsageError
from .left_recursion import Item, left_recursive

if TYPE_CHECKING:
    from . import _core

_MAX_REPEATS = 2000  # llama.cpp takes more as "without end"
_MAX_ELEMENTS = 200_000
_MAX_DEPTH = 128
_WORD = re.compile(r"[a-zA-Z0-9-]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_REPEAT = re.compile(r"\{[ \t]*([0-9]{1,9})[ \t]*(,?)[ \t]*([0-9]{0,9})[ \t]*\}")
_TOKEN = re.compile(r"<\[([0-9]{1,9})\]>|<[^>]*>")
_ESCAPES = {"t": 9, "r": 13, "n": 10, "\\": 92, '"': 34, "[": 91, "]": 93, "-": 45}
_HEX = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar that has been checked.

    Attributes:
        text: the GBNF.
        tokens: ids of the tokens that it names, as <[7]> or <name>.
        any_token: it excludes tokens (!<name>), so that all others are meant.
    """

    text: str
    tokens: tuple[int, ...] = ()
    any_token: bool = False


def grammar_text(model: _core.Model, grammar: tuple[str, str] | None) -> _core.GrammarText:
    """Return what a request's text must keep to, as the engine takes it; empty for None.

    Args:
        model: whose tokens it is for.
        grammar: GBNF, and what to call it in errors.

    Raises UsageError if it is broken.
    """
    native: type[_core.GrammarText] = core().GrammarText
    if grammar is None:
        return native()
    text, name = grammar
    found = check_grammar(text, model.n_vocab, lambda t: model.tokenize(t, False, True), name)
    return native(found.text, set(found.tokens), found.any_token)


def check_grammar(
    text: str, n_vocab: int, tokenize: Callable[[str], list[int]], name: str = "the grammar"
) -> Grammar:
    """Return the grammar, ready for the engine.

    Args:
        text: GBNF, as in llama.cpp's grammars/README.md, with a rule `root`.
        n_vocab: tokens of the vocabulary it is for.
        tokenize: ids of a text, its special tokens parsed.
        name: what to call it in errors.

    Raises UsageError naming the line and what is wrong there.
    """
    if not isinstance(text, str):
        problem = f"{name} is {type(text).__name__}; expected GBNF text"
        raise UsageError(problem)
    return _Reader(text, n_vocab, tokenize, name).read()


class _Reader:
    def __init__(
        self, text: str, n_vocab: int, tokenize: Callable[[str], list[int]], name: str
    ) -> None:
        self.text, self.at, self.name = text, 0, name
        self.n_vocab, self.tokenize = n_vocab, tokenize
        self.rules: dict[str, list[list[Item]]] = {}
        self.lines: dict[str, int] = {}  # where a rule is first named
        self.defined: dict[str, int] = {}
        self.made = 0  # rules that llama.cpp makes for groups and repeats
        self.elements = 0
        self.tokens: list[int] = []
        self.any_token = False

    def read(self) -> Grammar:
        if "\0" in self.text:
            self.at = self.text.index("\0")
            self.refuse("a NUL character, which ends the text for llama.cpp; take it out")
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            self.at = error.start
            self.refuse("half of a surrogate pair, which no text holds")
        self.skip(lines=True)
        while self.at < len(self.text):
            self.rule()
        if "root" not in self.rules:
            text = f"{self.name} has no rule 'root', with which a text must begin; add root ::= ..."
            raise UsageError(text)
        for rule, line in self.lines.items():
            if rule not in self.rules:
                text = f"{self.name}, line {line}: rule '{rule}' is not defined"
                raise UsageError(text)
        if (again := left_recursive(self.rules)) is not None:
            text = (
                f"{self.name}, line {self.defined[again]}: rule '{again}' begins with itself, which "
                "llama.cpp cannot do; put a character before the rule that repeats, or use * or +"
            )
            raise UsageError(text)
        return Grammar(self.text, tuple(self.tokens), self.any_token)

    def refuse(self, problem: str) -> NoReturn:
        line = self.text.count("\n", 0, self.at) + 1
        text = f"{self.name}, line {line}: {problem}"
        raise UsageError(text)

    def found(self) -> str:
        return repr(self.text[self.at]) if self.at < len(self.text) else "the end"

    def skip(self, *, lines: bool) -> None:
        match = (_SPACE_AND_LINES if lines else _SPACE).match(self.text, self.at)
        self.at = match.end() if match else self.at

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def rule(self) -> None:
        match = _WORD.match(self.text, self.at)
        if match is None:
            self.refuse(f"expected a rule's name, found {self.found()}")
        line, name = self.text.count("\n", 0, self.at) + 1, match[0]
        if name in self.defined:
            self.refuse(f"rule '{name}' is defined again, first on line {self.defined[name]}")
        self.defined[name] = line
        self.lines.setdefault(name, line)
        self.at = match.end()
        self.skip(lines=False)
        if self.peek(3) != "::=":
            self.refuse(f"expected ::= after the name '{name}', found {self.found()}")
        self.at += 3
        self.skip(lines=True)
        self.rules[name] = self.alternatives(0)
        if self.peek() not in {"", "\r", "\n"}:
            self.refuse(f"expected a part of rule '{name}' or the line's end, found {self.found()}")
        self.skip(lines=True)

    def alternatives(self, depth: int) -> list[list[Item]]:
        if depth > _MAX_DEPTH:
            self.refuse(f"groups are nested more than {_MAX_DEPTH} deep")
        found = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            self.skip(lines=True)
            found.append(self.sequence(depth))
        return found

    def sequence(self, depth: int) -> list[Item]:
        items: list[Item] = []
        rules_of_last = 1  # how llama.cpp counts what a repeat multiplies
        while char := self.peek():
            if char in "*+?{":
                if not items:
                    self.refuse(f"nothing stands before {char} that could be repeated")
                rules_of_last = self.repeat(items, rules_of_last)
            elif (item := self.item()) is not None:
                before = self.made + len(self.lines)
                if char == "(":
                    item.choices = self.alternatives(depth + 1)
                    if self.peek() != ")":
                        self.refuse(f"expected a closing parenthesis, found {self.found()}")
                    self.at += 1
                    self.made += 1
                    self.nest(
                        item,
                        max((part.depth for choice in item.choices for part in choice), default=0),
                    )
                rules_of_last = max(1, self.made + len(self.lines) - before)
                items.append(item)
            else:
                break
            self.count(items[-1].elements)
            self.skip(lines=depth > 0)
        return items

    def count(self, elements: int) -> None:
        self.elements += elements
        if self.elements > _MAX_ELEMENTS:
            self.refuse(
                f"with its repeats the grammar has over {_MAX_ELEMENTS} parts; make it smaller"
            )

    def nest(self, item: Item, depth: int) -> None:
        item.depth = depth + 1
        if item.depth > _MAX_DEPTH:
            self.refuse(f"groups and repeats are nested more than {_MAX_DEPTH} deep")

    def item(self) -> Item | None:
        """Read an item, of a group its parenthesis; None where there is none."""
        char = self.peek()
        if char == '"':
            return self.literal()
        if char == "[":
            return self.characters()
        if char in "<!":
            return self.token()
        if char == "(":
            self.at += 1
            self.skip(lines=True)
            return Item()
        if char == ".":
            self.at += 1
            return Item()
        return self.reference()

    def reference(self) -> Item | None:
        match = _WORD.match(self.text, self.at)
        if match is None:
            return None
        self.lines.setdefault(match[0], self.text.count("\n", 0, self.at) + 1)
        self.at = match.end()
        return Item(rule=match[0])

    def literal(self) -> Item:
        self.at += 1
        elements = 0
        while self.peek() != '"':
            self.character("a closing quote")
            elements += 1
        self.at += 1
        return Item(elements, nullable=elements == 0)

    def characters(self) -> Item:
        self.at += 1
        if self.peek() == "^":
            self.at += 1
        elements = 0
        while self.peek() != "]":
            low = self.character("a closing bracket")
            elements += 1
            if self.peek() == "-" and self.peek(2) != "-]":
                self.at += 1
                high = self.character("the end of a range")
                elements += 1
                if high < low:
                    self.refuse("a range of characters runs backwards")
        if elements == 0:
            self.refuse("brackets without characters")
        self.at += 1
        return Item(elements)

    def character(self, wanted: str) -> int:
        char = self.peek()
        if not char:
            self.refuse(f"expected {wanted}, found the end")
        self.at += 1
        if char != "\\":
            return ord(char)
        kind = self.peek()
        self.at += 1
        if kind in _HEX and kind:
            digits = self.peek(_HEX[kind])
            if len(digits) < _HEX[kind] or re.search("[^0-9a-fA-F]", digits):
                self.refuse(f"expected {_HEX[kind]} hexadecimal digits after \\{kind}")
            self.at += _HEX[kind]
            code = int(digits, 16)
            if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
                self.refuse(
                    f"\\{kind}{digits} is no character; write those past U+FFFF as \\U0001F600"
                )
            return code
        if kind not in _ESCAPES or not kind:
            self.refuse(
                f'unknown escape \\{kind}; expected one of \\x \\u \\U \\t \\r \\n \\\\ \\" \\[ \\] \\-'
            )
        return _ESCAPES[kind]

    def token(self) -> Item:
        if self.peek() == "!":
            self.any_token = True
            self.at += 1
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            self.refuse(f"expected a token as <name> or <[id]>, found {self.found()}")
        if match[1] is None:
            ids = self.tokenize(match[0])
            if len(ids) != 1:
                self.refuse(f"{match[0]} is {len(ids)} tokens of this model, expected one")
        else:
            ids = [int(match[1])]
            if ids[0] >= self.n_vocab:
                self.refuse(f"{match[0]} is outside the vocabulary of {self.n_vocab}")
        self.tokens += ids
        self.at = match.end()
        return Item()

    def repeat(self, items: list[Item], rules_of_last: int) -> int:
        """Read a repeat and apply it to the last item; return the rules that it then stands for."""
        char = self.peek()
        if char == "{":
            match = _REPEAT.match(self.text, self.at)
            if match is None:
                self.refuse("expected a repeat such as {3}, {2,} or {2,5}")
            least = int(match[1])
            most = int(match[3]) if match[3] else (None if match[2] else least)
            self.at = match.end()
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            self.at += 1
        if most is not None and most < least:
            self.refuse(f"a repeat of at least {least} and at most {most}")
        total = most or least or 1
        if max(least, most or 0) > _MAX_REPEATS or rules_of_last * total > _MAX_REPEATS:
            self.refuse(f"a repeat that llama.cpp cannot hold; it goes up to {_MAX_REPEATS}")
        last = items[-1]
        optional = 1 if most is None else most - least
        self.made += optional
        inner = Item(last.elements, last.nullable, last.rule, last.choices)
        again = [Item(1, nullable=True)] if most is None else []
        items[-1] = Item(
            (last.elements + 2) * (least + optional),
            nullable=least == 0 or last.nullable,
            choices=[[inner, *again]],
        )
        self.nest(items[-1], last.depth)
        return rules_of_last * total

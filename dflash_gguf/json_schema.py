"""JSON schemas as GBNF: every text of the grammar is JSON that the schema takes.

llama-cpp-python's own converter lets raw line breaks into strings, breaks on quotes and backslashes in names, and
passes over keywords it does not know; here what cannot be kept to is refused by name. Texts may be fewer than the
schema's: properties come in the order given, none but the declared ones where any are, oneOf is read as anyOf.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .errors import UsageError
from .integer_range import between
from .schema_reading import check, counts, find, has_type, listed, merged, refuse, same, whole

_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum"},
    "boolean": set[str](),
    "null": set[str](),
}
_STEP = 1000  # repeats that llama.cpp holds are split into

_RULES = {
    # few of them, so that a text cannot go on with nothing else
    "ws": r'| " " | "\n" [ \t]{0,20}',
    "hex": "[0-9a-fA-F]",
    "char": r'[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CeEfF] hex | [dD] [0-7]) hex hex)',
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "fraction": '("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?',
    "number": "integer fraction",
    "boolean": '"true" | "false"',
    "null": '"null"',
    "member": 'string ws ":" ws value',
    "object": '"{" ws (member ws ("," ws member ws)*)? "}"',
    "array": '"[" ws (value ws ("," ws value ws)*)? "]"',
    "value": "object | array | string | number | boolean | null",
    "year": "[0-9]{4}",
    "month": '("0" [1-9] | "1" [0-2])',
    "day": '("0" [1-9] | [12] [0-9] | "3" [01])',
    "clock": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})? zone',
    "zone": '("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])',
}
_FORMATS = {
    "date": r'"\"" year "-" month "-" day "\""',
    "time": r'"\"" clock "\""',
    "date-time": r'"\"" year "-" month "-" day "T" clock "\""',
    "uuid": r'"\"" hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12} "\""',
}


def schema_to_gbnf(schema: Mapping[str, Any] | str | bool) -> str:
    """Return a GBNF grammar whose texts are JSON values that the schema takes.

    Args:
        schema: JSON schema (2020-12, as far as it goes), as a dictionary or as JSON text.

    Raises UsageError naming the place and the keyword for a schema that is broken, takes nothing or asks for
    what a grammar cannot keep to.
    """
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            text = f"the JSON schema is not JSON: {error}"
            raise UsageError(text) from None
    try:
        value, rules = schema_rules(schema, schema)
    except RecursionError:
        text = "the JSON schema is nested too deeply; a grammar for it cannot be made"
        raise UsageError(text) from None
    return written({"root": value, **rules})


def schema_rules(
    root: Any, schema: Any, place: str = "#", prefix: str = ""
) -> tuple[str, dict[str, str]]:
    """Return an expression for a schema's values, which binds as tightly as a name, and the rules it needs.

    Args:
        root: what its $ref begin with.
        schema: it, or a part of it.
        place: where in the root it stands, for messages.
        prefix: of the rules' names, so that several schemas may stand in one grammar.

    The common rules are missing: `written` adds them. Errors as of `schema_to_gbnf`, and RecursionError.
    """
    writer = _Writer(root, prefix)
    return writer.visit(schema, place), writer.rules


def written(rules: Mapping[str, str]) -> str:
    """Return the grammar of these rules, the first its root, and of the common ones that they ask for."""
    found, todo = dict(rules), list(rules.values())
    while todo:
        for name in re.findall(r"[a-z]+", todo.pop()):
            if name in _RULES and name not in found:
                found[name] = _RULES[name]
                todo.append(_RULES[name])
    return "".join(f"{name} ::= {rule}\n" for name, rule in found.items())


class _Writer:
    def __init__(self, schema: Any, prefix: str) -> None:
        self.schema = schema
        self.prefix = prefix
        self.rules: dict[str, str] = {}
        self.refs: dict[str, str] = {}

    def rule(self, body: str) -> str:
        """Give a rule a name, so that groups are not nested deeper with every level of the schema."""
        name = f"{self.prefix}part-{len(self.rules)}"
        self.rules[name] = body
        return name

    def visit(self, schema: Any, place: str) -> str:
        """Return an expression for a schema, which binds as tightly as a name."""
        if schema is True or schema == {}:
            return "value"
        if schema is False:
            refuse(place, "false takes nothing; leave the property out")
        if not isinstance(schema, Mapping):
            refuse(place, f"expected a schema, found {type(schema).__name__}")
        if "$ref" in schema:
            check(schema, {"$ref"}, place)
            return self.ref(schema["$ref"], place)
        if "const" in schema or "enum" in schema:
            return self.literals(schema, place)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                check(schema, {name}, place)
                options = listed(schema, name, place)
                return self.rule(
                    " | ".join(self.visit(s, f"{place}/{name}/{i}") for i, s in enumerate(options))
                )
        if "allOf" in schema:
            return self.visit(merged(self.schema, schema, place), place)
        return self.typed(schema, place)

    def ref(self, ref: Any, place: str) -> str:
        target = find(self.schema, ref, place)
        if ref not in self.refs:
            # the name first: the schema may refer to itself
            self.refs[ref] = name = f"{self.prefix}ref-{len(self.refs)}"
            self.rules[name] = "null"
            self.rules[name] = self.visit(target, ref)
        return self.refs[ref]

    def literals(self, schema: Mapping[str, Any], place: str) -> str:
        check(schema, {"const", "enum", "type"}, place)
        values = listed(schema, "enum", place) if "enum" in schema else [schema["const"]]
        if "enum" in schema and "const" in schema:
            values = [value for value in values if same(value, schema["const"])]
        types = schema.get("type")
        if types is not None:
            types = types if isinstance(types, list) else [types]
            values = [v for v in values if any(has_type(v, name) for name in types)]
        if not values:
            refuse(place, "no value is left that its 'enum', 'const' and 'type' all take")
        return self.rule(" | ".join(self.literal(value, place) for value in values))

    def literal(self, value: Any, place: str) -> str:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            text.encode()
        except (TypeError, ValueError) as error:
            refuse(place, f"{value!r} is no JSON value: {error}")
        return quoted(text)

    def typed(self, schema: Mapping[str, Any], place: str) -> str:
        types = schema.get("type")
        if types is None:
            types = [
                name
                for name in ("object", "array", "string", "integer")
                if _KEYWORDS[name] & set(schema)
            ]
            types = ["number" if name == "integer" else name for name in types]
            if not types:
                check(schema, set(), place)
                return "value"
        types = types if isinstance(types, list) else [types]
        if not types or any(not isinstance(name, str) or name not in _KEYWORDS for name in types):
            refuse(place, f"type is {schema.get('type')!r}; expected one of {', '.join(_KEYWORDS)}")
        known = set.union({"type"}, *(_KEYWORDS[name] for name in types))
        check(schema, known, place)
        makers = {
            "object": self.object,
            "array": self.array,
            "string": self.string,
            "integer": self.integer,
            "number": self.number,
        }
        options = [makers[name](schema, place) if name in makers else name for name in types]
        return options[0] if len(options) == 1 else self.rule(" | ".join(options))

    def object(self, schema: Mapping[str, Any], place: str) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others = schema.get("additionalProperties", True)
        if not isinstance(properties, Mapping):
            refuse(place, "'properties' is no object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            refuse(place, "'required' is no list of names")
        members = {
            name: self.member(name, self.visit(part, f"{place}/properties/{name}"), place)
            for name, part in properties.items()
            if part is not False
        }
        for name in dict.fromkeys(required):
            if name not in members:
                if others is False or name in properties:
                    refuse(place, f"'{name}' is required and not allowed")
                value = self.visit(others, f"{place}/additionalProperties")
                members[name] = self.member(name, value, place)
        if members:
            return self.rule(rf'"{{" ws {self.members(members, set(required))} "}}"')
        if others is False or not isinstance(others, bool | Mapping):
            return self.rule('"{" ws "}"') if others is False else self.visit(others, place)
        if others is True or others == {}:
            return "object"
        member = self.rule(
            f'string ws ":" ws {self.visit(others, f"{place}/additionalProperties")}'
        )
        return self.rule(f'"{{" ws ({member} ws ("," ws {member} ws)*)? "}}"')

    def member(self, name: str, value: str, place: str) -> str:
        return self.rule(f'{self.literal(name, place)} ws ":" ws {value} ws')

    def members(self, members: dict[str, str], required: set[str]) -> str:
        """Members in order, the optional ones left out at will: a rule for what may follow each, from the end."""
        after = {True: "", False: ""}  # whether a member has been written: what may follow
        for name, member in reversed(members.items()):
            first, later = f"{member} {after[True]}", f'"," ws {member} {after[True]}'
            if name not in required:
                first = f"{first} | {after[False]}" if after[False] else f"({first})?"
                later = f"{later} | {after[True]}" if after[True] else f"({later})?"
            after = {True: self.rule(later), False: self.rule(first)}
        return after[False]

    def array(self, schema: Mapping[str, Any], place: str) -> str:
        least, most = counts(schema, "Items", place)
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        if isinstance(rest, list):  # as it was written before 2020
            first, rest = rest, False
        if not isinstance(first, list):
            refuse(place, "'prefixItems' is no list")
        most = len(first) if rest is False and (most is None or most > len(first)) else most
        if most is not None and most < least:
            refuse(place, f"minItems is {least}, and at most {most} are allowed")
        items = [
            self.visit(part, f"{place}/prefixItems/{i}") for i, part in enumerate(first[:most])
        ]
        left = None if most is None else most - len(items)
        tail = ""
        if left is None or left > 0:
            value = f"{self.visit(rest, f'{place}/items')} ws"
            further = self.rule(f'"," ws {value}')
            written = max(1, len(items))
            room = None if most is None else most - written
            tail = self.repeated(further, max(0, least - written), room)
            if not items:
                filled = f"{value} {tail}"
                return self.rule(f'"[" ws {filled if least else f"({filled})?"} "]"')
        # items beyond the least may be left out from the end on
        for i in reversed(range(len(items))):
            item = f"{items[i]} ws {tail}" if i == 0 else f'"," ws {items[i]} ws {tail}'
            tail = self.rule(item if i < least else f"({item})?")
        return self.rule(f'"[" ws {tail} "]"')

    def repeated(self, item: str, least: int, most: int | None) -> str:
        """Repeats of an item, in steps that llama.cpp holds."""
        parts = [f"{item}{{{count}}}" for count in _steps(least)]
        if most is None:
            parts.append(f"{item}*")
        else:
            parts += [f"{item}{{0,{count}}}" for count in _steps(most - least)]
        return " ".join(parts)

    def string(self, schema: Mapping[str, Any], place: str) -> str:
        least, most = counts(schema, "Length", place)
        if (least, most) == (0, None):
            return (
                self.rule(_FORMATS[schema["format"]])
                if schema.get("format") in _FORMATS
                else "string"
            )
        return self.rule(rf'"\"" {self.repeated("char", least, most)} "\""')

    def integer(self, schema: Mapping[str, Any], place: str) -> str:
        low, high = whole(schema, "minimum", place), whole(schema, "maximum", place)
        above = whole(schema, "exclusiveMinimum", place)
        below = whole(schema, "exclusiveMaximum", place)
        if above is not None:
            low = above + 1 if low is None else max(low, above + 1)
        if below is not None:
            high = below - 1 if high is None else min(high, below - 1)
        if low is None and high is None:
            return "integer"
        if low is not None and high is not None and low > high:
            refuse(place, f"no whole number is at least {low} and at most {high}")
        return self.rule(between(low, high))

    def number(self, schema: Mapping[str, Any], place: str) -> str:
        low = schema.get("minimum")
        if low is None:
            return "number"
        if isinstance(low, bool) or low != 0:
            refuse(
                place,
                f"minimum {low!r} of a number cannot be kept to; 0 can, and any of an integer",
            )
        return self.rule('("0" | [1-9] [0-9]{0,15}) fraction')


def _steps(count: int) -> list[int]:
    return [min(_STEP, count - done) for done in range(0, count, _STEP)]


def quoted(text: str) -> str:
    """Write a text as a literal of GBNF."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'

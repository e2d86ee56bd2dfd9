"""JSON schemas as grammars: every text is JSON that the schema takes, and what cannot be kept to is refused."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import Engine, Sampling, UsageError
from dflash_gguf.gbnf import check_grammar
from dflash_gguf.integer_range import between
from dflash_gguf.json_schema import schema_to_gbnf

from .support.random_pairs import Pair


@pytest.fixture(scope="module")
def engine(dense: Pair) -> Iterator[Engine]:
    # logits that mean nothing try everything that a grammar lets through
    with dflash_gguf.load(dense.target, context=1024) as opened:
        yield opened


def texts(engine: Engine, schema: Any, count: int = 12) -> list[Any]:
    """Values of a schema, written at random; an end is likely wherever it is allowed."""
    found = []
    for seed in range(count):
        likely = {258: 3.0, ord("}") - 33: 2.0, ord("]") - 33: 2.0, 1: 2.0}
        sampling = Sampling(temperature=1.5, seed=seed, logit_bias=likely)
        answer = engine.generate([7], json_schema=schema, sampling=sampling, max_tokens=900)
        assert answer.finish_reason == "stop", answer.text
        found.append(json.loads(answer.text))
    return found


INNER = {"type": "object", "properties": {"v": {"type": "integer"}}, "required": ["v"]}
WORD = {"type": "string", "maxLength": 3}


def test_objects(engine: Engine) -> None:
    properties = {"a b": WORD, 'q"\\\n': {"const": 1}, "é😀": {"type": "null"}, "in": INNER}
    schema = {"type": "object", "properties": properties, "required": ["é😀"]}
    found = texts(engine, schema, 30)
    for value in found:
        assert set(value) <= set(properties)
        assert value["é😀"] is None
        assert list(value) == [name for name in properties if name in value]  # in their order
    assert len({tuple(value) for value in found}) > 3
    every = {**schema, "required": list(properties), "additionalProperties": False}
    assert all(set(value) == set(properties) for value in texts(engine, every))


def test_objects_of_any_names(engine: Engine) -> None:
    for value in texts(engine, {"type": "object", "additionalProperties": {"enum": [1, 2]}}):
        assert set(value.values()) <= {1, 2}
    must = {"required": ["x"], "additionalProperties": WORD, "type": "object"}
    assert all(isinstance(value["x"], str) for value in texts(engine, must))
    none = {"type": "object", "additionalProperties": False}
    assert texts(engine, none, 2) == [{}, {}]


@pytest.mark.parametrize("bounds", [(0, 0), (0, 2), (1, 1), (2, 3), (3, 3)])
def test_arrays(engine: Engine, bounds: tuple[int, int]) -> None:
    least, most = bounds
    schema = {"type": "array", "items": {"enum": [1, "x"]}, "minItems": least, "maxItems": most}
    found = texts(engine, schema, 8)
    assert all(least <= len(value) <= most for value in found)
    first = {**schema, "prefixItems": [{"const": True}, {"const": None}]}
    for value in texts(engine, first, 8):
        assert least <= len(value) <= most
        assert value[:2] == [True, None][: len(value)]
        assert set(value[2:]) <= {1, "x"}


def test_strings(engine: Engine) -> None:
    for value in texts(engine, {"type": "string", "minLength": 2, "maxLength": 5}, 30):
        assert 2 <= len(value) <= 5
    shapes = {
        "date": r"\d{4}-\d\d-\d\d",
        "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)",
        "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)",
        "uuid": r"[\da-fA-F]{8}(-[\da-fA-F]{4}){3}-[\da-fA-F]{12}",
    }
    for name, shape in shapes.items():
        for value in texts(engine, {"type": "string", "format": name}, 3):
            assert re.fullmatch(shape, value)


def test_a_choice_of_schemas(engine: Engine) -> None:
    schema = {
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1}},
        "anyOf": [{"$ref": "#/$defs/tree"}, {"type": ["boolean", "null"]}, {"const": {"a": [1.5]}}],
    }
    for value in texts(engine, schema, 20):
        while isinstance(value, list) and value:
            (value,) = value  # noqa: PLW2901
        assert value in ([], True, False, None, {"a": [1.5]})
    both = {"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]}
    required = {"allOf": [*both["allOf"], {"required": ["a", "b"]}]}
    assert all(value == {"a": 1, "b": 2} for value in texts(engine, required, 3))


def test_numbers(engine: Engine) -> None:
    for value in texts(engine, {"type": "integer", "minimum": -7, "exclusiveMaximum": 1205}, 20):
        assert isinstance(value, int)
        assert -7 <= value < 1205
    for value in texts(engine, {"type": "number", "minimum": 0}, 20):
        assert value >= 0
        assert math.isfinite(value)


def test_any_json(engine: Engine) -> None:
    small = texts(engine, {"type": "array", "items": {"type": ["integer", "null"]}})
    assert all(isinstance(item, int | None) for value in small for item in value)
    assert schema_to_gbnf({}) == schema_to_gbnf(True) == schema_to_gbnf('{"title": "any"}')


NUMBERS = st.one_of(st.none(), st.integers(-2000, 2000), st.integers(-(10**12), 10**12))


@given(NUMBERS, NUMBERS, st.lists(st.integers(-3000, 3000), max_size=30))
def test_ranges_of_integers(low: int | None, high: int | None, others: list[int]) -> None:
    if low is not None and high is not None and low > high:
        low, high = high, low
    pattern = re.compile(_regex(between(low, high)))
    edges = [edge + step for edge in (low, high) if edge is not None for step in (-1, 0, 1)]
    powers = [sign * 10**k + step for k in range(13) for sign in (1, -1) for step in (-1, 0)]
    for number in itertools.chain(edges, powers, others):
        inside = (low is None or number >= low) and (high is None or number <= high)
        assert (pattern.fullmatch(str(number)) is not None) == inside, number
    assert pattern.fullmatch("-0") is None
    assert pattern.fullmatch("01") is None


def _regex(gbnf: str) -> str:
    """These expressions are regular ones but for quotes and spaces."""
    return gbnf.replace(" ", "").replace('"', "")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("{", "the JSON schema is not JSON: "),
        ([], "at #: expected a schema, found list"),
        (False, "at #: false takes nothing"),
        ({"type": "strin"}, "at #: type is 'strin'; expected one of object, array"),
        ({"type": "string", "pattern": "^a$"}, "at #: 'pattern' beside type cannot be kept to"),
        ({"properties": {"x": {"type": "number", "maximum": 1}}}, "at #/properties/x: 'maximum'"),
        ({"type": "number", "minimum": 1}, "minimum 1 of a number cannot be kept to"),
        ({"type": "array", "uniqueItems": True}, "'uniqueItems' beside type cannot be kept to"),
        ({"not": {}}, "at #: 'not' cannot be kept to"),
        ({"anyOf": [{}], "type": "object"}, "'type' beside anyOf cannot be kept to"),
        ({"anyOf": []}, "'anyOf' is []; expected a list with something in it"),
        ({"enum": []}, "'enum' is []"),
        ({"enum": [1, "a"], "type": "boolean"}, "no value is left"),
        ({"const": math.nan}, "nan is no JSON value"),
        ({"$ref": "#/$defs/x"}, "$ref #/$defs/x leads nowhere: there is no '$defs'"),
        ({"$ref": "https://example.com/s"}, "expected one within the schema"),
        ({"$ref": ["#"]}, "expected one within the schema"),
        ({"allOf": [{"$ref": ["#"]}]}, "expected one within the schema"),
        (
            {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"$ref": "#/$defs/x"}}},
            "$ref #/$defs/x leads back to itself",
        ),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength is 3 and maxLength 2"),
        ({"type": "string", "minLength": "3"}, "minLength is '3'; expected a whole number"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "at least 3 and at most 2"),
        ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "at most 1 are"),
        ({"required": ["a"], "additionalProperties": False}, "'a' is required and not allowed"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "allOf gives 'type' twice"),
    ],
)
def test_what_cannot_be_kept_to_is_refused(schema: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        schema_to_gbnf(schema)


def test_deep_and_large_schemas() -> None:
    deep: Any = {"type": "null"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    check_grammar(schema_to_gbnf(deep), 10, lambda _: [1])
    for _ in range(2000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UsageError, match="nested too deeply"):
        schema_to_gbnf(deep)
    check_grammar(schema_to_gbnf({"type": "string", "maxLength": 4_500}), 10, lambda _: [1])
    wide = {"type": "object", "properties": {f"p{i}": WORD for i in range(300)}}
    check_grammar(schema_to_gbnf(wide), 10, lambda _: [1])


def test_a_schema_of_itself_is_named(engine: Engine) -> None:
    with pytest.raises(UsageError, match="left recursion"):
        engine.start([7], json_schema={"$ref": "#"})
    with pytest.raises(UsageError, match="both a grammar and a JSON schema are given"):
        engine.start([7], json_schema={}, grammar="root ::= [a]")

"""Schemathesis on the server's OpenAPI: no 5xx, and every response is one that it declares. About 8 seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ..support.random_pairs import Pair
from ..support.served import Served, serving

ANSWERED = (
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /tokenize",
    "POST /detokenize",
    "POST /apply-template",
    "GET /v1/models",
    "GET /props",
)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
BOUNDED = settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def short(dense: Pair) -> Iterator[Served]:
    """A server whose answers are short."""
    with serving(dense, rules={"max_output": 4}) as served:
        yield served


def positive(operation: Any) -> Any:
    """Requests that fit the schema, of a few fields: many at once seldom make sense together."""
    modes = schemathesis.GenerationMode
    cases = operation.as_strategy(generation_mode=modes.POSITIVE)
    if not operation.body:
        return cases
    kept = st.sets(st.integers(0, 40), max_size=4)
    return st.builds(_of_few_fields, cases, kept)


def _of_few_fields(case: Any, kept: set[int]) -> Any:
    if isinstance(case.body, dict):
        needed = {"messages", "prompt", "content", "tokens"}
        case.body = {
            name: value
            for i, (name, value) in enumerate(sorted(case.body.items()))
            if name in needed or i in kept
        }
    return case


def negative(operation: Any) -> Any:
    """Requests that do not fit it."""
    return operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)


def _asked(cases: Any, url: str) -> list[int]:
    """Ask all of them, each checked; return the statuses."""
    statuses = []

    @BOUNDED
    @given(case=cases)
    def ask(case: Any) -> None:
        statuses.append(case.call_and_validate(base_url=url, checks=CHECKS).status_code)

    ask()
    return statuses


def test_no_request_finds_a_fault(short: Served) -> None:
    schema: Any = schemathesis.openapi.from_dict(short.http.get("/openapi.json").json())
    answered: Counter[str] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()
        for cases in (positive, negative) if operation.body else (positive,):
            replies = _asked(cases(operation), short.url)
            answered[operation.label] += replies.count(200)
    assert min(answered[label] for label in ANSWERED) > 0, answered
    assert short.chat("hi", max_tokens=2)["choices"], "it still answers"

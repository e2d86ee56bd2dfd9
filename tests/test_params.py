"""What a request asks for: one list, checked where it is written down, the same by every way to ask."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import dflash_gguf
from dflash_gguf import AsyncEngine, Engine, Params, Sampling, UsageError, Worker, params
from dflash_gguf.params import Keywords

from .support.random_pairs import Pair

PROMPT = [72, 101, 108, 108, 111]
WAYS = [
    Engine.start,
    Engine.generate,
    Engine.stream,
    Worker.submit,
    Worker.deliver,
    AsyncEngine.generate,
    AsyncEngine.stream,
]


@pytest.fixture(scope="module")
def engine(dense: Pair) -> Iterator[Engine]:
    with dflash_gguf.load(dense.target, dense.draft, threads=1, context=256) as engine:
        yield engine


def test_the_keywords_are_the_fields() -> None:
    own = get_type_hints(Params)
    names = [field.name for field in fields(Params) if field.init]
    assert {name: own[name] for name in names} == get_type_hints(Keywords)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__qualname__)
def test_every_way_to_ask_takes_them(way: Callable[..., Any]) -> None:
    taken = inspect.signature(way).parameters
    assert taken["params"].default is None
    hint = get_type_hints(way)["keywords"]
    assert get_args(hint) == (Keywords,)
    assert set(taken) - {"self", "to"} == {"prompt", "params", "keywords"}


def test_the_defaults_ask_for_nothing(engine: Engine) -> None:
    assert engine.generate(PROMPT, Params(max_tokens=9)).tokens == (
        engine.generate(PROMPT, max_tokens=9).tokens
    )
    assert all(getattr(Params(), field.name) in {None, False, ()} for field in fields(Params))


def test_keywords_go_before_params(engine: Engine) -> None:
    given = Params(max_tokens=9, ignore_end=True, logprobs=1)
    answer = engine.generate(PROMPT, given, max_tokens=4)
    assert (len(answer.tokens), len(answer.logprobs)) == (4, 4)
    assert given.max_tokens == 9
    assert len(engine.generate(PROMPT, given).tokens) == 9


def test_all_ways_bring_the_same(dense: Pair) -> None:
    given = Params(
        max_tokens=30,
        sampling=Sampling(temperature=1, seed=7),
        logprobs=2,
        stop=iter(["zzzz"]),
        block=4,
        ignore_end=True,
    )

    def load() -> Engine:
        # what is kept of a prompt was read in another decode, whose last bits may differ
        return dflash_gguf.load(
            dense.target, dense.draft, threads=1, context=256, kv_type="f32", prefix_memory=0
        )

    with load() as engine:
        whole = engine.generate(PROMPT, given)
        pieces = list(engine.stream(PROMPT, given))
    with Worker(load) as worker:
        handed = list(worker.submit(PROMPT, given))

    async def ask() -> tuple[Any, Any]:
        async with AsyncEngine(load) as engine:
            streamed = [chunk async for chunk in engine.stream(PROMPT, given)]
            return await engine.generate(PROMPT, given), streamed

    awaited, streamed = asyncio.run(ask())
    assert awaited.tokens == whole.tokens
    assert awaited.logprobs == whole.logprobs
    for chunks in (pieces, handed, streamed):
        assert [token for chunk in chunks for token in chunk.tokens] == whole.tokens
        assert [entry for chunk in chunks for entry in chunk.logprobs] == whole.logprobs


def test_an_iterator_of_stop_strings_is_read_once() -> None:
    given = Params(stop=iter(["b", "a", "b"]))
    assert given.stop == ("b", "a")
    assert given == Params(stop=["b", "a"])
    assert Params(stop="ab").stop == ("ab",)
    assert replace(given, max_tokens=3).stop == given.stop


def test_a_schema_is_translated_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    schema: dict[str, Any] = {"enum": ["yes", "no"]}
    given = Params(json_schema=schema, max_tokens=20)

    def fail(_schema: Any) -> str:
        raise AssertionError

    monkeypatch.setattr(params, "schema_to_gbnf", fail)
    schema["enum"] = [1]  # too late
    assert engine.generate(PROMPT, given).text in {'"yes"', '"no"'}
    assert given.gbnf is not None


def test_they_cannot_be_changed() -> None:
    given = Params()
    with pytest.raises(FrozenInstanceError):
        given.max_tokens = 5  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        given.max_token = 5  # type: ignore[attr-defined]


def test_numbers_may_be_numpys(engine: Engine) -> None:
    given: dict[str, Any] = {name: np.int64(2) for name in ("max_tokens", "block", "logprobs")}
    answer = engine.generate(PROMPT, **given, ignore_end=True)
    assert [len(entry.top) for entry in answer.logprobs] == [2, 2]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; expected a whole number of at least 1"),
        ({"max_tokens": True}, "max_tokens is True; expected a whole"),
        ({"max_tokens": "5"}, "max_tokens is '5'; expected a whole"),
        ({"block": 0}, 'block is 0; expected "auto" or a whole number of at least 1'),
        ({"block": "wide"}, "block is 'wide'; expected \"auto\" or a whole"),
        ({"block": 2.0}, "block is 2.0; expected"),
        ({"logprobs": -1}, "logprobs is -1; expected a whole number of at least 0"),
        ({"logprobs": True}, "logprobs is True; expected a whole"),
        ({"sampling": {"temperature": 1}}, "sampling is {'temperature': 1}; expected a Sampling"),
        ({"grammar": b"root"}, "grammar is bytes; expected GBNF text"),
        ({"json_schema": "{"}, "the JSON schema is not JSON"),
        ({"json_schema": {"type": "date"}}, "date"),
        ({"json_schema": {"not": {}}}, "not"),
        ({"json_schema": {}, "grammar": "root ::= [a]"}, "both a grammar and a JSON schema"),
        ({"stop": ""}, "stop has ''; expected"),
        ({"stop": 5}, "stop is int; expected"),
        ({"ignore_end": "no"}, "ignore_end is 'no'; expected True or False"),
        ({"raw": 1}, "raw is 1; expected True or False"),
        ({"template": ["enable_thinking"]}, "template is ['enable_thinking']; expected a mapping"),
    ],
)
def test_what_no_engine_could_do_is_refused_when_written_down(
    wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Params(**wrong)
    assert words in str(caught.value)
    with pytest.raises(UsageError) as caught:
        params.combined(Params(max_tokens=3), wrong)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_what_is_no_params_is_refused(dense: Pair, engine: Engine) -> None:
    given: Any = {"max_tokens": 5}
    with pytest.raises(UsageError, match="params is dict; expected a Params, or its fields"):
        engine.start(PROMPT, given)
    with Worker(lambda: dflash_gguf.load(dense.target, threads=1, context=64)) as worker:
        with pytest.raises(UsageError, match="max_tokens is 0"):  # at once, not by the ticket
            worker.submit(PROMPT, max_tokens=0)
        with pytest.raises(TypeError, match="max_token"):
            worker.submit(PROMPT, max_token=5)  # type: ignore[call-arg]
    assert not engine.busy

"""Stop strings: the text ends right before them, wherever tokens, blocks and characters are cut (R13)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import Engine, UsageError
from dflash_gguf._native import core
from dflash_gguf.text import Utf8Stream

from .support.command import command
from .support.random_pairs import IM_START, VOCAB, Pair
from .support.sessions import ENDLESS, open_session, plain
from .support.tiny import Tiny

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]
N = 120
# of few characters, so that strings and their beginnings are met often; some take several bytes
LETTERS = st.text("abé語🙂", max_size=40)
STOPS = st.lists(st.text("abé語🙂", min_size=1, max_size=4), min_size=1, max_size=4)
CUTS = st.lists(st.integers(0, 200), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


def read(stops: list[str], data: list[bytes]) -> tuple[list[bytes], bytes, bool]:
    """The texts of each piece, what is held at the end, and whether a string was found."""
    reader, texts = core().StopStrings(stops), []
    for piece in data:
        text, found = reader.read(piece)
        texts.append(text)
        if found:
            return texts, reader.held, True
    return texts, reader.held, False


@given(LETTERS, st.text("abé語🙂", min_size=1, max_size=4), CUTS)
def test_one_string_is_found_where_find_finds_it(text: str, stop: str, cuts: list[int]) -> None:
    texts, held, found = read([stop], pieces(text.encode(), cuts))
    stream = Utf8Stream()
    shown = "".join(map(stream.feed, texts))
    at = text.find(stop)
    assert found == (at >= 0)
    assert shown + stream.feed(held) + stream.close() == (text[:at] if found else text)


@given(LETTERS, STOPS, CUTS)
def test_of_several_the_first_to_be_complete_ends_the_text(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    texts, held, found = read(stops, pieces(text.encode(), cuts))
    shown = b"".join(texts)
    assert found == bool(ends)
    if ends:
        whole = text[: min(ends)]
        longest = max(len(stop) for stop in stops if whole.endswith(stop))
        assert (shown, held) == (whole[: len(whole) - longest].encode(), b"")
    else:
        assert shown + held == text.encode()


@given(LETTERS, STOPS, CUTS)
def test_exactly_what_may_begin_a_string_is_held_back(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    reader, so_far, shown = core().StopStrings(stops), b"", b""
    for piece in pieces(text.encode(), cuts):
        so_far += piece
        more, found = reader.read(piece)
        shown += more
        if found:
            return
        beginnings = [s.encode()[:n] for s in stops for n in range(1, len(s.encode()))]
        longest = max((len(b) for b in beginnings if so_far.endswith(b)), default=0)
        assert reader.held == so_far[len(so_far) - longest :]
        assert shown + reader.held == so_far


def test_without_strings_nothing_is_held() -> None:
    assert read([], [b"ab", b"\xf0\x9f"]) == ([b"ab", b"\xf0\x9f"], b"", False)
    with pytest.raises(ValueError, match="a stop string is empty"):
        core().StopStrings(["a", ""])


def spelled(tokens: list[int]) -> bytes:
    """What tokens of the random pairs spell: bytes, in the order of byte-level BPE, and <think>."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = plain + [byte for byte in range(256) if byte not in plain]
    shown = {260: b"<think>", 261: b"</think>"}
    return b"".join(bytes([order[t]]) if t < 256 else shown.get(t, b"") for t in tokens)


@pytest.mark.parametrize("accepted", [0, 3, 7])
def test_a_stop_string_anywhere_in_a_block_ends_it_exactly(pair: Pair, accepted: int) -> None:
    expected = plain(pair.target, PROMPT, 60)
    met = set()
    for last, length in zip(range(20, 29), (1, 2, 5) * 3, strict=True):
        stop = spelled(expected[last + 1 - length : last + 1])
        if not stop:  # a token that is not shown
            continue
        end = spelled(expected).find(stop)
        count = next(n for n in range(61) if len(spelled(expected[:n])) >= end + len(stop))
        met.add(count % 8)
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(pair.target, block=8, drafter=drafter)
        number = session.add(
            PROMPT, max_tokens=60, block=8, stops=ENDLESS, stop_strings=[b"never", stop]
        )
        drafter.script(number, PROMPT + expected, [accepted])
        outputs = []
        while not outputs or outputs[-1].finish == core().Finish.none:
            outputs += session.step()
        assert outputs[-1].finish == core().Finish.stop
        assert [t for output in outputs for t in output.tokens] == expected[:count]
        assert b"".join(output.text for output in outputs) == spelled(expected)[:end]
        counters = session.counters(number)
        assert counters.emitted == count == 1 + counters.rounds + counters.accepted
        assert session.step() == []  # no more rounds
        assert session.counters(number).rounds == counters.rounds
    assert len(met) > 3


def test_the_limit_and_a_stop_string_on_one_token_is_a_stop(dense: Pair) -> None:
    expected = plain(dense.target, PROMPT, 12)
    session = open_session(dense.target, block=8)
    stop = spelled(expected[10:12])
    assert spelled(expected).find(stop) == len(spelled(expected[:10]))
    number = session.add(PROMPT, max_tokens=12, block=8, stops=ENDLESS, stop_strings=[stop])
    while not (outputs := session.step()) or outputs[0].finish == core().Finish.none:
        pass
    assert outputs[0].finish == core().Finish.stop
    assert session.counters(number).emitted == 12


@pytest.fixture(scope="module")
def engines(tiny: Tiny) -> Iterator[tuple[Engine, Engine]]:
    """The trained pair in f32, and its target alone."""
    settings: dict[str, Any] = {"threads": 1, "context": 1024}
    with (
        dflash_gguf.load(tiny.target_f32, tiny.draft("f32"), **settings) as drafted,
        dflash_gguf.load(tiny.target_f32, **settings) as alone,
    ):
        yield drafted, alone


def test_real_answers_end_before_any_part_of_them(
    engines: tuple[Engine, Engine], tiny: Tiny
) -> None:
    drafted, alone = engines
    messages = tiny.prompts[40]["messages"]
    full = alone.generate(messages, max_tokens=N)
    assert len(full.text) > 100
    for start in range(3, 90, 29):
        for length in (1, 3, 10):
            stop = full.text[start : start + length]
            expected = full.text[: full.text.find(stop)]
            own, fast = (
                engine.generate(messages, max_tokens=N, stop=stop) for engine in (alone, drafted)
            )
            assert own.text == fast.text == expected
            assert own.tokens == fast.tokens == full.tokens[: len(own.tokens)]
            assert own.finish_reason == fast.finish_reason == "stop"
            for stats in (own.stats, fast.stats):
                assert stats is not None
                assert stats.emitted == len(own.tokens) == 1 + stats.rounds + stats.accepted
            chunks = list(drafted.stream(messages, max_tokens=N, stop=["\0", stop]))
            assert "".join(chunk.text for chunk in chunks) == expected
            assert sum(len(chunk.tokens) for chunk in chunks) == len(own.tokens)
            assert not drafted.busy


def test_what_is_held_back_is_released_when_the_answer_ends_otherwise(
    engines: tuple[Engine, Engine], tiny: Tiny
) -> None:
    drafted, _ = engines
    messages = tiny.prompts[40]["messages"]
    full = drafted.generate(messages, max_tokens=30)
    stop = full.text[-6:] + "\0"  # its beginning is written, the rest never
    assert drafted.generate(messages, max_tokens=30, stop=stop).text == full.text
    answer = drafted.start(messages, max_tokens=60, stop=full.text + "\0")
    while len(answer.tokens) < 20:
        drafted.step()
    assert answer.text == ""
    chunk = drafted.cancel(answer)
    assert chunk.text == answer.text
    assert len(answer.text) > 20
    assert full.text.startswith(answer.text[: len(full.text)])


def test_closing_the_engine_releases_what_is_held_back(dense: Pair) -> None:
    engine = dflash_gguf.load(dense.target, threads=1, context=256)
    answer = engine.generate(PROMPT, max_tokens=20, ignore_end=True)
    stop = answer.text.split("\N{REPLACEMENT CHARACTER}")[0]
    assert stop
    held = engine.start(PROMPT, ignore_end=True, stop=stop + "\0")
    engine.step()
    assert held.text == ""
    engine.close()
    assert held.text.startswith(stop[:1])


def test_a_token_that_is_never_shown_stops_by_its_name(dense: Pair) -> None:
    with dflash_gguf.load(dense.target, threads=1, context=256) as engine:
        for seed in range(300):
            prompt = [(seed * 31 + i * 7) % 256 for i in range(9)]
            free = engine.generate(prompt, max_tokens=60, ignore_end=True)
            if IM_START in free.tokens:
                break
        else:
            pytest.fail("no answer has the token")
        stopped = engine.generate(prompt, max_tokens=60, ignore_end=True, stop="<|im_start|>")
        assert stopped.tokens == free.tokens[: free.tokens.index(IM_START) + 1]
        assert stopped.finish_reason == "stop"


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        ("", "stop has ''; expected a string with at least one character"),
        (["a", ""], "stop has ''"),
        ([1], "stop has 1; expected a string"),
        (5, "stop is int; expected a string or several"),
        (b"x", "stop is bytes; expected a string or several"),
        ("a\ud83d", "which holds half of a character"),
    ],
)
def test_what_is_no_string_is_refused(
    engines: tuple[Engine, Engine], stop: Any, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        engines[0].start(PROMPT, stop=stop)
    assert words in str(caught.value)
    assert not engines[0].busy


def test_the_command_takes_several(tiny: Tiny) -> None:
    options = [
        "run",
        "-m",
        tiny.target,
        "-p",
        tiny.prompts[40]["messages"][0]["content"],
        "-q",
        "--no-think",
    ]
    full = command(*options, "-n", 60).stdout
    a, b = full[30:34], full[50:53]
    assert "\n" not in a + b
    stopped = command(*options, "--stop", b, "--stop", a)
    assert stopped.stdout == full[: min(full.find(a), full.find(b))] + "\n"
    refused = command(*options, "--stop", "")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "stop has ''" in refused.stderr

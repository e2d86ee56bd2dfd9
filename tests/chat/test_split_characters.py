"""Characters of several tokens, in blocks and cut at every byte: none is ever shown broken (V4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import dflash_gguf
from dflash_gguf import Engine

from ..support.command import Terminal, command
from ..support.random_pairs import Pair

BROKEN = "\N{REPLACEMENT CHARACTER}"
# two forms of a letter, a family joined by U+200D, a flag of two: whatever comes, it comes byte by byte
GRAMMAR = 'root ::= ("🙂" | "日本" | "e\u0301" | "👩\u200d👧" | "🇯🇵") root'


@pytest.fixture(scope="module")
def engine(dense: Pair) -> Iterator[Engine]:
    with dflash_gguf.load(dense.target, dense.draft, block=8, threads=1, context=256) as made:
        yield made


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pieces_are_whole_wherever_the_limit_cuts(engine: Engine, seed: int) -> None:
    sampling = dflash_gguf.Sampling(temperature=1.0, seed=seed)
    cut = 0
    for most in range(1, 40):
        params = dflash_gguf.Params(max_tokens=most, grammar=GRAMMAR, sampling=sampling)
        pieces, tokens = [], []
        for chunk in engine.stream("hi", params):
            pieces.append(chunk.text)
            tokens += chunk.tokens
        assert len(tokens) == most
        written = b"".join(engine.piece(token) for token in tokens)
        said = "".join(pieces)
        assert BROKEN not in said
        assert written.startswith(said.encode())  # every piece is whole; what was not is left out
        missing = written[len(said.encode()) :]
        assert len(missing) < 4
        cut += bool(missing)
        assert engine.generate("hi", params).text == said
    assert cut > 10


def test_pieces_are_whole_wherever_somebody_stops_it(engine: Engine) -> None:
    for steps in range(1, 12):
        answer = engine.start("hi", max_tokens=60, grammar=GRAMMAR, block=2)
        said = [chunk.text for _ in range(steps) for _, chunk in engine.step()]
        said.append(engine.cancel(answer).text)
        assert BROKEN not in answer.text
        assert "".join(said) == answer.text


@pytest.mark.parametrize("more", [(), ("--json",), ("--stop", "日")])
def test_one_answer_to_a_pipe(dense: Pair, more: tuple[str, ...]) -> None:
    words = ("-md", dense.draft, "-t", 1, "--block", 8, "--grammar", GRAMMAR, "-p", "hi", "-q")
    for most in (2, 7, 30):
        done = command("run", "-m", dense.target, *words, "-n", most, *more)
        assert done.returncode == 0, done.stderr
        text = json.loads(done.stdout)["text"] if "--json" in more else done.stdout
        assert BROKEN not in text + done.stdout


@pytest.mark.parametrize(
    ("columns", "more"), [(80, []), (20, ["--show-accepted"]), (80, ["--stop", "日"])]
)
def test_no_character_is_broken_in_a_chat(
    dense: Pair, tmp_path: Path, columns: int, more: list[str]
) -> None:
    """Cut by the limit at every byte, then by Ctrl-C; wide ones beside a line's end and above the status row."""
    asked = ">>> Send a message" if columns > 40 else ">>> /help"
    talk = tmp_path / "talk.json"
    words = ["-md", dense.draft, "-t", 1, "--block", 8, "--grammar", GRAMMAR, "--session", talk]
    with Terminal(
        "run", "-m", dense.target, *words, "--no-history", *more, rows=24, columns=columns,
        env={"XDG_STATE_HOME": str(tmp_path)},
    ) as terminal:  # fmt: skip
        terminal.wait_for(lambda screen: asked in screen, "prompt")
        limits = [f"/set max-tokens {most}" for most in range(1, 9)]
        for line in [each for limit in limits for each in (limit, "hi")]:
            before = len(terminal.screen)
            terminal.send(line + "\r")
            terminal.wait_for(lambda screen: asked in screen[before:], "prompt")  # noqa: B023
        if not more:
            before = len(terminal.screen)
            terminal.send("/set max-tokens -1\r")
            terminal.wait_for(lambda screen: asked in screen[before:], "prompt")
            before = len(terminal.screen)
            terminal.send("hi\r")
            terminal.wait_for(lambda screen: "tok/s" in screen[before:], "status row")
            before = len(terminal.screen)
            terminal.send("\x03")
            terminal.wait_for(lambda screen: asked in screen[before:], "prompt")
        terminal.send("\x04")
        assert terminal.end() == 0
    shown = terminal.shown.decode()  # strictly
    for text in (shown, talk.read_text(encoding="utf-8"), "\n".join(terminal.display())):
        assert BROKEN not in text
    assert any(each in shown for each in "🙂本👩\u0301🇯")

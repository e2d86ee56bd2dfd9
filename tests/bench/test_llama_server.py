"""`--peer`: which servers stand beside our arms, how they are started, and started anew for more requests."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("httpx2")

from dflash_gguf.bench.asked import Pair
from dflash_gguf.bench.llama_server import peers_like
from dflash_gguf.bench.peers import Peer, parse_peer, plan_peers
from dflash_gguf.bench.records import Ask, Question
from dflash_gguf.bench.saved import read_bench
from dflash_gguf.bench.schedule import measure
from dflash_gguf.errors import UsageError
from dflash_gguf.shapes import write_shape
from dflash_gguf.simulation import Simulation

from ..support.command import command
from ..support.shapes import MINI
from ..support.tiny import Tiny

# answers with what it was started with
SERVER = """
import http.server, json, sys
port, concurrency, context = sys.argv[1:]
USAGE = {"prompt_tokens": 1, "completion_tokens": 2}
ANSWER = {"delta": {"content": f"{concurrency} {context}"}, "finish_reason": "stop"}
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def give(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        self.give(json.dumps({"data": [{"id": "m.gguf", "owned_by": "llamacpp"}]}))
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not asked.get("stream"):
            message = {"message": ANSWER["delta"], "finish_reason": "stop"}
            self.give(json.dumps({"choices": [message], "usage": USAGE}))
            return
        lines = [json.dumps({"choices": [ANSWER], "usage": USAGE}), "[DONE]"]
        self.give("".join(f"data: {line}\\n\\n" for line in lines))
http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""
QUESTIONS = (Question("w", 0, ("a",)), Question("w", 1, ("b",)))


def options(peer: Peer) -> dict[str, str]:
    """A command's options and their values."""
    words = shlex.split(peer.where)
    return dict(pairwise(words))


def test_a_server_stands_beside_every_arm_that_it_can(tiny: Tiny) -> None:
    draft = tiny.draft("bf16")
    pair = Pair(tiny.target, draft, ("ar", "dflash"), (4, 8, "auto"))
    plain, four, eight = peers_like(sys.executable, pair, threads=3)
    assert [(each.mode, each.width, each.steps) for each in (plain, four, eight)] == [
        ("ar", None, None),
        ("dflash", 4, 3),
        ("dflash", 8, 7),
    ]
    assert "--spec-type" not in options(plain)
    assert options(eight)["--spec-draft-n-max"] == "7"
    assert options(eight)["--spec-type"] == "draft-dflash"
    assert options(eight)["-md"] == str(draft)
    for each in (plain, four, eight):
        told = options(each)
        assert told["-m"] == str(tiny.target)
        assert (told["-t"], told["--parallel"], told["-c"]) == ("3", "{concurrency}", "{context}")
        # and the line says of itself what the plan does
        assert parse_peer(each.where, command=True) == each


def test_mtp_steps_are_those_of_the_blocks(tmp_path: Path) -> None:
    pair = Pair(
        write_shape(replace(MINI, mtp=True), tmp_path).target_path, None, ("ar", "mtp"), (4, 16)
    )
    found = peers_like(sys.executable, pair, threads=1)
    assert [(each.mode, each.width) for each in found] == [("ar", None), ("mtp", 3), ("mtp", 15)]
    assert options(found[2])["--spec-type"] == "draft-mtp"
    assert "-md" not in options(found[2])


def test_a_simulation_is_the_servers_too(tiny: Tiny) -> None:
    pair = Pair(
        tiny.target, tiny.draft("bf16"), ("dflash",), (3, 6), simulate=Simulation((0.9, 0.5, 0.25))
    )
    rates = [
        options(each)["--spec-synth-rates"] for each in peers_like(sys.executable, pair, threads=1)
    ]
    # as many as it drafts; behind the curve's end nothing is accepted
    assert rates == ["0.9,0.5", "0.9,0.5,0.25,0,0"]


@pytest.mark.parametrize(
    ("program", "blocks", "said"),
    [
        ("/nowhere/llama-server", (4,), "no such program"),
        (sys.executable, ("auto",), "expected some in --block"),
    ],
)
def test_what_nothing_can_stand_beside_is_refused(
    tiny: Tiny, program: str, blocks: tuple[int | str, ...], said: str
) -> None:
    pair = Pair(tiny.target, tiny.draft("bf16"), ("ar", "dflash"), blocks)
    with pytest.raises(UsageError, match=said):
        peers_like(program, pair, threads=1)


@pytest.fixture
def line(tmp_path: Path) -> str:
    """A command that starts the server above."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    program = folder / "server.py"
    program.write_text(SERVER)
    return f"{sys.executable} '{program}' {{port}} {{concurrency}} {{context}}"


@pytest.mark.parametrize("streams", [True, False])
def test_a_server_is_started_anew_for_another_number_of_requests(line: str, streams: bool) -> None:
    (planned,) = plan_peers([parse_peer(line, command=True)], context=100, streams=streams)
    with closing(planned.open()) as arm:
        found = [arm.run(QUESTIONS, Ask(max_tokens=4), count) for count in (1, 1, 2)]
        assert [cell.turns[0].text for cell in found] == ["1 100", "1 100", "2 200"]
        # whole answers have no first piece
        assert all((turn.first is not None) == streams for cell in found for turn in cell.turns)
        facts = arm.facts
    assert facts.speaks_for == "llama-server"
    assert facts.details["asked"] == f"over HTTP, {'streams' if streams else 'whole answers'}"
    # as it was given, but for the folders
    given = f"{Path(sys.executable).name} server.py {{port}} {{concurrency}} {{context}}"
    assert facts.details["command"] == given
    assert not any("/" in value for value in facts.details.values())


def test_a_measurement_tells_what_its_servers_say_of_themselves(line: str) -> None:
    made = measure(
        plan_peers([parse_peer(line, command=True)], context=100),
        QUESTIONS,
        Ask(max_tokens=4),
        runs=1,
    )
    (arm,) = made.arms
    assert (arm.name, arm.speaks_for, arm.details["model"]) == ("peer 1", "llama-server", "m.gguf")
    assert not made.failures


def test_a_program_without_a_pair_is_refused() -> None:
    done = command(
        "bench",
        "--peer",
        sys.executable,
        "--base-url",
        "http://127.0.0.1:1",
        "--workload",
        "builtin",
    )
    assert done.returncode == 2
    assert "expected --target" in done.stderr


@pytest.mark.skipif(
    shutil.which(os.environ.get("LLAMA_SERVER", "llama-server")) is None,
    reason="needs a llama-server on the PATH, or LLAMA_SERVER to name one",
)
def test_both_engines_make_the_cards_tables(tiny: Tiny, tmp_path: Path) -> None:
    server = os.environ.get("LLAMA_SERVER", "llama-server")
    done = command(
        *("bench", "-m", tiny.target, "-md", tiny.draft("bf16"), "--workload", "tiny:code"),
        *("--block", "4", "--questions", "2", "-n", "16", "--runs", "1", "--concurrency", "1,2"),
        *("-c", "512", "--peer", server, "--no-stream", "--save-dir", tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    made = read_bench(folder)
    assert [(arm.speaks_for, arm.mode, arm.width) for arm in made.arms] == [
        ("dflash-gguf", "ar", None),
        ("dflash-gguf", "dflash", 4),
        ("llama-server", "ar", None),
        ("llama-server", "dflash", 4),
    ]
    assert len(made.cells) == 4 * 2 * 2  # arms, concurrencies, a warm-up and a run
    for cell in made.cells:
        for turn in cell.turns:
            if turn.finish_reason == "length":
                assert turn.rounds is not None
                assert turn.completion_tokens == 1 + turn.rounds + (turn.accepted or 0)
    assert "Greedy texts that are those of Baseline (dflash-gguf)" in done.stdout
    assert "--parallel {concurrency}" in done.stdout

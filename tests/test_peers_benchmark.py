"""benchmarks/peers.py: its counting rule, what it asks a server, and what it makes of the answers."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .support.family_pairs import make_family_pair
from .support.random_pairs import Pair

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TASK: dict[str, Any] = {
    "target": Path("T.gguf"),
    "draft": Path("D.gguf"),
    "peer_draft": Path("E.gguf"),
    "threads": 2,
    "context": 512,
    "sequences": 2,
    "n": 40,
    "ignore_end": True,
    "survival": (0.8, 0.5, 0.25, 0.1),
}


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("peer_arms")


@pytest.fixture
def peers(arms: ModuleType) -> ModuleType:
    return importlib.import_module("peers")


def reply(arms: ModuleType, count: int, last: float, seconds: float, expected: float = 0) -> Any:
    return arms.Reply([1] * (count + 1), last, seconds, count, count, 0, 0, expected)


def test_one_answer_counts_from_its_first_token(arms: ModuleType) -> None:
    batch = arms.after_prompts([reply(arms, 50, 7.0, 2.0)])
    assert (batch.tokens, batch.seconds) == (50, 2.0)
    batch = arms.after_prompts([reply(arms, 0, 7.0, 0.0)])
    assert (batch.tokens, batch.seconds) == (0, 0.0)


def test_several_answers_of_the_server_count_after_all_have_begun(arms: ModuleType) -> None:
    # from 2 to 6, from 4 to 8, from 1 to 3: no prompt is read after 4
    replies = [
        reply(arms, 40, 6.0, 4.0),
        reply(arms, 60, 8.0, 4.0),
        reply(arms, 20, 3.0, 2.0),
    ]
    batch = arms.after_prompts(replies)
    assert batch.seconds == 4.0
    assert batch.tokens == pytest.approx(20 + 60)


def test_ratios_are_medians_of_each_pass_and_void_when_builds_differ(
    arms: ModuleType, peers: ModuleType
) -> None:
    class Made:
        def __init__(self, name: str, kind: str) -> None:
            self.name, self.kind = name, kind

    task = arms.Task(**{**TASK, "survival": None})
    speeds = {
        ("plain", "ours"): [9, 1.0, 1.0, 1.0],
        ("block 4", "ours"): [9, 2.0, 3.0, 4.0],
        ("floor 4", "floor"): [9, 4.0, 4.0, 4.0],
        ("slow", "peer"): [9, 1.0, 1.0, 1.0],
        ("fast", "peer"): [9, 1.0, 2.0, 4.0],
    }
    rows = [peers.Row(Made(*key), speeds=[float(s) for s in got]) for key, got in speeds.items()]
    found = peers.summary(rows, task, None)
    assert found["best_peer"] == "fast"
    assert found["summary"]["block 4"] == {"to_floor": 0.75, "to_peer": 1.5, "to_plain": 3.0}
    void = peers.summary(rows, task, "system info differs")
    assert "to_peer" not in void["summary"]["block 4"]
    assert void["void"] == "system info differs"


def test_simulated_speed_is_that_of_the_expected_tokens(
    arms: ModuleType, peers: ModuleType
) -> None:
    row = peers.Row(None)
    batch = arms.after_prompts([reply(arms, 50, 7.0, 2.0, expected=75)])
    row.add([batch], simulated=True)
    row.add([batch], simulated=False)
    assert row.speeds == [37.5, 25.0]
    assert row.lucky == [25.0, 25.0]


class Server(BaseHTTPRequestHandler):
    """Answers as llama-server does, and keeps what it was asked."""

    asked: list[dict[str, Any]]
    answer: dict[str, Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append({"path": self.path, **json.loads(body)})
        data = json.dumps(self.answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Server.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_the_server_is_asked_for_the_same_and_its_timings_are_read(
    arms: ModuleType, server: ThreadingHTTPServer
) -> None:
    peer = arms.Peer(arms.Task(**TASK), Path("llama-server"), n_max=3, p_min=0.5)
    peer._process, peer._port = object(), server.server_port
    Server.answer = {
        "tokens": [5, 6, 7, 8, 9, 10, 11],
        "timings": {
            "predicted_n": 7,
            "predicted_ms": 250.0,
            "draft_n": 6,
            "draft_n_accepted": 4,
        },
    }
    batch = peer.answer([[1, 2], [3]])
    assert [asked["prompt"] for asked in sorted(Server.asked, key=str)] == [[1, 2], [3]]
    for asked in Server.asked:
        assert asked["path"] == "/completion"
        assert (asked["n_predict"], asked["temperature"]) == (40, 0)
        assert (asked["ignore_eos"], asked["cache_prompt"]) == (True, False)
    assert len(batch.replies) == 2
    for got in batch.replies:
        assert (got.tokens, got.count) == ([5, 6, 7, 8, 9, 10, 11], 6)
        assert (got.seconds, got.drafted, got.accepted) == (0.25, 6, 4)
        # two rounds of three drafts
        assert got.expected == pytest.approx(2 + 2 * (0.8 + 0.5 + 0.25))


@pytest.mark.parametrize(
    ("variant", "kind"),
    [("dflash", "dflash"), ("dflash2", "dflash"), ("dspark-bonus", "dspark")],
)
def test_the_servers_command_says_all_that_is_compared(
    arms: ModuleType, dense: Pair, tmp_path: Path, variant: str, kind: str
) -> None:
    draft = dense.draft
    if variant != "dflash":
        draft = make_family_pair(tmp_path, variant).pair.draft
    task = arms.Task(**{**TASK, "peer_draft": draft})
    peer = arms.Peer(task, Path("llama-server"), n_max=3, p_min=0.5)
    line = " ".join(peer._command())
    for part in (
        "-m T.gguf -t 2 -c 1024 --parallel 2",
        f"-md {draft} -td 2 --spec-type draft-{kind} ",
        "--spec-draft-n-max 3 --spec-draft-p-min 0.5 --spec-synth-rates 0.8,0.5,0.25",
    ):
        assert part in line
    assert "--spec" not in " ".join(arms.Peer(arms.Task(**TASK), Path("x"))._command())


@pytest.mark.parametrize("number", [1, 3])
def test_our_time_is_that_without_reading_prompts(
    arms: ModuleType, dense: Pair, number: int
) -> None:
    task = arms.Task(
        **{**TASK, "target": dense.target, "draft": dense.draft, "threads": 1, "survival": None},
    )
    task = replace(task, sequences=number)
    with closing(arms.Ours(task, 4)) as ours:
        begun = time.perf_counter()
        batch = ours.answer([[k + 1] * (200 + k) for k in range(number)])
        wall = time.perf_counter() - begun
        times = ours.engine.times()
    assert batch.tokens == sum(len(reply.tokens) - 1 for reply in batch.replies) == 39 * number
    assert [reply.rounds for reply in batch.replies] == [
        39 - reply.accepted for reply in batch.replies
    ]
    assert batch.seconds <= wall - times["prefill"]
    assert batch.seconds >= 0.9 * (times["total"] - times["prefill"])


@pytest.mark.parametrize("width", [1, 4])
def test_the_floor_does_as_many_rounds_and_tokens(
    arms: ModuleType, hybrid: Pair, width: int
) -> None:
    floors = importlib.import_module("floor_arm")
    files = {"target": hybrid.target, "draft": hybrid.draft}
    task = arms.Task(**{**TASK, **files, "threads": 1, "survival": None})
    count = 45 if width > 1 else 20
    like = [reply(arms, count, 0, 0), reply(arms, count, 0, 0)]
    like = [replace(each, rounds=20) for each in like]
    asked = []
    with closing(floors.Floor(task, width, lambda: like)) as floor:
        original = floors.core().bare_rounds
        floors.core().bare_rounds = lambda *files, **plan: (
            asked.append(plan) or original(*files, **plan)
        )
        try:
            batch = floor.answer([[1] * 30, [1] * 50])
        finally:
            floors.core().bare_rounds = original
    assert batch.seconds > 0
    assert batch.tokens == 2 * count
    assert sum(plan["rounds"] for plan in asked) == 20
    assert sum(plan["rounds"] * plan["kept"] for plan in asked) == count
    for plan in asked:
        assert (plan["context"], plan["width"], plan["sequences"]) == (40, width, 2)

"""MTP columns: who runs them, at how many steps, what is refused, and what says that acceptance was drawn."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2")

from dflash_gguf.bench import measuring
from dflash_gguf.bench.asked import Pair
from dflash_gguf.bench.llama_server import peers_like
from dflash_gguf.bench.peers import Peer, parse_peer
from dflash_gguf.bench.saved import read_bench
from dflash_gguf.errors import ModelError, UsageError
from dflash_gguf.shapes import WrittenPair, write_shape
from dflash_gguf.simulation import Simulation

from ..support.command import command
from ..support.shapes import MINI
from ..support.tiny import Tiny

SERVER = shutil.which(os.environ.get("LLAMA_SERVER", "llama-server"))
# a server that ignores its options but for the port
FAKE = """
import http.server, json, sys
USAGE = {"prompt_tokens": 1, "completion_tokens": 5}
ANSWER = {"delta": {"content": "a b c d e"}, "finish_reason": "length"}
TIMINGS = {"predicted_n": 5, "draft_n": 6, "draft_n_accepted": 2}
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
        self.rfile.read(int(self.headers["Content-Length"]))
        lines = [json.dumps({"choices": [ANSWER], "usage": USAGE, "timings": TIMINGS}), "[DONE]"]
        self.give("".join(f"data: {line}\\n\\n" for line in lines))
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> WrittenPair:
    return write_shape(replace(MINI, mtp=True), tmp_path_factory.mktemp("mtp"))


def beside(
    pair: WrittenPair, modes: tuple[str, ...], *blocks: int | str, **more: Any
) -> list[Peer]:
    made = Pair(pair.target_path, pair.draft.path, modes, blocks, **more)
    return peers_like(sys.executable, made, threads=1)


def option(peer: Peer, name: str) -> str | None:
    return dict(pairwise(shlex.split(peer.where))).get(name)


def test_steps_are_the_cards_where_no_block_says_otherwise(pair: WrittenPair) -> None:
    found = beside(pair, ("ar", "mtp"), "auto")
    assert [(each.mode, each.width, each.steps) for each in found] == [
        ("ar", None, None),
        *(("mtp", steps, steps) for steps in (3, 7, 15)),
    ]
    assert [option(each, "--spec-draft-n-max") for each in found] == [None, "3", "7", "15"]
    with pytest.raises(UsageError, match="expected some in --block"):
        beside(pair, ("mtp", "dflash"), "auto")


def test_a_simulation_draws_mtp_from_its_own_curve(pair: WrittenPair) -> None:
    mtp, dflash = beside(pair, ("mtp", "dflash"), 4, simulate=Simulation("qwen3.5-9b-mbpp"))
    assert (mtp.drawn, dflash.drawn) == ("qwen3.5-9b-mbpp-mtp", "qwen3.5-9b-mbpp")
    # the card's accept lengths, 3.338 and 3.454
    lengths = []
    for each in (mtp, dflash):
        rates = [float(rate) for rate in str(option(each, "--spec-synth-rates")).split(",")]
        assert len(rates) == 3
        lengths.append(1 + sum(rates))
    assert lengths == pytest.approx([3.338, 3.454], abs=1e-4)
    (alone,) = beside(pair, ("mtp",), 4, simulate=Simulation([0.5, 0.25]))
    assert (alone.drawn, option(alone, "--spec-synth-rates")) == ("0.5,0.25", "0.5,0.25,0")
    assert not any(each.drawn for each in beside(pair, ("ar", "mtp"), 4))


def test_a_target_without_the_layer_is_refused_in_one_line(tiny: Tiny, tmp_path: Path) -> None:
    told = "has no MTP layer (qwen35.nextn_predict_layers is not there)"
    done = command("bench", "-m", tiny.target, "--modes", "ar,mtp", "--peer", sys.executable)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"--modes mtp: {tiny.target.name} {told}" in done.stderr
    line = f"llama-server -m '{tiny.target}' --spec-type draft-mtp --port {{port}}"
    with pytest.raises(UsageError, match=r"--peer-cmd: target\.gguf has no MTP layer"):
        parse_peer(line, command=True)
    # the layer may come from a file of its own, and the target may be elsewhere
    assert parse_peer(f"{line} -md mtp.gguf", command=True).mode == "mtp"
    assert parse_peer(line.replace(str(tiny.target), "away.gguf"), command=True).mode == "mtp"
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no")
    with pytest.raises(ModelError, match=r"broken\.gguf"):
        parse_peer(line.replace(str(tiny.target), str(broken)), command=True)


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        ("--spec-synth-rates 0.9,0.5,0.2", "--spec-synth-rates 0.9,0.5,0.2"),
        ("--spec-synth-len=2.5", "--spec-synth-len 2.5"),
        ("", ""),
    ],
)
def test_a_server_that_was_told_to_draw_makes_all_output_say_so(
    tmp_path: Path, options: str, drawn: str
) -> None:
    program = tmp_path / "server.py"
    program.write_text(FAKE)
    line = f"{sys.executable} {program} --spec-type draft-mtp {options} --port {{port}}"
    common = ("--peer-cmd", line, "--questions", 1, "-n", 5, "--runs", 1, "-q")
    done = command("bench", *common, "-o", "jsonl", "--save-dir", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    (figure,) = map(json.loads, done.stdout.splitlines())
    assert (figure["mode"], figure["width"]) == ("mtp", 3)
    assert figure["accept_length"] == 2.5  # 5 tokens of 2 verifications
    assert figure["simulated"] == bool(drawn)
    assert figure["acceptance_is"] == (f"drawn from {drawn}" if drawn else "found out")
    (folder,) = (tmp_path / "runs").iterdir()
    made = read_bench(folder)
    for sample in map(json.loads, (folder / "turns.jsonl").read_text().splitlines()):
        assert sample.get("simulated", False) == bool(drawn)
    assert made.facts["simulated"] == bool(drawn)
    assert made.facts.get("simulated.curve", "") == drawn
    tables = (folder / "tables.md").read_text()
    titles = [text for text in tables.splitlines() if text.startswith("## ")]
    assert all(title.endswith("(simulated acceptance)") == bool(drawn) for title in titles)
    assert (f"acceptance: MTP steps=3 drawn from {drawn}." in tables) == bool(drawn)


def test_ends_are_passed_over_where_texts_are_nobodys() -> None:
    peer = Peer("x {port}", True, "mtp", 3, 3, "--spec-synth-len 2")
    assert measuring._drawn(_wishes(), [peer]) == "--spec-synth-len 2"
    assert measuring._drawn(_wishes(simulate="0.5"), [peer]) == "0.5; --spec-synth-len 2"
    assert measuring._drawn(_wishes(), []) == ""
    assert measuring._ask(_wishes(), ignore_end=True).ignore_end


def _wishes(**changes: Any) -> measuring.Wishes:
    nothing = ("target", "draft", "modes", "threads", "simulate", "questions", "think")
    values: dict[str, Any] = dict.fromkeys(nothing)
    values |= {"block": "4", "context": 0, "workloads": ("tiny",), "max_tokens": 4, "seed": 0}
    values |= {"concurrency": "1", "runs": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0}
    return measuring.Wishes(**(values | changes))


@pytest.mark.skipif(
    SERVER is None, reason="no llama-server: set LLAMA_SERVER, or put it on the PATH"
)
@pytest.mark.parametrize("rates", [(), (0.8, 0.6, 0.4)])
def test_mainlines_server_drafts_with_the_layer(
    pair: WrittenPair, rates: tuple[float, ...]
) -> None:
    """Of random weights next to nothing is accepted; where it is drawn, what the rates say."""
    words = [
        SERVER,
        "-m",
        str(pair.target_path),
        "--spec-type",
        "draft-mtp",
        "-t",
        "1",
        "-c",
        "1024",
    ]
    if rates:
        words += ["--spec-synth-rates", ",".join(map(str, rates))]
    line = f"{shlex.join(map(str, words))} --parallel 1 --port {{port}}"
    done = command(
        *(
            "bench",
            "--peer-cmd",
            line,
            "--questions",
            4,
            "-n",
            100,
            "--runs",
            1,
            "-q",
            "-o",
            "jsonl",
        )
    )
    assert done.returncode == 0, done.stderr
    (figure,) = map(json.loads, done.stdout.splitlines())
    assert (figure["engine"], figure["mode"], figure["width"]) == ("llama-server", "mtp", 3)
    assert figure["simulated"] == bool(rates)
    if rates:
        assert figure["accept_length"] == pytest.approx(1 + sum(rates), rel=0.15)
    else:
        assert 1 < figure["accept_length"] < 1.2

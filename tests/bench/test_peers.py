"""Servers as the command line names them."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("httpx2")

from dflash_gguf.bench.peers import Peer, _without_places, parse_peer, plan_peers
from dflash_gguf.bench.records import ArmFacts
from dflash_gguf.errors import UsageError

_SERVER = "llama-server -m t.gguf --port {port}"


@pytest.mark.parametrize(
    ("options", "mode", "width", "steps"),
    [
        ("", "ar", None, None),
        ("--spec-type draft-mtp --spec-draft-n-max 7", "mtp", 7, 7),
        ("--spec-type draft-dflash --spec-draft-n-max=15", "dflash", 16, 15),
        ("--spec-type draft-dflash", "dflash", 4, 3),
        ("--spec-type draft-dflash --spec-draft-n-max 7 --spec-draft-p-min 0.0", "dflash", 8, 7),
        ("--spec-type draft-dflash --spec-draft-n-max 7 --spec-draft-p-min 0.5", "dflash", 8, None),
        ("--spec-type ngram-mod,draft-mtp", "mtp", 3, 3),
    ],
)
def test_a_servers_column_is_read_from_its_command(
    options: str, mode: str, width: int | None, steps: int | None
) -> None:
    peer = parse_peer(f"{_SERVER} {options}", command=True)
    assert (peer.mode, peer.width, peer.steps) == (mode, width, steps)
    assert peer.command


@pytest.mark.parametrize(
    ("text", "mode", "width"),
    [
        ("http://localhost:1/v1", "ar", None),
        ("dflash:8=http://localhost:1", "dflash", 8),
        ("dflash:auto=http://localhost:1", "dflash", "auto"),
        ("mtp:3=https://x.invalid/?a=b", "mtp", 3),
        ("ar=http://localhost:1", "ar", None),
    ],
)
def test_a_urls_column_stands_before_it(text: str, mode: str, width: int | str | None) -> None:
    peer = parse_peer(text, command=False)
    assert (peer.mode, peer.width) == (mode, width)
    assert peer.where.startswith("http")


@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        ("localhost:1", False, "expected a URL such as http://"),
        ("llama-server -m t.gguf", True, "where its port goes"),
        ("", True, "where its port goes"),
        ("llama-server 'a {port}", True, "no closing quotation"),
        (f"{_SERVER} --spec-type draft-mtp --spec-draft-n-max x", True, "expected a number"),
    ],
)
def test_what_is_no_server_is_refused(text: str, command: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_peer(text, command=command)


def test_nothing_is_started_before_an_arm_is_opened() -> None:
    missing = Peer("/nowhere/server --port {port}", True, "dflash", 8, 7)
    first, second = plan_peers([missing, missing])
    assert first.facts.name != second.facts.name
    assert (first.facts.mode, first.facts.width, first.facts.speaks_for) == ("dflash", 8, "server")
    with pytest.raises(UsageError, match="/nowhere/server"):
        first.open()


def test_hosts_and_folders_are_left_out() -> None:
    details = {
        "url": "http://somewhere:1",
        "command": f"{sys.executable} -m /home/me/t.gguf --port 5",
        "model": "/home/me/t.gguf",
        "template": "chat",
    }
    facts = ArmFacts("p", "ar", None, "llama-server", details)
    given = "/usr/bin/env -m '/home/m e/t.gguf' --port {port} --draft=/home/d.gguf"
    kept = _without_places(facts, given).details
    assert kept["template"] == "chat"
    assert kept["model"] == "t.gguf"
    assert kept["command"] == "env -m t.gguf --port {port} --draft=d.gguf"
    assert not any("/" in value or "somewhere" in value for value in kept.values())

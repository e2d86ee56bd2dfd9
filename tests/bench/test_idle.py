"""Options that would do nothing are refused by name; what does something is not."""

from __future__ import annotations

import pytest

from dflash_gguf.bench.idle import refuse_idle
from dflash_gguf.errors import UsageError

from ..support.command import command

FLAGS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("target", "draft", "modes", "block", "context", "threads", "sweep", "simulate"),
        *("workload", "questions", "max_tokens", "concurrency", "runs", "think", "temp", "top_k"),
        *("top_p", "seed", "base_url", "peer_cmd", "peer_model", "output", "save_dir", "plot"),
        *("show", "quiet", "peer", "stream"),
    )
}


def refused(*given: str, dflash: bool = False, greedy: bool = True) -> None:
    refuse_idle(set(given), FLAGS, dflash=dflash, greedy=greedy)


@pytest.mark.parametrize(
    "given",
    [
        ("show", "output", "plot", "quiet"),
        ("target", "draft", "sweep", "block", "context", "threads", "concurrency", "output"),
        ("base_url", "peer_cmd", "peer_model", "stream", "workload", "concurrency"),
        ("target", "peer", "peer_model", "stream", "modes", "block", "simulate"),
        ("target", "base_url", "threads", "context"),
        (),
    ],
)
def test_what_does_something(given: tuple[str, ...]) -> None:
    refused(*given)


def test_what_drafts_or_samples() -> None:
    refused("target", "draft", "block", "simulate", "seed", dflash=True)
    refused("target", "top_k", "top_p", "seed", "temp", greedy=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("show", "target", "runs"), "--show measures nothing: --target, --runs would do nothing"),
        (("show", "save_dir"), "--show measures nothing: --save-dir"),
        (("target", "draft", "sweep", "workload"), "--sweep asks nothing: --workload"),
        (
            ("target", "draft", "sweep", "save_dir", "base_url"),
            "--sweep .*: --base-url, --save-dir",
        ),
        (("base_url", "threads", "block"), "no part without --target: --block, --threads"),
        (("peer_cmd", "draft"), "no part without --target: --draft"),
        (("target", "peer_model"), "no server is given .*: --peer-model"),
        (("target", "stream"), "no server is given .*: --stream"),
        (("target", "block"), "no drafter takes part .*: --block"),
        (("target", "simulate"), "no drafter takes part .*: --simulate"),
        (("target", "top_p"), "greedy .*--temp.: --top-p"),
        (("target", "seed"), "greedy .*: --seed"),
    ],
)
def test_what_would_do_nothing(given: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        refused(*given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--show", "runs", "-n", "5"), "--show measures nothing: --max-tokens would do nothing"),
        (("-m", "t", "-md", "d", "--sweep", "--no-think"), "--sweep asks nothing: --think"),
        (("--base-url", "http://localhost:1", "-t", "2"), "--threads would do nothing"),
        (("-m", "t", "-md", "d", "--modes", "ar", "--block", "8"), "--block would do nothing"),
        (("-m", "t", "--questions", "2", "--concurrency", "1,4"), "fewer than --concurrency 4"),
    ],
)
def test_the_command_refuses_them(options: tuple[str, ...], said: str) -> None:
    done = command("bench", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_options_are_known_by_the_names_that_the_rules_have() -> None:
    """Every parameter of the command stands in this test's list, and so in the rules."""
    from inspect import signature

    from dflash_gguf.commands.bench import bench

    assert set(signature(bench).parameters) - {"command"} == set(FLAGS)

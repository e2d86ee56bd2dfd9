"""What engines tell of their drafts is read by each one's own rule, and nothing else is made up.

golden/ has real answers and metrics of llama-server; its "command" says of which.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.bench.peer_figures import Figures, counts_between, figures
from dflash_gguf.bench.records import Counts

GOLDEN = Path(__file__).parent / "golden"
ANSWERS = json.loads((GOLDEN / "llama_server.json").read_text())["answers"]
BEFORE, AFTER = (
    (GOLDEN / f"llama_server_metrics_{name}.txt").read_text() for name in ("before", "after")
)


def of_golden(name: str, steps: int | None) -> Figures:
    answer = ANSWERS[name]
    return figures(answer, answer["choices"][0]["finish_reason"], steps)


@pytest.mark.parametrize(
    ("name", "steps", "rounds", "drafted", "accepted"),
    [
        ("draft-12", None, 2, 9, 9),  # ended by max_tokens: 1 + 9 + 2
        ("draft-400", None, None, 35, None),  # by itself: it may have counted tokens behind the end
        ("draft-400", 7, 5, 35, 28),
        ("draft-400-think", 7, 26, 182, 155),
        ("draft-400-think", 5, None, 182, None),  # not a multiple: drafts of another length
        (
            "draft-400-think",
            2,
            None,
            182,
            None,
        ),  # a multiple, but 91 rounds of 182 tokens cannot be
        ("plain-12", None, 11, 0, 0),
        ("plain-400-think", None, 181, 0, 0),
    ],
)
def test_llama_server(
    name: str, steps: int | None, rounds: int | None, drafted: int, accepted: int | None
) -> None:
    found = of_golden(name, steps)
    assert (found.rounds, found.drafted, found.accepted) == (rounds, drafted, accepted)
    timings = ANSWERS[name]["timings"]
    assert found.prefill_seconds == timings["prompt_ms"] / 1000
    assert found.decode_seconds == timings["predicted_ms"] / 1000


def test_tokens_behind_the_end_are_no_text() -> None:
    """Two drafts of 4, all right; the end token was the third of the second, so that 1 + 5 + 3 were written."""
    timings = {"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 8}
    found = figures({"timings": timings}, "stop", 4)
    assert (found.rounds, found.accepted) == (2, 7)
    assert figures({"timings": timings}, "stop").rounds is None


def test_llama_server_metrics() -> None:
    """Each answer was asked for twice, in pieces and whole."""
    counts = counts_between(BEFORE, AFTER)
    assert counts == Counts(70, 470, 402, (68, 64, 58, 56, 54, 52, 50))
    names = [name for name in ANSWERS if name.startswith("draft")]
    told = [of_golden(name, 7) for name in names]
    assert 2 * sum(found.rounds or 0 for found in told) == counts.rounds
    assert 2 * sum(found.drafted or 0 for found in told) == counts.drafted
    assert 2 * sum(found.accepted or 0 for found in told) == counts.accepted


def test_sglang() -> None:
    meta: dict[str, Any] = {"completion_tokens": 12, "spec_verify_ct": 4, "spec_accept_length": 3.0}
    assert figures({"meta_info": meta}, "stop") == Figures(rounds=4)
    meta |= {"spec_accept_token_num": 7, "spec_draft_token_num": 28}
    meta |= {"spec_accept_histogram": [1, 1, 0, 2]}
    assert figures({"meta_info": meta}, "stop") == Figures(4, 28, 7, (3, 2, 2))
    # a histogram that counts otherwise is left alone
    meta["spec_accept_histogram"] = [0, 1, 1, 2]
    assert figures({"meta_info": meta}, "stop") == Figures(4, 28, 7)


def test_ours() -> None:
    section = {"steps": 4, "drafted": 12, "accepted": 5, "accepted_per_position": [3, 2, 0]}
    timings = {"predicted_n": 10, "prompt_ms": 2000, "predicted_ms": 500}
    assert figures({"speculative": section, "timings": timings}, "stop") == Figures(
        4, 12, 5, (3, 2, 0), 2.0, 0.5
    )
    assert figures({"timings": {**timings, "speculative": section}}, "stop").rounds == 4


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"meta_info": {"completion_tokens": 5}},
        {"meta_info": {"spec_verify_ct": "4"}},
        {"timings": None},
        {"timings": {"draft_n": 3}},
        {"speculative": []},
    ],
)
def test_what_is_not_told_stays_none(told: dict[str, Any]) -> None:
    assert figures(told, "stop", 7) == Figures()


def vllm(drafts: int, draft_tokens: int, accepted: int, at: list[int], engine: int = 0) -> str:
    labels = f'engine="{engine}",model_name="m"'
    lines = [
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts:.1f}",
        f"vllm:spec_decode_num_drafts_created{{{labels}}} 1.7e+09",
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {draft_tokens:.1f}",
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {accepted:.1f}",
        "vllm:e2e_request_latency_seconds_sum 3.5",
    ]
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    lines += [
        f'{name}{{{labels},position="{place}"}} {count:.1f}' for place, count in enumerate(at)
    ]
    return "\n".join(lines) + "\n"


def test_vllm_metrics() -> None:
    before, after = vllm(10, 30, 12, [8, 3, 1]), vllm(14, 42, 18, [11, 5, 2])
    assert counts_between(before, after) == Counts(4, 12, 6, (3, 2, 1))
    # several engines add up
    second = vllm(2, 6, 3, [1, 1, 1], engine=1)
    assert counts_between(before, after + second) == Counts(6, 18, 9, (4, 3, 2))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (vllm(1, 3, 1, [1]), None),
        ("", ""),
        ("", "vllm:spec_decode_num_drafts_total 4\n"),
        (vllm(5, 15, 5, [5]), vllm(1, 3, 1, [1])),  # it was started anew
    ],
)
def test_no_counters_no_counts(before: str | None, after: str | None) -> None:
    assert counts_between(before, after) is None

"""Findings of doctor: codes, errors as findings, and what texts and drafts of a pair tell."""

from __future__ import annotations

import pytest

from dflash_gguf.doctor.findings import exit_code, fault, findings_of, note, of_error, ok
from dflash_gguf.doctor.pair_checks import _acceptance, _compare
from dflash_gguf.errors import ModelError, ResourceError, UsageError
from dflash_gguf.sequence import Sequence, TokenLogprobs
from dflash_gguf.stats import Stats


def test_codes_and_errors() -> None:
    assert exit_code([ok("a", ""), note("b", "")]) == 0
    found = [of_error("x", error) for error in (ResourceError("no; do"), ModelError("odd"))]
    assert exit_code(found) == 3
    assert exit_code([*found, of_error("x", UsageError("what; do that"))]) == 1
    assert (found[0].text, found[0].remedy) == ("no", "do")
    assert (found[1].text, found[1].remedy) == ("odd", "")
    assert of_error("x", MemoryError()).code == 4
    assert (
        of_error("x", ZeroDivisionError("oh")).text
        == "it could not be checked (ZeroDivisionError: oh)"
    )
    assert (
        of_error("x", PermissionError(13, "Permission denied", "/f")).text
        == "/f: Permission denied"
    )
    gone = ModuleNotFoundError("no", name="dflash_gguf.convert")
    assert "looks like the source folder" in of_error("x", gone).text
    broken = list(findings_of("x", lambda: iter([ok("x", "1"), 1 / 0])))  # type: ignore[list-item]
    assert [one.state for one in broken] == ["fault"]
    assert fault("x", "a\x1b[2J\nb").render() == "fault  x: a\\x1b[2J\\nb\n"


def sequence(tokens: list[int], gap: float = 5.0) -> Sequence:
    made = Sequence((1,), 4, tokens=tokens)
    made.logprobs = [
        TokenLogprobs(token, -0.1, ((token, -0.1), (0, -0.1 - gap))) for token in tokens
    ]
    return made


@pytest.mark.parametrize(
    ("drafted", "gap", "state"),
    [
        ([1, 2, 3], 5.0, "ok"),
        ([1, 9, 3], 5.0, "fault"),
        ([1, 9, 3], 0.01, "note"),
        ([1, 2], 5.0, "fault"),
    ],
)
def test_texts_that_part(drafted: list[int], gap: float, state: str) -> None:
    (found,) = _compare(sequence([1, 2, 3], gap), sequence(drafted))
    assert found.state == state
    assert (found.state == "ok") == (not found.remedy)


def counts(accepted: int, failure: str | None = None) -> Stats:
    return Stats(
        5, 0, 5, 20, 16, 16, 48, accepted, (16,), (accepted,), 4, 1.0, 1.0, draft_failure=failure
    )


def test_drafts_that_do_not_help() -> None:
    (good,) = _acceptance(counts(3), [])
    assert (good.state, good.facts["accepted"]) == ("ok", 3)
    (never,) = _acceptance(counts(0), [])
    assert never.state == "note"
    assert "trained for this very model" in never.remedy
    (shifted,) = _acceptance(
        counts(0), ["blocks seem to be laid out otherwise; set sample_from_anchor"]
    )
    assert shifted.text.endswith("blocks seem to be laid out otherwise")
    assert shifted.remedy == "set sample_from_anchor"
    failed, _ = _acceptance(
        counts(0, "it broke"), ["drafting stopped, plain decoding goes on: it broke"]
    )
    assert (failed.state, failed.text) == ("fault", "drafting stopped: it broke")

"""Figures without their samples: what `-o json` writes, read again to be shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ..errors import DflashError
from .fields import Misfit, filled
from .figures import Figure, Figures
from .invariants import Finding
from .records import ArmFacts, Bench, Failure

_PARTS = ("simulated", "facts", "prompts", "baseline", "arms", "figures", "failures")
# what documents of older versions lack
_LATER = ("state", "lacks", "findings")


def read_document(document: Any, where: str) -> tuple[Bench, Figures]:
    """Return the measurement, without cells, and its figures.

    Args:
        document: as `json.loads` gives it.
        where: what errors call it.

    Raises DflashError, in one line, for anything else than what `-o json` writes.
    """
    if not isinstance(document, dict) or set(document) - set(_LATER) != set(_PARTS):
        found = sorted(document) if isinstance(document, dict) else type(document).__name__
        text = f"{where}: it holds {found}; expected what bench -o json writes: {', '.join(_PARTS)}"
        raise DflashError(text)
    try:
        bench = _bench(document)
        figures = [filled(Figure, each) for each in document["figures"]]
        told = document.get("findings")
        findings = None if told is None else tuple(filled(Finding, each) for each in told)
        if not figures:
            text = "there are no figures"
            raise Misfit(text)
    except (Misfit, TypeError) as error:
        text = f"{where}: {error}; expected what bench -o json writes, of this version"
        raise DflashError(text) from None
    return bench, Figures(
        arms=bench.arms,
        baseline=document["baseline"],
        workloads=tuple(dict.fromkeys(each.workload for each in figures)),
        concurrencies=tuple(sorted({each.concurrency for each in figures})),
        simulated=bool(document["simulated"]),
        by_key={(each.arm, each.workload, each.concurrency): each for each in figures},
        findings=findings,
        lacks=str(document.get("lacks", "")),
    )


def _bench(document: dict[str, Any]) -> Bench:
    arms = tuple(filled(ArmFacts, arm) for arm in document["arms"])
    failures = tuple(filled(Failure, each) for each in document["failures"])
    empty = filled(
        Bench,
        {
            "facts": document["facts"],
            "prompts": document["prompts"],
            "arms": (),
            "cells": (),
            "state": document.get("state", "complete"),
        },
    )
    return replace(empty, arms=arms, failures=failures)


def parse_document(text: str, where: str) -> tuple[Bench, Figures]:
    """Read it from JSON. Raises as `read_document`, for text that is no JSON too."""
    try:
        document = json.loads(text)
    except ValueError as error:
        problem = f"{where}: it is no JSON ({error}); expected what bench -o json writes"
        raise DflashError(problem) from None
    return read_document(document, where)

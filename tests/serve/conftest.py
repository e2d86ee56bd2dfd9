"""One server for all tests of a module that do not stop or fill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.command import endless
from tests.support.random_pairs import Pair
from tests.support.served import Served, serving


@pytest.fixture(scope="session")
def unending(dense: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The dense pair, whose target never ends an answer."""
    target = endless(dense, tmp_path_factory.mktemp("unending") / "target.gguf")
    return Pair(target, dense.draft)


@pytest.fixture(scope="module")
def served(dense: Pair) -> Iterator[Served]:
    """A server of the dense random pair: greedy, block 4, 4 answers at the same time."""
    with serving(dense) as found:
        yield found

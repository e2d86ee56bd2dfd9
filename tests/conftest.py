"""Fixtures of all tests.

OMP_WAIT_POLICY: workers of parallel test processes must not spin. SIGINT: a shell's background job starts with
it ignored, its children inherit that, and tests of Ctrl-C would wait in vain.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before llama.cpp's OpenMP loads

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, settings

from dflash_gguf.calibration import Effort

from .support.random_pairs import Pair, make_pair
from .support.tiny import Tiny

# a test that waits for a busy machine is no slow test
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A random Qwen3 pair in f32, block 8."""
    return make_pair(tmp_path_factory.mktemp("dense"), hybrid=False)


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A random Qwen3.5 pair in f32, block 8."""
    return make_pair(tmp_path_factory.mktemp("hybrid"), hybrid=True)


@pytest.fixture(scope="session", params=["dense", "hybrid"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each of the random pairs."""
    made: Pair = request.getfixturevalue(request.param)
    return made


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep converted drafters out of the user's cache."""
    monkeypatch.setenv("DFLASH_GGUF_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The trained pair of models/tiny."""
    return Tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe what is measured beside other tests."""
    monkeypatch.setattr(Effort, "disturbed_until", lambda *_: False)

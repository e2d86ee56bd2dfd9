"""The compiled module's type stub says what is in it: all of it, nothing else, under the same names."""

from __future__ import annotations

from importlib.resources import files

import pytest

from dflash_gguf._native import core

from .support.stub import declared, held

STUB = (files("dflash_gguf") / "_core.pyi").read_text(encoding="utf-8")


def differences(stub: str) -> list[str]:
    said, found = declared(stub), held(core())
    return [
        f"{name}: the stub has {said.get(name)}, the module {found.get(name)}"
        for name in sorted(said.keys() | found.keys())
        if said.get(name) != found.get(name)
    ]


def test_the_stub_is_the_modules() -> None:
    assert len(held(core())) > 200
    assert differences(STUB) == []


@pytest.mark.parametrize(
    ("line", "other", "at"),
    [
        ("def own_memory() -> int: ...", "", "own_memory"),
        ("def own_memory() -> int: ...", "def own_memory() -> float: ...", "own_memory"),
        ("def own_memory() -> int: ...", "def own_memory(now: int = 0) -> int: ...", "own_memory"),
        ("def missing_symbols(", "def extra() -> None: ...\ndef missing_symbols(", "extra"),
        ("def gumbel(seed: int, position", "def gumbel(seed: int, place", "gumbel"),
        ("    threads: int = 1,", "    threads: int = 2,", "convert_rows"),
        ("pos: int, seq: int = 0)", "pos: int, seq: int)", "Context.evaluate"),
        ("        replay: bool = False,", "        replay: bool = True,", "Session.__init__"),
        ("        max_tokens: int,", "        max_token: int,", "Session.add"),
        ("        *,\n        from_anchor", "        from_anchor", "DsparkDrafter.__init__"),
        ("    length = 2", "    length = 7", "Finish.length"),
        ("    length = 2", "", "Finish.length"),
        ("    length = 2", "    length = 2\n    tired = 9", "Finish.tired"),
        ("class Finish(Enum):", "class Finish:", "Finish"),
        ("class LatticeDrafter(ModelDrafter):", "class LatticeDrafter(Drafter):", "LatticeDrafter"),
        ("    reused_tokens: Final[int]", "", "Counters.reused_tokens"),
        ("    reused_tokens: Final[int]", "    reused_tokens: int", "Counters.reused_tokens"),
        ("    reused_tokens: Final[int]", "    reused: Final[int]", "Counters.reused"),
        (
            "    logprobs: Final[list[tuple[float,",
            "    logprobs: Final[list[tuple[int,",
            "Output.logprobs",
        ),
        ("    n_batch: int", "    n_batch: Final[int]", "ContextParams.n_batch"),
        ("    def wake(self) -> None: ...", "", "Controller.wake"),
        (
            "    @staticmethod\n    def certain(token: int)",
            "    def certain(self)",
            "Distribution.certain",
        ),
    ],
)
def test_a_fault_is_found(line: str, other: str, at: str) -> None:
    assert line in STUB
    assert any(found.startswith(f"{at}: ") for found in differences(STUB.replace(line, other, 1)))

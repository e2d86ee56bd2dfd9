"""A measurement is on disk as far as it has come, whatever happens to its process or its disk."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from dflash_gguf.bench import saved
from dflash_gguf.bench.output import render
from dflash_gguf.bench.records import Ask, Bench, Plan
from dflash_gguf.bench.saved import Saving, read_bench
from dflash_gguf.errors import DflashError

from ..support.measured import BASE, WIDE4, bench, cell, turn

PLAN = Plan(("w",), (1,), 2)
WHOLE = replace(
    bench(
        *(cell(BASE, 0, 3.0, turn(3), turn(4)), cell(WIDE4, 0, 5.0, turn(3), turn(4))),
        *(cell(WIDE4, 1, 6.0, turn(3), turn(4)), cell(BASE, 1, 2.0, turn(3), turn(4))),
    ),
    ask=Ask(24, temperature=0.5, think=True),
    plan=PLAN,
)


def at(count: int) -> Bench:
    """The measurement after so many cells."""
    return replace(WHOLE, cells=WHOLE.cells[:count], state="running")


def test_every_cell_is_there_as_soon_as_it_is_kept(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.keep(at(0))
    assert list(tmp_path.iterdir()) == []  # nothing to keep, no folder
    for count in range(1, 5):
        saving.keep(at(count))
        assert read_bench(saving.folder) == at(count)
        lines = (saving.folder / "turns.jsonl").read_text().splitlines()
        assert [json.loads(line)["cell"] for line in lines] == [
            number for number in range(count) for _ in range(2)
        ]
    assert not (saving.folder / "tables.md").exists()
    saving.end(WHOLE)
    assert read_bench(saving.folder) == WHOLE
    assert (saving.folder / "tables.md").read_text(encoding="utf-8") == render(WHOLE, "md")
    assert len(list(saving.folder.iterdir())) == 3


def test_a_cell_without_runs_that_count_has_no_tables(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.end(replace(at(2), state="interrupted"))
    assert read_bench(saving.folder).state == "interrupted"
    assert not (saving.folder / "tables.md").exists()


def test_what_was_cut_at_any_byte_is_read(tmp_path: Path) -> None:
    """The process ends while it appends the third cell's answers."""
    saving = Saving(tmp_path)
    saving.keep(at(2))
    file = saving.folder / "turns.jsonl"
    whole = file.read_bytes()
    more = saved._lines(at(3), 2).encode()
    for count in range(len(more) + 1):
        file.write_bytes(whole + more[:count])
        assert read_bench(saving.folder) == at(2)


def test_what_is_complete_has_no_answers_too_many(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.end(replace(at(4), state="complete"))
    with (saving.folder / "turns.jsonl").open("a") as file:
        file.write(saved._lines(replace(WHOLE, cells=WHOLE.cells * 2), 4))
    with pytest.raises(DflashError, match="it has turns of cell 4"):
        read_bench(saving.folder)


def test_a_line_that_is_spoilt_within_is_damage(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.keep(at(2))
    file = saving.folder / "turns.jsonl"
    file.write_text(file.read_text().replace('"cell": 0', '"cell" 0', 1))
    with pytest.raises(DflashError, match="line 1: it is no JSON"):
        read_bench(saving.folder)


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_full_disk_spoils_nothing_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Whichever of the writes it is that finds no room; when there is room again, nothing is missing."""
    for nth in range(3):  # answers, then bench.json; none fails
        saving = Saving(tmp_path / f"{nth}")
        saving.keep(at(2))
        with monkeypatch.context() as patch:
            full = _full(patch, failing, nth)
            if nth < 2:
                with pytest.raises(OSError, match="No space"):
                    saving.keep(at(3))
            else:
                saving.keep(at(3))
            assert full() == min(nth + 1, 2)
        assert read_bench(saving.folder) == at(2 if nth < 2 else 3)
        names = {path.name for path in saving.folder.iterdir()}
        assert names == {"bench.json", "turns.jsonl"}
        saving.end(WHOLE)
        assert read_bench(saving.folder) == WHOLE


def _full(patch: pytest.MonkeyPatch, failing: str, nth: int) -> Callable[[], int]:
    """Let the nth write fail, half of it done; return what counts them."""
    calls: list[int] = []

    def fails() -> bool:
        calls.append(0)
        return len(calls) == nth + 1

    def no_room() -> OSError:
        return OSError(28, "No space left on device")

    if failing == "fsync":
        sync = os.fsync

        def synced(descriptor: int) -> None:
            if fails():
                raise no_room()
            sync(descriptor)

        patch.setattr(saved.os, "fsync", synced)
    else:
        opened = Path.open

        class Half:
            def __init__(self, file: Any) -> None:
                self.file, self.failing = file, fails()

            def __getattr__(self, name: str) -> Any:
                return getattr(self.file, name)

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                self.file.close()

            def write(self, data: Any) -> int:
                if self.failing:
                    self.file.write(data[: len(data) // 2])
                    raise no_room()
                written: int = self.file.write(data)
                return written

        def open_half(path: Path, *words: Any, **named: Any) -> Any:
            file = opened(path, *words, **named)
            return Half(file) if words[0] in {"ab", "w"} else file

        patch.setattr(Path, "open", open_half)
    return lambda: len(calls)


@pytest.mark.parametrize("moment", ["_append", "_replace", "fsync"])
def test_ctrl_c_comes_when_all_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    saving = Saving(tmp_path)
    saving.keep(at(2))
    place = saved.os if moment == "fsync" else saved
    original = getattr(place, moment)

    def pressed(*words: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return original(*words)

    monkeypatch.setattr(place, moment, pressed)
    with pytest.raises(KeyboardInterrupt):
        saving.keep(at(3))
    monkeypatch.undo()
    assert read_bench(saving.folder) == at(3)
    saving.end(WHOLE)
    assert read_bench(saving.folder) == WHOLE


def test_two_that_begin_in_one_second_have_a_folder_each(tmp_path: Path) -> None:
    several = [Saving(tmp_path) for _ in range(3)]
    for saving in several:
        saving.keep(at(1))
    assert len({saving.folder for saving in several}) == 3
    assert all(read_bench(saving.folder) == at(1) for saving in several)


def test_a_folder_of_runs_names_one_of_them(tmp_path: Path) -> None:
    with pytest.raises(DflashError, match=r"bench\.json is not there; expected"):
        read_bench(tmp_path)
    folder = saved.save(WHOLE, tmp_path)
    with pytest.raises(DflashError, match="such as " + re.escape(str(folder)) + "$"):
        read_bench(tmp_path)

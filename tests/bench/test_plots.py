"""Plots as figure objects: what is drawn, and how it is named."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.bench import plots
from dflash_gguf.bench.figures import reckon
from dflash_gguf.errors import DflashError, UsageError

from ..support.measured import AUTO, BASE, WIDE4, bench, cards, cell, turn


def test_without_matplotlib_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DflashError, match=r"dflash-gguf\[bench\]"):
        plots.check(tmp_path)


@pytest.fixture
def _drawing() -> None:
    pytest.importorskip("matplotlib")


pytestmark = pytest.mark.filterwarnings("error")
drawn = pytest.mark.usefixtures("_drawing")


def _series(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    """The lines of a panel by their names in the legend; those of error bars are their middles."""
    handles, names = axes.get_legend_handles_labels()
    found = {}
    for handle, name in zip(handles, names, strict=True):
        line = handle[0] if isinstance(handle, tuple) else handle
        found[name] = (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
    return found


@drawn
def test_throughput_has_a_line_for_each_arm() -> None:
    picture: Any = plots.throughput(reckon(cards()))
    first, second = picture.axes
    assert (first.get_title(), second.get_title()) == ("gsm8k", "mbpp")
    assert _series(first) == {
        "Baseline (dflash-gguf)": ([1, 8], pytest.approx([100, 800])),
        "MTP steps=3 (llama-server)": ([1, 8], pytest.approx([200, 1600])),
        "DFlash block=4 (dflash-gguf)": ([1, 8], pytest.approx([250, 2000])),
        "DFlash block=8 (dflash-gguf)": ([1, 8], pytest.approx([300, 2400])),
    }
    assert first.get_xlabel() == "requests at a time"
    assert first.get_ylabel() == "output tokens / s"


@drawn
def test_lines_differ_in_colour_and_marker() -> None:
    picture: Any = plots.throughput(reckon(cards()))
    handles, _ = picture.axes[0].get_legend_handles_labels()
    styles = [(handle[0].get_color(), handle[0].get_marker()) for handle in handles]
    assert len({colour for colour, _ in styles}) == len({marker for _, marker in styles}) == 4


@drawn
def test_speedup_goes_over_blocks_and_auto_is_level() -> None:
    made = cards()
    auto = tuple(
        replace(each, arm="auto", seconds=each.seconds / 2)
        for each in made.cells
        if each.arm == "wide-4"
    )
    with_auto = replace(made, arms=(*made.arms, AUTO), cells=made.cells + auto)
    picture: Any = plots.speedup(reckon(with_auto))
    series = _series(picture.axes[0])
    assert series["DFlash (dflash-gguf), 1 at a time"] == ([4, 8], pytest.approx([2.5, 3]))
    assert series["MTP (llama-server), 8 at a time"] == ([4], pytest.approx([2]))
    level = series["DFlash (dflash-gguf), 1 at a time, auto"][1]
    assert level == pytest.approx([5, 5])
    assert "block" in picture.axes[0].get_xlabel()
    assert "baseline" in picture.axes[0].get_ylabel()


@drawn
def test_acceptance_leaves_out_what_was_never_drafted() -> None:
    told = turn(0, drafted=3, accepted=1, drafted_at=(2, 1, 0), accepted_at=(1, 0, 0))
    picture: Any = plots.acceptance(reckon(bench(cell(BASE, 1, 1.0), cell(WIDE4, 1, 2.0, told))))
    (axes,) = picture.axes
    assert _series(axes) == {"DFlash block=4": ([1, 2], [50, 0])}
    assert "position" in axes.get_xlabel()
    assert "%" in axes.get_ylabel()


@drawn
def test_simulated_stands_in_the_title_and_only_then() -> None:
    made = cards()
    for simulated in (True, False):
        facts = {**made.facts, "simulated": simulated}
        figures = reckon(replace(made, facts=facts))
        for draw in (plots.throughput, plots.acceptance, plots.speedup):
            picture: Any = draw(figures)
            assert ("simulated" in picture.get_suptitle()) == simulated


@drawn
def test_files_are_png_of_their_size(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plots"
    plots.check(folder)
    written = plots.save_plots(reckon(cards()), folder)
    assert [path.name for path in written] == ["throughput.png", "acceptance.png", "speedup.png"]
    for path in written:
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert data.endswith(b"IEND\xaeB`\x82")
        width, height = struct.unpack(">II", data[16:24])
        assert width > 1000
        assert height > 300


@drawn
def test_what_cannot_be_drawn_is_left_out(tmp_path: Path) -> None:
    written = plots.save_plots(reckon(bench(cell(BASE, 1, 1.0))), tmp_path)
    assert [path.name for path in written] == ["throughput.png"]


@drawn
def test_earlier_plots_stay(tmp_path: Path) -> None:
    (tmp_path / "acceptance.png").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"acceptance\.png"):
        plots.check(tmp_path)
    with pytest.raises(FileExistsError):
        plots.save_plots(reckon(cards()), tmp_path)
    assert (tmp_path / "acceptance.png").read_bytes() == b"mine"

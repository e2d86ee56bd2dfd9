"""A measurement as pictures: throughput by concurrency, acceptance by position, speed-up by block.

matplotlib draws them (the extra `bench`); it is imported when a picture is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DflashError, UsageError
from .figures import Figure, Figures, Spread
from .labels import block_of, blocks_of, column_names, short_names, titled
from .records import ArmFacts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

# Okabe and Ito's colours, which people of any colour vision tell apart; shapes and dashes tell too
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")
_DASHES = ("-", "--", "-.", ":")
_INSTALL = "matplotlib draws the plots and is not installed: pip install 'dflash-gguf[bench]'"
_PANEL = (6.4, 4.2)  # inches


def check(folder: Path) -> None:
    """Raise before anything is measured: DflashError without matplotlib, UsageError if plots are there already."""
    _new_picture()
    there = [str(folder / name) for name in _PLOTS if (folder / name).exists()]
    if there:
        text = f"--plot {folder}: {', '.join(there)} exist; give another folder or move them away"
        raise UsageError(text)
    folder.mkdir(parents=True, exist_ok=True)


def save_plots(figures: Figures, folder: Path) -> list[Path]:
    """Write the PNGs that there are figures for into the folder and return their paths.

    Raises DflashError without matplotlib, FileExistsError for a file that is there already, OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in _PLOTS.items():
        picture = draw(figures)
        if picture is not None:
            path = folder / name
            with path.open("xb") as file:
                picture.savefig(file, format="png", dpi=150)
            written.append(path)
    return written


def throughput(figures: Figures) -> Picture | None:
    """Output tok/s against concurrency, a panel a workload and a line an arm, with the runs' least and most."""
    names = column_names(figures.arms)

    def draw(axes: Axes, workload: str) -> None:
        for number, arm in enumerate(figures.arms):
            points = [
                (float(concurrency), figure.throughput)
                for concurrency in figures.concurrencies
                if (figure := figures.at(arm.name, workload, concurrency)) is not None
            ]
            _line(axes, points, names[arm.name], number)
        axes.set_xscale("log", base=2)
        axes.set_xticks(figures.concurrencies, [str(each) for each in figures.concurrencies])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("requests at a time")
        axes.set_ylabel("output tokens / s")

    return _panels(figures, "Throughput by concurrency", figures.workloads, draw)


def speedup(figures: Figures) -> Picture | None:
    """Speed-up against the block, a panel a workload and a line for each kind of arm and concurrency.

    Arms whose block is no number ("auto") are level lines.
    """
    arms = [arm for arm in figures.arms if arm.mode != "ar"]
    gains = [figure.speedup for figure in figures.by_key.values() if figure.arm != figures.baseline]
    if not arms or not any(gains):
        return None
    widths = [block for block in blocks_of(tuple(arms)) if isinstance(block, int)]
    kinds = list(dict.fromkeys((arm.mode, arm.speaks_for) for arm in arms))

    def draw(axes: Axes, workload: str) -> None:
        number = 0
        for kind in kinds:
            alike = [arm for arm in arms if (arm.mode, arm.speaks_for) == kind]
            for concurrency in figures.concurrencies:
                _blocks(axes, figures, alike, workload, concurrency, number)
                number += 1
        axes.axhline(1.0, color="grey", linewidth=1, zorder=0)
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("block (MTP: steps + 1)")
        axes.set_ylabel("speed-up over the baseline")

    return _panels(figures, "Speed-up by block", figures.workloads, draw)


def _blocks(
    axes: Axes,
    figures: Figures,
    arms: list[ArmFacts],
    workload: str,
    concurrency: int,
    number: int,
) -> None:
    """Draw one kind of arm at one concurrency."""
    name = f"{short_names(figures.arms)[arms[0].name].split(':')[0]}, {concurrency} at a time"
    points = []
    for arm in arms:
        figure, block = figures.at(arm.name, workload, concurrency), block_of(arm)
        if figure is None or figure.speedup is None or block is None:
            continue
        if isinstance(block, int):
            points.append((float(block), figure.speedup))
        else:
            axes.axhline(
                figure.speedup.median, label=f"{name}, {block}", **_style(number, markers=False)
            )
    _line(axes, sorted(points, key=lambda point: point[0]), name, number)


def acceptance(figures: Figures) -> Picture | None:
    """Accepted of drafted tokens by position in the block, at the lowest concurrency, a panel a workload."""
    names = column_names(figures.arms)
    least = figures.concurrencies[0]

    def told(workload: str) -> list[tuple[int, Figure]]:
        found = [
            (number, figures.at(arm.name, workload, least))
            for number, arm in enumerate(figures.arms)
        ]
        return [(number, figure) for number, figure in found if figure and figure.acceptance_at]

    def draw(axes: Axes, workload: str) -> None:
        for number, figure in told(workload):
            places = [(i + 1, at) for i, at in enumerate(figure.acceptance_at) if at is not None]
            axes.plot(
                [place for place, _ in places],
                [100 * at for _, at in places],
                label=names[figure.arm],
                **_style(number),
            )
        axes.set_ylim(0, 105)
        axes.set_xlabel("position in the block (1: first drafted)")
        axes.set_ylabel("accepted of drafted, %")

    title = f"Acceptance by position, concurrency {least}"
    return _panels(figures, title, [each for each in figures.workloads if told(each)], draw)


def _line(axes: Axes, points: list[tuple[float, Spread]], name: str, number: int) -> None:
    if not points:
        return
    middle = [spread.median for _, spread in points]
    below = [spread.median - spread.least for _, spread in points]
    above = [spread.most - spread.median for _, spread in points]
    where = [place for place, _ in points]
    axes.errorbar(where, middle, yerr=[below, above], capsize=3, label=name, **_style(number))


def _style(number: int, *, markers: bool = True) -> dict[str, Any]:
    style: dict[str, Any] = {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
    }
    return style | ({"marker": _MARKERS[number % len(_MARKERS)]} if markers else {})


def _panels(
    figures: Figures, title: str, workloads: Iterable[str], draw: Callable[[Axes, str], None]
) -> Picture | None:
    """A panel for each workload, in rows of three; None if there is none."""
    shown = list(workloads)
    if not shown:
        return None
    picture = _new_picture()
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)
    picture.set_size_inches(_PANEL[0] * columns, _PANEL[1] * rows)
    picture.set_layout_engine("constrained")
    for place, workload in enumerate(shown, 1):
        axes = picture.add_subplot(rows, columns, place)
        draw(axes, workload)
        axes.set_title(workload)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small")
    picture.suptitle(titled(title, simulated=figures.simulated))
    return picture


def _new_picture() -> Picture:
    """Return an empty figure, made without pyplot: no window, no state of the process is touched."""
    try:
        from matplotlib.figure import Figure as NewPicture
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise DflashError(_INSTALL) from None
    return NewPicture()


_PLOTS: dict[str, Callable[[Figures], Picture | None]] = {
    "throughput.png": throughput,
    "acceptance.png": acceptance,
    "speedup.png": speedup,
}

"""Draw the chat that README.md shows: a real one, with the tiny pair, typed into a real pseudo-terminal.

    python benchmarks/record_chat.py OUT.svg

What the terminal shows at the end becomes an SVG; figures are those of the run.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from dflash_gguf.convert import convert

TINY = Path(__file__).parent.parent / "models" / "tiny"
ROWS, COLUMNS, WAIT = 34, 96, 60
SAID = (
    "Anna has 12 apples. Then Anna buys 35 more. How many apples does Anna have now?",
    "/draft off",
    "/regen",
    "/stats",
)
# rich's picture, without the font that it would fetch
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


class _Screen(pyte.Screen):
    """A screen that shows what is dim in grey: pyte knows nothing of it."""

    def select_graphic_rendition(self, *attrs: int, **kwargs: bool) -> None:
        """Set how the next characters look."""
        super().select_graphic_rendition(*(90 if each == 2 else each for each in attrs), **kwargs)


def record(draft: Path) -> pyte.Screen:
    """Hold the chat; returns the screen as it is before it is left. Raises RuntimeError if an answer does not come."""
    words = ["run", "-m", "target.gguf", "-md", str(draft), "-c", "2048", "--block", "8"]
    environment = {**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
    for name in ("NO_COLOR", "FORCE_COLOR", "DFLASH_GGUF_CONFIG"):
        environment.pop(name, None)
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    chat = subprocess.Popen(
        [sys.executable, "-P", "-m", "dflash_gguf", *words, "--no-history"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=TINY,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    screen = _Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    try:
        _until(master, stream, lambda: _asks(screen))
        for text in SAID:
            os.write(master, text.encode() + b"\r")
            _until(master, stream, lambda text=text: _asks(screen) and _said(screen, text))  # type: ignore[misc]
    finally:
        chat.kill()
        chat.wait()
        os.close(master)
    return screen


def picture(screen: pyte.Screen) -> str:
    """Return what a screen shows as an SVG, without the empty rows at its end and the line that waits."""
    rows = [y for y in range(ROWS) if screen.display[y].strip()]
    last = rows[-1] if rows else 0
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: PTH123, SIM115
    for y in range(last):  # the last one asks for the next message
        line = Text()
        cells = [screen.buffer[y][x] for x in range(COLUMNS)]
        for (fg, bold), run in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
            style = Style(color=None if fg == "default" else _color(fg), bold=bold)
            line.append("".join(cell.data for cell in run), style)
        line.rstrip()
        console.print(line)
    return console.export_svg(title="dflash-gguf run", code_format=_FORMAT, unique_id="chat")


def _color(name: str) -> str:
    named = {"brown": "yellow", "brightblack": "bright_black"}
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else named.get(name, name)


def _asks(screen: pyte.Screen) -> bool:
    row = screen.display[screen.cursor.y]
    return row.startswith(">>> Send a message")


def _said(screen: pyte.Screen, text: str) -> bool:
    return any(row.rstrip() == f">>> {text}"[:COLUMNS].rstrip() for row in screen.display)


def _until(master: int, stream: pyte.ByteStream, seen: Callable[[], bool]) -> None:
    limit = time.monotonic() + WAIT
    while not seen():
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            stream.feed(os.read(master, 65536))
        elif time.monotonic() > limit:
            text = "the chat does not go on"
            raise RuntimeError(text)


def main() -> None:
    """Convert the drafter, hold the chat, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        made = convert(
            TINY / "draft" / "model.safetensors",
            TINY / "target.gguf",
            outdir=Path(folder),
            outtypes=["bf16"],
        )
        screen = record(made[0].path)
    out.write_text(picture(screen), encoding="utf-8")


if __name__ == "__main__":
    main()

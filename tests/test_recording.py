"""The chat that README.md shows is what the program shows, but for figures and the machine."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

from .support.tiny import ROOT

SCRIPT = ROOT.parent.parent / "benchmarks" / "record_chat.py"


def lines(picture: Path) -> list[str]:
    """What stands in a picture, from the header's first line on, with figures and the device left out."""
    text = picture.read_text(encoding="utf-8")
    assert "/tmp" not in text
    assert str(Path.home()) not in text
    rows: dict[float, list[str]] = {}
    for y, piece in re.findall(
        r'<text class="chat-r[^"]*"[^>]*? y="([\d.]+)"[^>]*>([^<]*)</text>', text
    ):
        rows.setdefault(float(y), []).append(html.unescape(piece).replace("\xa0", " "))
    found = ["".join(rows[y]).rstrip() for y in sorted(rows)]
    first = next(i for i, line in enumerate(found) if line.startswith("target"))
    masked = [re.sub(r"(?<=device).*|\d[\d,.]*(?= tok/s)|[\d.]+ s$", "", line) for line in found]
    return [line for line in masked[first:] if line]


def test_the_picture_is_what_the_program_shows(tmp_path: Path) -> None:
    made = tmp_path / "chat.svg"
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT, made], capture_output=True, text=True, timeout=120, cwd="/", check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    now, shown = lines(made), lines(ROOT / "chat.svg")
    assert "Anna has 47 apples." in shown
    assert sum(line.startswith(">>> ") for line in shown) == 4
    assert now == shown, "models/tiny/chat.svg is out of date; run `make recording`"

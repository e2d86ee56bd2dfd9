"""`dflash-gguf serve` as a process of its own, with the trained pair, whose template also writes calls of tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.command import start
from ..support.edited import edited
from ..support.tiny import Tiny
from ..support.tool_templates import TEMPLATES

THINKS = "{% if enable_thinking is not defined or enable_thinking %}"


@pytest.fixture(scope="module")
def base(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address, without a path."""
    template = TEMPLATES["hermes"].replace("{% if enable_thinking %}", THINKS)
    target = tmp_path_factory.mktemp("clients") / "tiny.gguf"
    edited(tiny.target_f32, target, change={"tokenizer.chat_template": template})
    options: list[Any] = ["--port", 0, "--block", 8, "--threads", 1, "-c", 1024, "--temp", 0]
    process = start("serve", "--target", target, "--draft", _draft(tiny), *options)
    try:
        yield _address(process.stderr)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _draft(tiny: Tiny) -> Path:
    return tiny.draft("f32")


def _address(said: Any) -> str:
    lines = []
    for line in said:
        lines.append(line.decode())
        if found := re.match(r"ready: (http://\S+)/v1 ", lines[-1]):
            return found[1]
    text = f"the server ended: {''.join(lines)}"
    raise AssertionError(text)

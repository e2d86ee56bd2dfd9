"""Write REFERENCE.md from the commands' own parameters: `make reference`.

tests/test_reference_page.py fails when it is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dflash_gguf.__main__ import app
from dflash_gguf.chat.commands import COMMANDS
from dflash_gguf.commands._described import Described, described, examples, panels
from dflash_gguf.commands._elsewhere import FOREIGN
from dflash_gguf.config import name_variables

PAGE = Path(__file__).parent.parent / "REFERENCE.md"
_HEAD = """\
# Reference

Every command and option, made from the program itself by `make reference`; a test fails when it is out of date.

An option counts as given on the command line, else in its environment variable, else in `config.toml` (the system's folder for
settings, or where DFLASH_GGUF_CONFIG says) under the command's name, such as `ctx-size = 4096` under `[run]`, else as the
target's file suggests where that is said, else by its default. Its key in the file is its long name without dashes, the first one
where there are several. Exit codes: 0, 1 error, 2 usage, 3 model, 4 memory or device, 130 Ctrl-C, else 128 and a signal's number.
"""
_FOREIGN_HEAD = """\
## Options of other programs

`run` and `serve` take these too, from llama-cli, llama-server, mlx_lm and ollama, with dashes or underscores, where they have no
option of their own of that name. What there is not is refused with the advice.
"""


def page() -> str:
    """Return the text of the page."""
    group: Any = typer.main.get_command(app)
    name_variables(group.commands)
    lines = [_HEAD]
    for name, command in group.commands.items():
        lines += _command(name, command)
    lines += ["## Without a command", "", *_table(described(group)), ""]
    lines += ["## Commands of a chat", "", "| command | |", "| --- | --- |"]
    for each in dict.fromkeys(COMMANDS.values()):
        names = ", ".join(f"`/{name}`" for name in each.names)
        lines.append(_row(f"{names} {_cell(each.arguments)}".strip(), _cell(each.help)))
    lines += ["", _FOREIGN_HEAD, "| option | here |", "| --- | --- |"]
    for option in FOREIGN:
        lines.append(_row(", ".join(f"`{name}`" for name in option.names), _cell(option.says)))
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    paragraphs, lines = examples(command.help or "")
    yield from (f"## {name}", "")
    for paragraph in paragraphs:
        yield from (_cell(paragraph), "")
    if lines:
        yield from ("```", *lines, "```", "")
    for panel, options in panels(described(command)):
        yield from (f"### {panel or 'Arguments'}", "", *_table(options), "")


def _table(options: list[Described]) -> Iterator[str]:
    yield "| option | | default | environment |"
    yield "| --- | --- | --- | --- |"
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.names, *option.negative))
        yield _row(
            f"{names} {_cell(option.value)}".strip(),
            _cell(option.help),
            "required" if option.required else _cell(option.default),
            option.variable,
        )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    for sign in ("\\", "|", "<", "*", "["):
        text = text.replace(sign, "\\" + sign)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

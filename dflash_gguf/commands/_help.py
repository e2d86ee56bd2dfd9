"""`--help`: options in groups, in lines that fit narrow terminals and every encoding, and examples as they are typed."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..terminal import plain_terminal
from ._completion import with_shells
from ._described import Described, described, examples, panels

_WIDEST = 100
_COLUMN = 28  # where what options do begins, if there is room
_NARROW = 60  # columns; with fewer it stands below the names
_MORE = "Options are also read from the environment ({variable} for {name}) and from config.toml, under [{command}]."


class Helped(TyperCommand):
    """A command with such a help. Give it as `cls` to typer."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        formatter.write("\n".join(command_help(self, ctx)) + "\n")


class HelpedGroup(TyperGroup):
    """Commands with such a help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line, where the options of completion need no shell."""
        return super().parse_args(ctx, with_shells(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help that lists the commands."""
        formatter.write("\n".join(group_help(self, ctx)) + "\n")


def command_help(command: Any, ctx: Any) -> Iterator[str]:
    """Yield the lines of a command's help."""
    found = described(command)
    words = [each.names[0] for each in found if not each.panel]
    yield from _usage(ctx, " ".join(["[OPTIONS]", *words]))
    paragraphs, lines = examples(command.help or "")
    yield from _body(paragraphs, lines)
    for panel, options in panels(found):
        yield ""
        yield _heading(panel or "Arguments")
        for option in options:
            yield from _entry(_spelt(option), _said(option))
    optional = [each for each in found if each.variable and each.value and not each.required]
    if optional:
        first = optional[0]
        more = _MORE.format(variable=first.variable, name=f"--{first.key}", command=command.name)
        yield ""
        yield from _wrapped(more)


def group_help(group: Any, ctx: Any) -> Iterator[str]:
    """Yield the lines of the help that lists the commands."""
    yield from _usage(ctx, "COMMAND ...")
    yield from _body(*examples(group.help or ""))
    yield ""
    yield _heading("Commands")
    for name, command in group.commands.items():
        yield from _entry(name, examples(command.help or "")[0][0])
    yield ""
    yield _heading("Options")
    for option in described(group):
        yield from _entry(_spelt(option), _said(option))


def _usage(ctx: Any, rest: str) -> list[str]:
    path = str(ctx.command_path).replace("python -m dflash_gguf", "dflash-gguf")
    return [*_wrapped(f"Usage: {path} {rest}"), ""]


def _body(paragraphs: list[str], lines: list[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ""
        yield from _wrapped(paragraph)
    if lines:
        yield ""
        yield _heading("Examples" if len(lines) > 1 else "Example")
        yield from (f"  {line}" for line in lines)


def _spelt(option: Described) -> str:
    names = ", ".join((*option.names, *option.negative))
    return f"{names} {option.value}".rstrip()


def _said(option: Described) -> str:
    """What an option does, and in brackets what holds without it."""
    if option.required and option.panel:
        return f"{option.help} [required]"
    return f"{option.help} [{option.default}]" if option.default else option.help


def _entry(name: str, text: str) -> Iterator[str]:
    """Lines of two columns; text that has no room beside its name stands below."""
    width = _width()
    column = _COLUMN if width >= _NARROW else 4
    lines = textwrap.wrap(text, max(width - column, 12)) or [""]
    if len(name) + 4 <= column:
        yield f"  {name:<{column - 2}}{lines[0]}".rstrip()
        lines = lines[1:]
    else:
        yield from textwrap.wrap(
            name, max(width, 12), initial_indent="  ", subsequent_indent="    "
        )
    yield from (" " * column + line for line in lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _width(), break_on_hyphens=False)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)


def _heading(text: str) -> str:
    bold = sys.stdout.isatty() and not plain_terminal()
    return typer.style(f"{text}:", bold=True) if bold else f"{text}:"

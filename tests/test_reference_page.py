"""REFERENCE.md says what the program says of itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dflash_gguf.__main__ import app

from .regenerate_reference import PAGE, page
from .support.command import command

TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_the_page_is_what_the_program_says() -> None:
    assert page() == TEXT, "REFERENCE.md is out of date; run `make reference`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_there_with_what_it_does(name: str) -> None:
    part = TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for param in COMMANDS[name].params:
        if param.param_type_name == "argument" or getattr(param, "hidden", False):
            continue
        rows = [line for line in part.splitlines() if line.startswith("| `")]
        (row,) = [line for line in rows if f"`{param.opts[0]}`" in line.split("|")[1]]
        assert all(f"`{name}`" in row for name in (*param.opts, *param.secondary_opts))
        assert len(row.split(" | ")[1]) > 5, row


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_grouped_with_examples_and_fits(name: str) -> None:
    for columns in (80, 20):
        words = [*([name] if name else []), "-h"]
        shown = CliRunner().invoke(
            app, words, env={"COLUMNS": str(columns)}, prog_name="dflash-gguf"
        )
        assert shown.exit_code == 0
        options = re.sub(r"(?s)\nExamples?:\n.*?\n\n", "\n\n", shown.stdout)
        # a name or a path in one piece may be longer than the narrowest
        assert max(map(len, options.splitlines())) <= max(columns, 34)
        assert shown.stdout.isascii()
        if name:
            assert re.search(r"\nExamples?:\n  .*dflash-gguf " + name, shown.stdout)


def test_a_misspelt_command_or_option_names_the_nearest() -> None:
    for words, meant in (
        (["rnu"], "'run'"),
        (["run", "--tmep", "1"], "--temp"),
        (["modles"], "'models'"),
    ):
        done = command(*words)
        assert done.returncode == 2
        assert meant in done.stderr

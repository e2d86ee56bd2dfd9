"""A person's own defaults: command line before environment before file."""

from __future__ import annotations

from pathlib import Path

import pytest

from .support.command import command
from .support.random_pairs import Pair


def written(folder: Path, text: str) -> dict[str, str]:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return {"DFLASH_GGUF_CONFIG": str(file)}


def tokens(stderr: str) -> int:
    return int(stderr.partition(" tok · ")[0].rpartition("\n")[2])


def test_the_command_line_goes_before_the_environment_before_the_file(
    dense: Pair, tmp_path: Path
) -> None:
    env = written(
        tmp_path, '[run]\nmax-tokens = 3\nstop = ["x"]\nthink = false\n[bench]\nruns = 1\n'
    )
    asked = ["run", "-m", dense.target, "-p", "hi"]
    assert tokens(command(*asked, env=env).stderr) == 3
    env["DFLASH_GGUF_MAX_TOKENS"] = "4"
    assert tokens(command(*asked, env=env).stderr) == 4
    assert tokens(command(*asked, "-n", 5, env=env).stderr) == 5


def test_the_systems_folder_is_looked_in(dense: Pair, tmp_path: Path) -> None:
    (tmp_path / "dflash-gguf").mkdir()
    written(tmp_path / "dflash-gguf", "[run]\nmax_tokens = 2\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert tokens(command("run", "-m", dense.target, "-p", "hi", env=env).stderr) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[run]\ntmp = 1\n", "[run] has 'tmp'; expected perhaps temp"),
        ("[rum]\n", "[rum] is no command; expected perhaps run"),
        ("temp = 1\n", "[temp] is no command; expected one of "),
        ("[run\n", "expected a TOML file"),
        ("[run]\ntemp = [1, 2]\n", "temp of [run] is [1, 2]; expected one value"),
        ("[run]\ntemp = 'hot'\n", "'--temp'"),
    ],
)
def test_what_it_should_not_hold_is_named(tmp_path: Path, text: str, told: str) -> None:
    done = command("run", "-m", "x.gguf", "-p", "hi", env=written(tmp_path, text))
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    env = {"DFLASH_GGUF_CONFIG": str(tmp_path / "no.toml")}
    done = command("devices", env=env)
    assert done.returncode == 2
    assert "no.toml, which is not there" in done.stderr
    assert command("devices", env={"XDG_CONFIG_HOME": str(tmp_path)}).returncode == 0

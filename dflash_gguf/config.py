"""A person's own defaults: a TOML file with a table for each command, and environment variables.

Options are called as on the command line, without their dashes: `temp = 0.7` under `[run]`, or
DFLASH_GGUF_TEMP=0.7 for every command that has `--temp`. What is given on the command line goes before the
environment, that before the file, that before what a model's file says.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import UsageError

PREFIX = "DFLASH_GGUF_"
_FILE = "config.toml"


def config_file() -> Path:
    """Return where the file is looked for: DFLASH_GGUF_CONFIG, else the system's folder for settings."""
    if given := os.environ.get(f"{PREFIX}CONFIG"):
        return Path(given)
    from platformdirs import user_config_path

    return user_config_path("dflash-gguf", appauthor=False) / _FILE


def name_variables(commands: Mapping[str, Any]) -> None:
    """Let every option of the commands (of click, by name) be read from the environment too."""
    for command in commands.values():
        for param in command.params:
            if (long := _long(param)) and not param.envvar:
                param.envvar = PREFIX + long[0].upper().replace("-", "_")


def defaults(commands: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the file sets, as click's default_map: command, parameter, value.

    A file that DFLASH_GGUF_CONFIG names must be there. Raises UsageError, naming the file and the nearest name,
    for what it should not hold.
    """
    path = config_file()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if os.environ.get(f"{PREFIX}CONFIG"):
            text = f"{PREFIX}CONFIG names {path}, which is not there"
            raise UsageError(text) from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        text = f"{path}: {getattr(error, 'strerror', None) or error}; expected a TOML file"
        raise UsageError(text) from None
    return {name: _table(path, name, table, commands) for name, table in tables.items()}


def _table(path: Path, name: str, table: object, commands: Mapping[str, Any]) -> dict[str, Any]:
    if name not in commands or not isinstance(table, dict):
        text = f"{path}: [{name}] is no command; expected {_nearest(name, list(commands))}"
        raise UsageError(text)
    known = {long: param for param in commands[name].params for long in _long(param)}
    found: dict[str, Any] = {}
    for key, value in table.items():
        param = known.get(key.replace("_", "-"))
        if param is None:
            text = f"{path}: [{name}] has {key!r}; expected {_nearest(key, sorted(known))}"
            raise UsageError(text)
        several = getattr(param, "multiple", False)
        if isinstance(value, dict) or (isinstance(value, list) and not several):
            text = f"{path}: {key} of [{name}] is {value!r}; expected one value"
            raise UsageError(text)
        found[param.name] = [value] if several and not isinstance(value, list) else value
    return found


def _long(param: Any) -> list[str]:
    """Names of an option without dashes, long ones only; none for an argument."""
    return [name.removeprefix("--") for name in param.opts if name.startswith("--")]


def _nearest(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"perhaps {close[0]}" if close else "one of " + ", ".join(names)

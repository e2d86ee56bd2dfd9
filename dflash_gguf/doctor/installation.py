"""Python, packages and extras against what this package asks for, and a person's own defaults."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from .. import __version__
from ..errors import NOT_INSTALLED
from .findings import Finding, fault, note, ok

_PACKAGE = "dflash-gguf"
_LEAST = (3, 11)
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?((?:[<>=!~]=?\s*[\w.*]+,?\s*)*)\)?")
_BOUND = re.compile(r"(>=|==)\s*([\w.]+)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_FOR_DEVELOPERS = {"reference", "train"}
_OWN_VARIABLES = {"CONFIG", "CACHE", "DEBUG"}


def python() -> Iterator[Finding]:
    """Look at the interpreter."""
    version = platform.python_version()
    text = f"{platform.python_implementation()} {version}, {sys.executable}"
    if sys.version_info < _LEAST:
        wanted = ".".join(map(str, _LEAST))
        yield fault("python", text, f"Python {wanted} or newer is needed")
    else:
        yield ok("python", text, version=version, executable=sys.executable)


def packages() -> Iterator[Finding]:
    """Compare installed versions with those this package asks for."""
    asked = _requirements()
    if asked is None:
        yield fault("packages", NOT_INSTALLED, f"pip install {_PACKAGE}")
        return
    found = {}
    for name, bounds, extra in asked:
        if extra is not None:
            continue
        found[name], problem = _compare(name, bounds)
        if problem:
            yield fault("packages", problem, f'pip install "{name}{bounds}"')
    listed = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    own = metadata.version(_PACKAGE)
    if own != __version__:
        yield fault(
            "packages",
            f"the files are of {_PACKAGE} {__version__}, but {own} is installed",
            f"pip install --force-reinstall {_PACKAGE}",
        )
    yield ok("packages", f"{_PACKAGE} {__version__}; {listed}", versions=found)


def extras() -> Iterator[Finding]:
    """Say which extras can be used."""
    missing: dict[str, list[str]] = {}
    for name, bounds, extra in _requirements() or []:
        if extra is not None and extra not in _FOR_DEVELOPERS:
            lacking = missing.setdefault(extra, [])
            if _compare(name, bounds)[1]:
                lacking.append(f"{name}{bounds}")
    here = [extra for extra, lacking in missing.items() if not lacking]
    if here:
        yield ok("extras", ", ".join(here), extras=here)
    for extra, lacking in missing.items():
        if lacking:
            yield note(
                "extras",
                f"{extra} is not installed: {', '.join(lacking)}",
                f'pip install "{_PACKAGE}[{extra}]", if you want it',
            )


def config(commands: Mapping[str, Any]) -> Iterator[Finding]:
    """Read the file of defaults and the variables that set options of these commands, by name."""
    from ..config import PREFIX, config_file, defaults

    path = config_file()
    tables = defaults(commands)
    if tables:
        keys = (f"{key} of {name}" for name, table in tables.items() for key in table)
        yield ok("config", f"{path} sets {', '.join(keys) or 'nothing'}", path=str(path))
    else:
        yield ok("config", f"{path} {'is empty' if path.exists() else 'is not there'}; no defaults")
    known = {param.envvar for command in commands.values() for param in command.params}
    known |= {PREFIX + name for name in _OWN_VARIABLES}
    variables = sorted(name for name in os.environ if name.startswith(PREFIX))
    if own := [name for name in variables if name in known]:
        yield ok("config", f"the environment sets {', '.join(own)}", variables=own)
    for name in set(variables) - known:
        yield note("config", f"the variable {name} sets no option", "look for a slip in its name")


def _requirements() -> list[tuple[str, str, str | None]] | None:
    """Return name, bounds and extra of what is asked for; None if the package is not installed."""
    try:
        lines = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    found = []
    for line in lines:
        wanted, _, marker = line.partition(";")
        parts = _REQUIREMENT.match(wanted)
        extra = _EXTRA.search(marker)
        if parts is not None:
            found.append((parts[1], parts[2].replace(" ", ""), extra[1] if extra else None))
    return found


def _compare(name: str, bounds: str) -> tuple[str | None, str]:
    """Return the installed version and what is wrong with it, if anything."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None, f"{name} is not installed"
    for relation, bound in _BOUND.findall(bounds):
        good = version == bound if relation == "==" else _numbers(version) >= _numbers(bound)
        if not good:
            return version, f"{name} {version} is installed; expected {relation}{bound}"
    return version, ""


def _numbers(version: str) -> list[int]:
    """The release numbers of a version; what may stand behind them does not matter for a lower bound."""
    release = re.match(r"[0-9.]*", version)
    return [int(part) for part in (release[0] if release else "").split(".") if part]

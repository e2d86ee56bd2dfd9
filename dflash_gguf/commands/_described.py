"""What there is to say of a command's options, for `--help` and for REFERENCE.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_WORDS = {"Path": "PATH", "path": "PATH", "int": "N", "integer": "N", "float": "X"}


@dataclass(frozen=True, slots=True)
class Described:
    """An option or an argument.

    Attributes:
        names: short ones first; of an argument its word.
        negative: names that turn a switch off.
        value: the word for its value; empty if it takes none.
        help: what it does.
        default: in words; empty if there is none.
        required: whether it must be given.
        several: whether it may be given again.
        panel: the heading it stands under; empty for an argument.
        variable: its variable in the environment; empty if it has none.
        key: what it is called in config.toml; empty if it cannot stand there.
    """

    names: tuple[str, ...]
    negative: tuple[str, ...]
    value: str
    help: str
    default: str
    required: bool
    several: bool
    panel: str
    variable: str
    key: str


def described(command: Any) -> list[Described]:
    """Return a command's parameters, grouped by their headings, arguments first; hidden ones are left out."""
    found = [_described(param) for param in command.params if not getattr(param, "hidden", False)]
    order = ["", *dict.fromkeys(each.panel for each in found)]
    return sorted(found, key=lambda each: order.index(each.panel))


def examples(text: str) -> tuple[list[str], list[str]]:
    """Return a docstring's paragraphs, a line each, and the indented lines below `Examples:`."""
    before, _, after = text.partition("Examples:\n")
    paragraphs = [" ".join(part.split()) for part in before.split("\n\n") if part.strip()]
    return paragraphs, [line.strip() for line in after.splitlines() if line.strip()]


def _described(param: Any) -> Described:
    option = param.param_type_name == "option"
    names = tuple(sorted(param.opts, key=_is_long)) if option else (_argument(param),)
    long = [name.removeprefix("--") for name in param.opts if name.startswith("--")]
    return Described(
        names=names,
        negative=tuple(param.secondary_opts),
        value=_value(param) if option else "",
        help=" ".join((getattr(param, "help", None) or "").split()),
        default=_default(param),
        required=bool(param.required),
        several=bool(getattr(param, "multiple", False)),
        panel=(getattr(param, "rich_help_panel", None) or "Options") if option else "",
        variable=(param.envvar or "") if option else "",
        key=long[0] if option and long else "",
    )


def _argument(param: Any) -> str:
    return param.metavar or str(param.name).upper()


def _is_long(name: str) -> bool:
    return name.startswith("--")


def _value(param: Any) -> str:
    if getattr(param, "is_flag", False) or getattr(param, "count", False):
        return ""
    return param.metavar or _WORDS.get(_kind(param), "TEXT")


def _kind(param: Any) -> str:
    """The name of a value's type, which versions of typer keep in different places."""
    descriptor = getattr(param, "type_descriptor", None)
    if descriptor is None:
        return str(param.type.name)
    name = getattr(descriptor.annotation, "__name__", str(descriptor.annotation))
    return re.sub(r"^list\[(?:.*\.)?(\w+)\]$", r"\1", name)


def _default(param: Any) -> str:
    shown, value = getattr(param, "show_default", None), param.default
    if isinstance(shown, str):
        return shown
    if not shown or value is None or value is False or getattr(param, "count", False):
        return ""
    return "on" if value is True else str(value)


def panels(found: Sequence[Described]) -> Iterator[tuple[str, list[Described]]]:
    """Yield headings with what stands under them; arguments have an empty one."""
    for panel in dict.fromkeys(each.panel for each in found):
        yield panel, [each for each in found if each.panel == panel]

"""What a stub declares and what a pybind11 module holds, in the same words, so that they can be compared.

Both become a dictionary: "name(parameter, parameter=default) -> type" for functions, "name: type" for attributes
(marked read-only where they are), "name = value" for members of enumerations; those of a class behind its name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_INHERITED = {*dir(object), "__module__"} - {"__init__"}
_SPELLINGS = [
    (r"dflash_gguf\._core\.|collections\.abc\.|typing_extensions\.", ""),
    (r"typing\.SupportsInt \| typing\.SupportsIndex", "int"),
    (r"typing\.SupportsFloat \| typing\.SupportsIndex", "float"),
    (r"typing\.Annotated\[numpy\.typing\.ArrayLike, (numpy\.\w+)\]", r"NDArray[\1]"),
    (r"numpy\.typing\.NDArray", "NDArray"),
    (r"\bnumpy\.", "np."),
    (r"\bdflash::", ""),
    (r"\bSet\[", "set["),
    (r"<[^<>]*>", "..."),  # a default that has no name
]


def declared(source: str) -> dict[str, str]:
    """Read a stub."""
    return dict(_declared(ast.parse(source).body, ""))


def _declared(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for item in body:
        match item:
            case ast.FunctionDef():
                yield prefix + item.name, _signature(item)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                text = ast.unparse(kind)
                final = re.fullmatch(r"Final\[(.*)\]", text)
                yield prefix + name, f"{final[1]}, read-only" if final else text
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield prefix + name, f"= {ast.unparse(value)}"
            case ast.ClassDef():
                yield prefix + item.name, f"class({', '.join(map(ast.unparse, item.bases))})"
                yield from _declared(item.body, f"{prefix}{item.name}.")
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                pass
            case _ if not isinstance(item, ast.Expr):
                text = f"what is {ast.unparse(item)!r} in a stub?"
                raise ValueError(text)


def held(module: ModuleType) -> dict[str, str]:
    """Look at a module."""
    found: dict[str, str] = {}
    for name, value in vars(module).items():
        if name.startswith("__"):
            continue
        if isinstance(value, type):
            bases = [
                base.__name__ for base in value.__bases__ if base.__name__ != "pybind11_object"
            ]
            found[name] = f"class({', '.join(bases)})"
            found |= dict(_members(value))
        else:
            found[name] = _documented(value)
    return found


def _members(kind: type) -> Iterator[tuple[str, str]]:
    if members := getattr(kind, "__members__", None):  # an enumeration
        yield from (
            (f"{kind.__name__}.{name}", f"= {each.value!r}") for name, each in members.items()
        )
        return
    for name, value in vars(kind).items():
        if name in _INHERITED or name.startswith("_pybind11"):
            continue
        if isinstance(value, property):
            text = _spelt(str(value.fget.__doc__)).partition(" -> ")[2].split("\n")[0]
            yield f"{kind.__name__}.{name}", text + (", read-only" if value.fset is None else "")
            continue
        function = getattr(value, "__func__", value)  # of a static method
        if not str(function.__doc__).startswith("Initialize self"):  # object's: it cannot be made
            yield f"{kind.__name__}.{name}", _documented(function)


def _documented(function: Any) -> str:
    """Read the signature that pybind11 writes into a docstring."""
    line = _spelt(str(function.__doc__)).split("\n")[0]
    (parsed,) = ast.parse(f"def {line}: ...").body
    assert isinstance(parsed, ast.FunctionDef)
    return _signature(parsed)


def _spelt(text: str) -> str:
    for pattern, spelling in _SPELLINGS:
        text = re.sub(pattern, spelling, text)
    return text


def _signature(function: ast.FunctionDef) -> str:
    """Write it with names, kinds and defaults, without the parameters' types."""
    arguments = function.args
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        each.annotation = None
    if arguments.args and arguments.args[0].arg == "self":
        del arguments.args[0]
    arguments.defaults = [_default(value) for value in arguments.defaults]
    arguments.kw_defaults = [value and _default(value) for value in arguments.kw_defaults]
    result = ast.unparse(function.returns) if function.returns else "nothing"
    return f"({ast.unparse(arguments)}) -> {result}"


def _default(value: ast.expr) -> ast.expr:
    """Return a plain value as it is, any other as `...`, which is how stubs write it."""
    return value if isinstance(value, ast.Constant | ast.UnaryOp) else ast.Constant(...)

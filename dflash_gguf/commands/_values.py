"""What the values of `run`'s options mean. Each raises UsageError, naming the option, for what means nothing."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import UsageError


def check(*, max_tokens: int, context: int) -> None:
    """Refuse numbers that typer takes and the engine does not."""
    if max_tokens == 0 or max_tokens < -1:
        text = f"-n {max_tokens}: expected a number of tokens, or -1 for no limit"
        raise UsageError(text)
    if context < 0:
        text = f"-c {context}: expected a number of tokens, or 0 for the default"
        raise UsageError(text)


def width(text: str) -> int | None:
    """Return the rows of a block; None for what is fastest."""
    if text == "auto":
        return None
    if not (rows := _whole(text)):
        problem = f"--block {text}: expected 1 (no drafts) or more, or auto"
        raise UsageError(problem)
    return rows


def layers(option: str, text: str) -> int | None:
    """Return layers as Options takes them, from llama.cpp's words."""
    if text in {"auto", "-1"}:
        return None
    if text == "all":
        return -1
    if (number := _whole(text)) is None:
        problem = f"{option} {text}: expected a number of layers, 'all' or 'auto'"
        raise UsageError(problem)
    return number


def names(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def biases(texts: list[str]) -> dict[int, float]:
    """Return biases from llama.cpp's spelling: TOKEN_ID, a sign, and the bias."""
    found = {}
    for text in texts:
        parts = re.fullmatch(
            r"([0-9]{1,10})([+-](?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+|inf))", text.strip()
        )
        if parts is None:
            problem = (
                f"--logit-bias {text}: expected a token id, + or -, and a number, such as 15043-1"
            )
            raise UsageError(problem)
        found[int(parts[1])] = float(parts[2])
    return found


def grammar(text: str | None, path: Path | None, json_schema: str | None) -> str | None:
    """Return the GBNF of an answer, from its option or a file, if no schema is given beside it."""
    given = {"--grammar": text, "--grammar-file": path, "--json-schema": json_schema}
    options = [name for name, value in given.items() if value is not None]
    if len(options) > 1:
        problem = f"{' and '.join(options)} are given; expected one of them"
        raise UsageError(problem)
    if path is None:
        return text
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"--grammar-file {path}: {error}"
        raise UsageError(problem) from None


def _whole(text: str) -> int | None:
    # more digits than any of these numbers has would be an error of int's own
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None

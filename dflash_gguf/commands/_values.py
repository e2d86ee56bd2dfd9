"""What the values of `run`'s options mean. Each raises UsageError, naming the option, for what means nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..errors import UsageError

_SWITCH: dict[bool | None, set[str]] = {
    True: {"on", "enabled", "true", "1"},
    False: {"off", "disabled", "false", "0"},
    None: {"auto", "-1"},
}
_THINKING = "enable_thinking"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


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


def text_or_file(given: str | None, **texts: str | Path | None) -> str | None:
    """Return the text of the option that is `given`, by its parameter's name, if it is one of these."""
    value = texts.get(given or "")
    if given is None or value is None:
        return None
    return text_of("--" + given.replace("_", "-"), value) if isinstance(value, Path) else value


def text_of(option: str, path: Path) -> str:
    """Return the text of a file that an option names, without the line end behind it."""
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{option} {path}: {getattr(error, 'strerror', None) or error}; expected a text file in UTF-8"
        raise UsageError(problem) from None


def switch(option: str, text: str) -> bool | None:
    """Return on, off or auto (None), in any of llama.cpp's words for them."""
    for value, known in _SWITCH.items():
        if text.lower() in known:
            return value
    problem = f"{option} {text}: expected on, off or auto"
    raise UsageError(problem)


def template(texts: list[str], *, thinking: bool | None) -> dict[str, Any]:
    """Return the chat template's arguments: of JSON objects, the later first, and whether to think."""
    made: dict[str, Any] = {}
    for text in texts:
        try:
            given = json.loads(text)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            problem = f"--chat-template-kwargs {text}: expected a JSON object, such as '{{\"key\": true}}'"
            raise UsageError(problem)
        made |= given
    if thinking is None:
        return made
    if made.setdefault(_THINKING, thinking) is not thinking:
        words = json.dumps(made[_THINKING])
        problem = (
            f"--chat-template-kwargs sets {_THINKING} to {words}, and thinking is turned "
            f"{'on' if thinking else 'off'} (--think, --reasoning); expected one of them"
        )
        raise UsageError(problem)
    return made


def unescaped(text: str) -> str:
    r"""Return a text with \n, \r, \t, \xHH, \\ and escaped quotes read, as llama.cpp's -e does; others stay."""
    return re.sub(
        r"\\(x[0-9a-fA-F]{2}|[nrt'\"\\])",
        lambda found: _ESCAPES.get(found[1]) or chr(int(found[1][1:], 16)),
        text,
    )


def kept_memory(mebibytes: int | None, *, one_answer: bool) -> dict[str, Any]:
    """Return the field of Options for the memory of states that later prompts may begin with; none for its default.

    One answer has no later prompt, and keeps nothing unless asked.
    """
    if mebibytes is None:
        return {"prefix_memory": 0} if one_answer else {}
    if mebibytes < -1:
        problem = (
            f"--cache-ram {mebibytes}: expected a number of MiB, 0 for none, or -1 for no limit"
        )
        raise UsageError(problem)
    most = 2**62
    return {"prefix_memory": most if mebibytes == -1 else min(mebibytes * 2**20, most)}


def _whole(text: str) -> int | None:
    # more digits than any of these numbers has would be an error of int's own
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None

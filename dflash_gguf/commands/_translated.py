"""A command whose options may also be spelt as other programs spell them (`_elsewhere.py`)."""

from __future__ import annotations

from typing import Any

from ._elsewhere import BY_NAME, Foreign
from ._help import Helped

# options of ours that may stand alone, as in earlier versions of llama.cpp, and then mean this
_ALONE = {"--flash-attn": "on", "-fa": "on", "--color": "on", "-co": "on"}


class Translated(Helped):
    """A command that takes those too. Give it as `cls` to typer."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line, in our spelling."""
        # while a shell asks for completions nothing is refused
        words = args if ctx.resilient_parsing else self.translated(args)
        return super().parse_args(ctx, words)

    def translated(self, args: list[str]) -> list[str]:
        """Return the words as this command spells them. Raises UsageError for options that we have not."""
        own = {
            name: param
            for param in self.params
            for name in (*param.opts, *param.secondary_opts)
            if name.startswith("-")
        }
        rest = list(reversed(args))
        made: list[str] = []
        while rest:
            word = rest.pop()
            if word == "--":  # what follows are words of the prompt
                return [*made, word, *reversed(rest)]
            name, equals, value = word.partition("=")
            name = _dashed(name, own)
            if name in own:
                made.append(name + equals + value)
                if not equals and _takes_value(own[name]):
                    made += _value(name, rest)
            elif name in BY_NAME:
                made += _foreign(name, BY_NAME[name], rest, value if equals else None)
            else:
                made.append(word)
        return made


def _dashed(name: str, own: dict[str, Any]) -> str:
    """`--top_k` is `--top-k`, as in llama.cpp."""
    plain = name.replace("_", "-")
    return plain if name.startswith("--") and (plain in own or plain in BY_NAME) else name


def _takes_value(param: Any) -> bool:
    return not getattr(param, "is_flag", False) and not getattr(param, "count", False)


def _value(name: str, rest: list[str]) -> list[str]:
    if name in _ALONE and (not rest or (rest[-1].startswith("-") and rest[-1] != "-1")):
        return [_ALONE[name]]
    return [rest.pop()] if rest else []


def _foreign(name: str, option: Foreign, rest: list[str], value: str | None) -> list[str]:
    if value is None:
        value = rest.pop() if option.takes and rest else ""
    return option.becomes(name, value)

"""What a request asks for besides its prompt: the one list of settings that every way to ask takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, TypedDict

from .errors import UsageError
from .json_schema import schema_to_gbnf
from .sampling import Sampling
from .stopping import Stop, stop_strings

AUTO = "auto"  # blocks as wide as it pays


class Keywords(TypedDict, total=False):
    """The fields of Params, for those who give them as keywords."""

    max_tokens: int | None
    block: int | str | None
    sampling: Sampling | None
    logprobs: int | None
    grammar: str | None
    json_schema: Mapping[str, Any] | str | bool | None
    stop: Stop
    ignore_end: bool
    raw: bool
    template: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Everything of a request but its prompt. One may serve many requests, of several threads too.

    `raw` and `template` are among them, though they say how a prompt is read: all turns of a conversation
    share them, and so a request is a prompt and a Params.

    Attributes:
        max_tokens: tokens to write at most, an end token included; None: up to the context's edge.
        block: rows of a verify, 1 (no drafts) to the engine's widest, or "auto": what is fastest; None:
            `Engine.block`.
        sampling: how tokens are chosen; None: greedy. One without a seed draws it when it is made, not for
            each request.
        logprobs: give each token's log-probability and the alternatives, so many, in `Sequence.logprobs`.
        grammar: GBNF that the text must keep to; end tokens come only where it is complete.
        json_schema: JSON schema, as a dictionary or as text, that the text must be a value of; True: any.
        stop: a string, or several, that end the answer, which then does not contain it; afterwards a tuple.
            The tokens up to the one that completes it are written and counted.
        ignore_end: go on after end tokens (for measurements).
        raw: take text as it is, special tokens included, without the chat template.
        template: arguments for the chat template, such as {"enable_thinking": False}.

    Raises UsageError, naming the setting and what was expected, for what no engine could do: values of
    another kind or out of range, a schema that is broken or that a grammar cannot keep to, a grammar and a
    schema at once. What depends on the pair (the widest block, the tokens of a grammar) is checked when a
    request begins.
    """

    max_tokens: int | None = None
    block: int | str | None = None
    sampling: Sampling | None = None
    logprobs: int | None = None
    grammar: str | None = None
    json_schema: Mapping[str, Any] | str | bool | None = None
    stop: Stop = None
    ignore_end: bool = False
    raw: bool = False
    template: Mapping[str, Any] | None = None
    # the schema as GBNF, made once for all requests
    _schema: str | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        """Check every setting; take the stop strings out of whatever held them."""
        _expect_whole("max_tokens", self.max_tokens, 1)
        _expect_whole("logprobs", self.logprobs, 0)
        if self.block != AUTO:
            _expect_whole("block", self.block, 1, or_else='"auto" or ')
        if not isinstance(self.sampling, Sampling | None):
            text = f"sampling is {self.sampling!r}; expected a Sampling"
            raise UsageError(text)
        for name in ("ignore_end", "raw"):
            if not isinstance(value := getattr(self, name), bool):
                text = f"{name} is {value!r}; expected True or False"
                raise UsageError(text)
        if not isinstance(self.template, Mapping | None):
            text = f"template is {self.template!r}; expected a mapping of the template's arguments"
            raise UsageError(text)
        object.__setattr__(self, "stop", tuple(stop_strings(self.stop)))
        self._check_form()

    def _check_form(self) -> None:
        if not isinstance(self.grammar, str | None):
            text = f"grammar is {type(self.grammar).__name__}; expected GBNF text"
            raise UsageError(text)
        if self.json_schema is None:
            return
        if self.grammar is not None:
            text = "both a grammar and a JSON schema are given; expected one of them"
            raise UsageError(text)
        object.__setattr__(self, "_schema", schema_to_gbnf(self.json_schema))

    @property
    def gbnf(self) -> tuple[str, str] | None:
        """The grammar that the text must keep to, its own or the schema's, and what to call it in errors."""
        if self._schema is not None:
            return self._schema, "the JSON schema's grammar"
        return None if self.grammar is None else (self.grammar, "the grammar")


def combined(params: Params | None, keywords: Keywords) -> Params:
    """Return what is asked for: `params`, or the defaults, with the fields that are given as keywords.

    Raises UsageError as Params does, TypeError for a keyword that is no field.
    """
    if params is not None and not isinstance(params, Params):
        text = f"params is {type(params).__name__}; expected a Params, or its fields as keywords"
        raise UsageError(text)
    return replace(params or Params(), **keywords) if keywords or params is None else params


def _expect_whole(name: str, value: object, least: int, or_else: str = "") -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        text = f"{name} is {value!r}; expected {or_else}a whole number of at least {least}"
        raise UsageError(text)

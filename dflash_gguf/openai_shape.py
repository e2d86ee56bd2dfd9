"""OpenAI-shaped dictionaries, for people who come from llama-cpp-python's `Llama`.

`Engine.create_chat_completion` and `Engine.create_completion` take that class's arguments with its defaults
(temperature 0.2 and 0.8, top_k 40, top_p 0.95, min_p 0.05; `Engine.generate` is greedy instead) and return what
it returns. An AsyncEngine's are awaited and do the same (openai_async.py). What differs:

- A seed gives one text here, with a drafter or without, but not llama-cpp-python's text; without a seed each
  call draws one.
- The penalties see the prompt's tokens too, as in llama.cpp's own programs; llama-cpp-python's do not.
- `usage` counts an end token, as llama-server does.
- It also has `prompt_tokens_details.cached_tokens`, the answer a `speculative` section: `steps` (verifies),
  `drafted`, `accepted`, `accept_length`, `acceptance_rate` (both null if nothing was drafted),
  `accepted_per_position` and `draft_failure` (why the drafter gave up; null).
- Streams give them too, in a last piece without choices, with `stream_options={"include_usage": True}`.
- `response_format` has OpenAI's form, `{"type": "json_schema", "json_schema": {"schema": ...}}`, or llama-cpp-python's,
  `{"type": "json_object", "schema": ...}`, where the schema may be left out.
- What a model thinks before it answers stands in `reasoning_content`, of messages and of deltas; `reasoning_format` as
  llama-server's (reply.py). A `response_format` binds what follows the thinking; a `grammar` binds all.
- `tools` are for targets whose template writes calls as Qwen's do (tool_formats.py). What cannot be read as a call of one
  of them stays text. A call comes whole, in one piece of a stream.
- `block` and `template` are those of Params. Log-probabilities come with the bytes of each token.
- What the engine does not do (mirostat, more than one choice, ...) is refused by name.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from .errors import UsageError
from .openai_choices import ChatShape, Shape, Shaped, TextShape
from .params import Keywords, Params, combined
from .reply import Wishes
from .sampling import Sampling
from .stopping import Stop

if TYPE_CHECKING:
    from .engine import Engine
    from .prompt import Prompt
    from .template import Message


class Settings(TypedDict, total=False):
    """What both functions take besides the prompt and `stream`."""

    max_tokens: int | None  # None or less than 1: up to the context's edge
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    stop: Stop
    seed: int | None
    presence_penalty: float
    frequency_penalty: float
    repeat_penalty: float
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    logprobs: bool | int | None  # of a chat whether, of a completion how many alternatives
    top_logprobs: int | None  # of a chat
    model: str | None  # a name to return
    stream_options: Mapping[str, bool] | None
    response_format: Mapping[str, Any] | None
    grammar: Any  # GBNF, as text or as llama-cpp-python's LlamaGrammar
    block: int | str | None
    template: Mapping[str, Any] | None  # of a chat, as the rest
    tools: abc.Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    reasoning_format: str | None


_CHAT = ("template", "tools", "tool_choice", "parallel_tool_calls", "reasoning_format")

# of llama-cpp-python and OpenAI: accepted where they say what happens anyway
_ONLY: dict[str, tuple[object, ...]] = {
    "n": (None, 1),
    "functions": (None, []),
    "function_call": (None, "none"),
    "logits_processor": (None, []),
    "stopping_criteria": (None, []),
    "suffix": (None,),
    "echo": (None, False),
    "tfs_z": (None, 1),
    "mirostat_mode": (None, 0),
    "best_of": (None, 1),
}
_SAME = (  # in Sampling
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
)
_MEANINGLESS = {"mirostat_tau", "mirostat_eta", "user"}  # without mirostat_mode, or always


@overload
def create_chat_completion(
    engine: Engine,
    messages: abc.Sequence[Message],
    *,
    stream: Literal[False] = False,
    **settings: Unpack[Settings],
) -> Shaped: ...
@overload
def create_chat_completion(
    engine: Engine,
    messages: abc.Sequence[Message],
    *,
    stream: Literal[True],
    **settings: Unpack[Settings],
) -> Iterator[Shaped]: ...
def create_chat_completion(
    engine: Engine,
    messages: abc.Sequence[Message],
    *,
    stream: bool = False,
    **settings: Any,
) -> Shaped | Iterator[Shaped]:
    """Answer a conversation in the shape of OpenAI's chat completions.

    Args:
        engine: of which this is a method.
        messages: mappings with role and content.
        stream: return an iterator of `chat.completion.chunk` instead of one `chat.completion`. Leaving it early
            cancels the answer.
        settings: see `Settings` and this module's docstring.

    Raises UsageError for values out of range and for what this engine does not do, TypeError for unknown
    names, ResourceError if the conversation does not fit the context.
    """
    return Call.chat(settings).asked(engine, messages).answered(engine, stream=stream)


@overload
def create_completion(
    engine: Engine, prompt: Prompt, *, stream: Literal[False] = False, **settings: Unpack[Settings]
) -> Shaped: ...
@overload
def create_completion(
    engine: Engine, prompt: Prompt, *, stream: Literal[True], **settings: Unpack[Settings]
) -> Iterator[Shaped]: ...
def create_completion(
    engine: Engine, prompt: Prompt, *, stream: bool = False, **settings: Any
) -> Shaped | Iterator[Shaped]:
    """Continue a text, taken as it is, in the shape of OpenAI's (legacy) completions.

    As `create_chat_completion`; 16 tokens unless `max_tokens` says otherwise.
    """
    return Call.text(settings).asked(engine, prompt).answered(engine, stream=stream)


@dataclass(frozen=True, slots=True)
class Call:
    """What a call asks for.

    Attributes:
        params: of the request.
        model: a name to return; None: the target's.
        include_usage: whether a stream ends with figures.
        wishes: of a chat's answer; None for a completion.

    Made by `chat` and `text`, which raise UsageError for values out of range and for what this engine does
    not do, TypeError for unknown names.
    """

    params: Params
    model: str | None
    include_usage: bool
    wishes: Wishes | None = None

    @classmethod
    def chat(cls, settings: Mapping[str, Any]) -> Call:
        """Of `create_chat_completion`."""
        given = _Given("create_chat_completion", settings, {"temperature": 0.2, "max_tokens": None})
        alternatives = (given["top_logprobs"] or 0) if given["logprobs"] else None
        wishes = Wishes.of(**{name: given[name] for name in _CHAT if name != "template"})
        return cls._of(
            given, given.params(logprobs=alternatives, template=given["template"]), wishes
        )

    @classmethod
    def text(cls, settings: Mapping[str, Any]) -> Call:
        """Of `create_completion`."""
        given = _Given("create_completion", settings, {"temperature": 0.8, "max_tokens": 16})
        return cls._of(given, given.params(logprobs=given["logprobs"], raw=True))

    @classmethod
    def _of(cls, given: _Given, params: Params, wishes: Wishes | None = None) -> Call:
        options = given["stream_options"] or {}
        if not isinstance(options, Mapping):
            text = f"stream_options is {options!r}; expected a mapping such as {{'include_usage': True}}"
            raise UsageError(text)
        usage = options.get("include_usage")
        return cls(params, given["model"], bool(usage), wishes)

    def asked(self, engine: Engine, prompt: Prompt) -> Asked:
        """Return it for an engine, in its thread; errors as of `Wishes.ask`."""
        if self.wishes is None:
            shape: Shape = TextShape(engine, self.model, prompt)
            return Asked(prompt, self.params, shape, self.include_usage)
        messages: Any = prompt
        asked = self.wishes.ask(engine, messages, self.params)
        shape = ChatShape(engine, self.model, asked.reply())
        return Asked(asked.prompt, asked.params, shape, self.include_usage)


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as an engine is asked it, and the shape of its answer."""

    prompt: Prompt
    params: Params
    shape: Shape
    include_usage: bool

    def answered(self, engine: Engine, *, stream: bool) -> Shaped | Iterator[Shaped]:
        """Have it answered."""
        if stream:
            return self._streamed(engine)
        return self.shape.whole(engine.generate(self.prompt, self.params))

    def _streamed(self, engine: Engine) -> Iterator[Shaped]:
        answer = engine.start(self.prompt, self.params)
        with closing(engine.follow(answer)) as chunks:
            for chunk in chunks:
                yield from self.shape.pieces(chunk)
        if self.include_usage:
            yield self.shape.usage(answer)


class _Given:
    """The settings of a call, checked; subscripted for one of them."""

    def __init__(self, function: str, given: Mapping[str, Any], defaults: Shaped) -> None:
        known = Settings.__annotations__
        for name, value in given.items():
            if name in _ONLY:
                if value not in _ONLY[name]:
                    text = f"{name} is {value!r}, which this engine does not do; leave it out"
                    raise UsageError(text)
            elif name not in known and name not in _MEANINGLESS:
                text = f"{function}() got an unexpected keyword argument '{name}'"
                raise TypeError(text)
        usual = {"top_p": 0.95, "top_k": 40, "min_p": 0.05, "typical_p": 1.0}
        # None is the default in OpenAI's API
        chosen = {name: value for name, value in given.items() if value is not None}
        self._values = dict.fromkeys(known) | usual | defaults | chosen

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def params(self, **more: Unpack[Keywords]) -> Params:
        """Return them as a request's."""
        limit = self["max_tokens"]
        unlimited = isinstance(limit, int) and limit < 1
        shared = Params(
            max_tokens=None if unlimited else limit,
            stop=self["stop"],
            block=self["block"],
            grammar=getattr(self["grammar"], "_grammar", self["grammar"]),
            json_schema=_schema(self["response_format"]),
            sampling=self._sampling(),
        )
        return combined(shared, more)

    def _sampling(self) -> Sampling:
        settings = {name: self[name] for name in _SAME if self[name] is not None}
        biases = (self["logit_bias"] or {}).items()
        settings["logit_bias"] = {_token(token): value for token, value in biases}
        return Sampling(typical=self["typical_p"], **settings)


def _schema(form: object) -> Any:
    """Return the schema that `response_format` asks for; None for text, True for any JSON."""
    kind = form.get("type") if isinstance(form, Mapping) else None
    if form is None or kind == "text":
        return None
    if isinstance(form, Mapping) and kind == "json_object":
        return form.get("schema", True)
    named = form.get("json_schema") if isinstance(form, Mapping) and kind == "json_schema" else None
    if isinstance(named, Mapping) and "schema" in named:
        return named["schema"]
    text = (
        f"response_format is {form!r}; expected a type of text, json_object, or json_schema with "
        '{"schema": ...} under "json_schema"'
    )
    raise UsageError(text)


def _token(key: int | str) -> int | str:
    # JSON has no other keys than strings; what is no number is refused by Sampling
    return int(key) if isinstance(key, str) and key.isdecimal() else key

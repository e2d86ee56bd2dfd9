"""What a request asks of the engine: from schema.py's models to prompts and settings. Nothing is done here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..openai_shape import Call
from ..params import Params
from ..prompt import Prompt
from ..sampling import Sampling
from .errors import ServeError
from .schema import ChatRequest, Message, Settings, TextRequest

_SAMPLED = (  # called the same in Call's settings
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
)
_PASSED = ("model", "stop", "grammar", "block")


# of requests that leave a setting out, where neither the model's file nor the command line says it: llama-server's
USUAL: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}


@dataclass(frozen=True, slots=True)
class Rules:
    """What the server adds to requests.

    Attributes:
        sampling: of requests that leave a setting out, by the names of the API.
        max_output: most tokens of an answer; None: the context's edge.
        parallel: answers at the same time, and so most choices of a request.
        model: the id it goes by. strict: whether a request that names another is refused.
        template: arguments of the chat template of requests that do not give them.
    """

    sampling: Mapping[str, Any] = field(default_factory=dict)
    max_output: int | None = None
    parallel: int = 1
    model: str = ""
    strict: bool = False
    template: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that is wanted; `call` takes the engine's thread from the prompt to the shape of its answer."""

    prompt: Prompt
    call: Call


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, understood.

    Attributes:
        choices: the answers, of each prompt `each` in a row.
        stream, include_usage, meta_info, timings_per_token: what else was asked for.
    """

    choices: tuple[Choice, ...]
    each: int
    stream: bool
    include_usage: bool
    meta_info: bool
    timings_per_token: bool


def chat(body: ChatRequest, rules: Rules) -> Asked:
    """Return what a chat request asks for.

    Raises UsageError, or ServeError where a field is to be named, for what cannot be done.
    """
    if body.top_logprobs is not None and not body.logprobs:
        text = "top_logprobs is given without logprobs; expected logprobs to be true"
        raise ServeError(400, text, param="top_logprobs")
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    arguments = template_arguments(body.chat_template_kwargs, body.reasoning_effort, rules)
    settings = _settings(body, limit, rules) | {
        "logprobs": body.logprobs or None,
        "top_logprobs": body.top_logprobs,
        "template": arguments,
    }
    settings |= {
        name: value
        for name in ("tools", "tool_choice", "parallel_tool_calls", "reasoning_format")
        if (value := getattr(body, name)) is not None
    }
    call = Call.chat(settings)
    return _asked(body, call, [given(body.messages)], rules)


def text(body: TextRequest, rules: Rules) -> Asked:
    """Return what a request to continue a text, or several, asks for. Raises as `chat` does."""
    for name, usual in (("echo", False), ("suffix", None), ("best_of", body.n or 1)):
        if getattr(body, name) not in {None, usual, ""}:
            problem = f"{name} is {getattr(body, name)!r}, which this server does not do"
            raise ServeError(400, problem, code="unsupported", param=name)
    settings = _settings(body, 16 if body.max_tokens is None else body.max_tokens, rules)
    call = Call.text(settings | {"logprobs": body.logprobs})
    prompt: Any = body.prompt
    several = isinstance(prompt, list) and not isinstance(prompt[0], int)
    return _asked(body, call, prompt if several else [prompt], rules)


def given(messages: list[Message]) -> list[dict[str, Any]]:
    """Return messages as they were given, null left out."""
    return [message.model_dump(exclude_none=True) for message in messages]


def template_arguments(
    named: Mapping[str, Any] | None, effort: str | None, rules: Rules
) -> dict[str, Any]:
    """Return the arguments of the chat template."""
    asked: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    if effort == "none":
        asked = {"enable_thinking": False}
    return {**rules.template, **asked, **(named or {})}


def _settings(body: Settings, limit: int | None, rules: Rules) -> dict[str, Any]:
    if limit == 0:
        problem = "max_tokens is 0; expected at least 1, or -1 for no limit of its own"
        raise ServeError(400, problem, code="invalid_value", param="max_tokens")
    if rules.strict and body.model not in {None, rules.model}:
        problem = f"there is no model {body.model!r}; expected {rules.model!r}"
        raise ServeError(404, problem, code="model_not_found", param="model")
    wanted = [number for number in (limit, rules.max_output) if number is not None and number > 0]
    settings = {name: value for name, value in rules.sampling.items() if name in _SAMPLED}
    settings |= {
        name: value for name in (*_SAMPLED, *_PASSED) if (value := getattr(body, name)) is not None
    }
    if body.repetition_penalty is not None and body.repeat_penalty is None:  # vLLM's name
        settings["repeat_penalty"] = body.repetition_penalty
    settings["top_k"] = max(settings.get("top_k", 0), 0)  # -1 is SGLang's for all
    settings["seed"] = None if body.seed == -1 else body.seed
    settings["max_tokens"] = min(wanted, default=-1)  # none of its own
    settings["logit_bias"] = _biases(body)
    settings["response_format"] = body.response_format
    if body.json_schema is not None:
        settings["response_format"] = {"type": "json_object", "schema": body.json_schema}
    settings["model"] = rules.model
    return settings


def _biases(body: Settings) -> dict[Any, float] | None:
    if isinstance(body.logit_bias, list):
        return {
            token: -math.inf if value is False else float(value) for token, value in body.logit_bias
        }
    return body.logit_bias


def _asked(body: Settings, call: Call, prompts: list[Any], rules: Rules) -> Asked:
    each = body.n or 1
    if len(prompts) * each > rules.parallel:
        problem = (
            f"{len(prompts) * each} answers are asked for at once; this server gives up to "
            f"{rules.parallel} (--parallel)"
        )
        raise ServeError(400, problem, code="invalid_value", param="n")
    options = body.stream_options
    return Asked(
        choices=tuple(
            Choice(prompt, replace(call, params=_params(body, call.params, index, rules)))
            for prompt in prompts
            for index in range(each)
        ),
        each=each,
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        meta_info=bool(body.return_meta_info),
        timings_per_token=bool(body.timings_per_token),
    )


def _params(body: Settings, params: Params, index: int, rules: Rules) -> Params:
    """Return a choice's own: other choices of a prompt are drawn with other seeds."""
    sampling = params.sampling or Sampling()
    changes: dict[str, Any] = {}
    if index:
        given = sampling.seed if body.seed not in {None, -1} else None
        changes["seed"] = None if given is None else (given + index) % 2**64
    recent = (
        rules.sampling.get("repeat_last_n") if body.repeat_last_n is None else body.repeat_last_n
    )
    if recent is not None:
        changes["repeat_last_n"] = recent
    if body.draft_sampling is not None:
        changes["draft_sampling"] = body.draft_sampling
    return replace(
        params,
        sampling=replace(sampling, **changes),
        ignore_end=bool(body.ignore_eos),
    )

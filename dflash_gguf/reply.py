"""What a chat asks of an answer besides its text, and the answer taken apart into what OpenAI's shapes hold.

`Wishes` are checked once, without an engine; `Wishes.ask` reads the prompt and makes the grammar, where one is
needed, in the engine's thread; `Asked.reply` gives every answer a `Reply`, which takes its text apart while it comes.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from .errors import UsageError
from .openai_messages import for_template
from .params import Params
from .reply_grammar import ReplyGrammar
from .thinking import CLOSE, OPEN, ThinkingSplitter, opened_thinking
from .tool_calls import ToolCallSplitter
from .tool_formats import OPEN as CALL
from .tool_formats import Call, Format, Tagged, format_of
from .tools import Tool, declared_tools

if TYPE_CHECKING:
    from .engine import Engine
    from .prompt import ReadPrompt
    from .template import Message

_TAIL = 12  # tokens that hold an opened <think>, or a closed one, and the white space behind it
_FORMATS = {None: True, "auto": True, "deepseek": True, "none": False}
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is asked of a chat's answer.

    Attributes:
        tools: that may be called; none also where OpenAI's tool_choice is "none".
        named: the one that must be; None: any.
        required: whether one must be.
        parallel: whether several may be; of more than that only the first is passed on.
        reasoning: give what was thought apart.
    """

    tools: tuple[Tool, ...] = ()
    named: str | None = None
    required: bool = False
    parallel: bool = True
    reasoning: bool = True

    @classmethod
    def of(
        cls,
        *,
        tools: object = None,
        tool_choice: object = None,
        parallel_tool_calls: object = None,
        reasoning_format: object = None,
    ) -> Self:
        """Check them as OpenAI's and llama-server's fields.

        Args:
            tools: a list of {"type": "function", "function": {"name", "description", "parameters"}}.
            tool_choice: "auto" (the default), "none", "required" or {"type": "function", "function": {"name"}}.
            parallel_tool_calls: whether there may be more than one call (the default).
            reasoning_format: "deepseek", which "auto", the default, is too: what was thought stands in
                reasoning_content. "none": it stays in the content, with its tags.

        Raises UsageError, naming the field, for anything else.
        """
        declared = declared_tools(tools)
        if not isinstance(parallel_tool_calls, bool | None):
            text = f"parallel_tool_calls is {parallel_tool_calls!r}; expected true or false"
            raise UsageError(text)
        if not isinstance(reasoning_format, str | None) or reasoning_format not in _FORMATS:
            text = f"reasoning_format is {reasoning_format!r}; expected none, deepseek or auto"
            raise UsageError(text)
        kind, named = _choice(tool_choice, declared)
        return cls(
            tools=() if kind == "none" else declared,
            named=named,
            required=kind in {"required", "function"},
            parallel=parallel_tool_calls is not False and named is None,
            reasoning=_FORMATS[reasoning_format],
        )

    def ask(self, engine: Engine, messages: Sequence[Message], params: Params) -> Asked:
        """Read a conversation for an engine, in its thread.

        Args:
            engine: that is to answer.
            messages: of OpenAI's forms.
            params: of the request; `template` gets the tools, `grammar` what is required.

        Raises UsageError if the target's template knows no tools or calls of other forms, or a grammar cannot
        keep to what is required; else as `Engine.encode`.
        """
        form = self._form(engine)
        arguments = dict(params.template or {})
        if self.tools:
            arguments["tools"] = [tool.declared for tool in self.tools]
        prompt = engine.read(for_template(messages), template=arguments)
        tail = b"".join(engine.piece(token, special=True) for token in prompt[-_TAIL:])
        opened = opened_thinking(tail.decode(errors="replace"))
        if params.grammar is not None:  # it binds all of the text, and has no thinking
            if self.required:
                text = (
                    "a grammar is given, and a tool is required, which takes one too; leave one out"
                )
                raise UsageError(text)
            return Asked(prompt, params, self, form, "")
        thinks = OPEN in (engine.chat_template or "") and CLOSE not in tail.decode(errors="replace")
        grammar = self._grammar(form, params, opened=bool(opened), thinks=thinks)
        if grammar is not None:
            params = replace(params, json_schema=None, grammar=grammar)
        return Asked(prompt, params, self, form, opened)

    def _form(self, engine: Engine) -> Format | None:
        if not self.tools:
            return None
        form = format_of(engine.chat_template or "")
        if form is None:
            text = (
                "tools are given, and the target's chat template knows none, or writes calls in a form that this "
                "engine does not read (it reads those of Qwen2.5, Qwen3, Qwen3-Coder and Qwen3.5); leave them out"
            )
            raise UsageError(text)
        return form

    def _grammar(
        self, form: Format | None, params: Params, *, opened: bool, thinks: bool
    ) -> str | None:
        if params.json_schema is None and not self.required:
            return None
        grammar = ReplyGrammar()
        if params.json_schema is not None and not self.required:
            grammar.allow_json(params.json_schema)
        if form is not None:
            tools = [tool for tool in self.tools if self.named in {None, tool.name}]
            grammar.allow_calls(form, tools, many=self.parallel)
        return grammar.text(opened=opened, thinks=thinks)


def _choice(choice: object, tools: Sequence[Tool]) -> tuple[str, str | None]:
    """Return the kind of a tool_choice, and the function that it names."""
    names = [tool.name for tool in tools]
    if choice in (None, "auto", "none"):
        return str(choice or "auto"), None
    if choice == "required":
        if not names:
            text = "tool_choice is 'required', and there are no tools; give some"
            raise UsageError(text)
        return "required", None
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(choice, Mapping) or choice.get("type") != "function" or name is None:
        text = (
            f"tool_choice is {choice!r}; expected auto, none, required or "
            '{"type": "function", "function": {"name": ...}}'
        )
        raise UsageError(text)
    if name not in names:
        text = f"tool_choice names {name!r}, which is none of the tools: {', '.join(names) or 'there are none'}"
        raise UsageError(text)
    return "function", str(name)


@dataclass(frozen=True, slots=True)
class Asked:
    """A conversation as an engine is asked it.

    Attributes:
        prompt: to be given to the engine, with
        params: as they are.
    """

    prompt: ReadPrompt
    params: Params
    _wishes: Wishes
    _form: Format | None
    _opened: str

    def reply(self) -> Reply:
        """Return what takes one answer apart; every answer needs its own."""
        wishes = self._wishes
        return Reply(
            opened=self._opened,
            reasoning=wishes.reasoning,
            calls=ToolCallSplitter(self._form, wishes.tools) if self._form else None,
            ends=(CALL,) if isinstance(self._form, Tagged) else (),
            parallel=wishes.parallel,
        )


class Reply:
    """Takes one answer apart; how it is cut into pieces makes no difference.

    Args:
        opened: the <think> that the prompt ends with, and what follows it; "" if there is none.
        reasoning: give the thinking apart, without its tags.
        calls: tells calls of tools from text; None: there are none.
        ends: other tags that end the thinking (Qwen3.5 calls tools without a </think>).
        parallel: pass on more than one call.
    """

    def __init__(
        self,
        *,
        opened: str = "",
        reasoning: bool = True,
        calls: ToolCallSplitter | None = None,
        ends: Sequence[str] = (),
        parallel: bool = True,
    ) -> None:
        self._thinking = ThinkingSplitter(inside=bool(opened), ends=ends) if reasoning else None
        self._before = "" if reasoning else opened  # the tag belongs to what stays in the text
        self._calls = calls
        self._parallel = parallel
        self.called = 0  # calls so far

    def deltas(self, text: str, *, last: bool = False) -> list[dict[str, Any]]:
        """Return what `text` adds, as OpenAI's deltas: of reasoning_content, content or one of tool_calls each.

        `last` ends the answer; it is given once, with its last text or without any.
        """
        thought, said = "", self._before + text
        self._before = ""
        if self._thinking is not None:
            told = [self._thinking.feed(said), *([self._thinking.close()] if last else [])]
            thought = "".join(each.reasoning for each in told)
            said = "".join(each.content for each in told)
        made: list[dict[str, Any]] = [{"reasoning_content": thought}] if thought else []
        if self._calls is None:
            return made + ([{"content": said}] if said else [])
        for part in [*self._calls.feed(said), *(self._calls.close() if last else [])]:
            if isinstance(part, str):
                made.append({"content": part})
            elif self._parallel or not self.called:
                made.append({"tool_calls": [{"index": self.called, **_shaped(part)}]})
                self.called += 1
        return made

    def message(self, text: str) -> dict[str, Any]:
        """Return a whole answer as OpenAI's message; its content is null if it is nothing but calls."""
        made = self.deltas(text, last=True)
        thought = "".join(delta.get("reasoning_content", "") for delta in made)
        content = "".join(delta.get("content", "") for delta in made)
        calls = [call for delta in made for call in delta.get("tool_calls", ())]
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            for call in calls:
                del call["index"]
            message |= {"content": content or None, "tool_calls": calls}
        return message

    def finish_reason(self, reason: str | None) -> str | None:
        """Return why the answer ended, in OpenAI's words."""
        return "tool_calls" if reason == "stop" and self.called else reason


def _shaped(call: Call) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    if _SURROGATES.search(arguments):  # halves of characters cannot be sent as they are
        arguments = json.dumps(call.arguments)
    return {
        "id": f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }

"""Commands of a chat: lines that begin with a slash.

Each is a function of the chat and what stands behind its name. It returns the question that is to be answered
now, or None; what it has to say it notes on the screen. UsageError is shown as it is and changes nothing.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from ..errors import UsageError
from ..terminal import say
from .conversation import Conversation, Turn
from .editor import edited
from .settings import NAMES, changed, listed
from .state import Chat
from .tables import answer_table, chat_table

Action: TypeAlias = Callable[[Chat, str], str | None]


class Exit(Exception):
    """The chat is to end."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it is called, what may stand behind it, what it does."""

    names: tuple[str, ...]
    arguments: str
    help: str
    run: Action


COMMANDS: dict[str, Command] = {}


def command(*names: str, arguments: str = "", help: str) -> Callable[[Action], Action]:
    """Add a function to COMMANDS under its names, without slashes."""

    def add(action: Action) -> Action:
        made = Command(names, arguments, help, action)
        COMMANDS.update(dict.fromkeys(names, made))
        return action

    return add


def execute(chat: Chat, line: str) -> str | None:
    """Do what a line that begins with a slash says; return a question to answer, or None.

    Raises UsageError for an unknown command, naming the nearest, and as commands do; Exit.
    """
    name, _, argument = line[1:].partition(" ")
    found = COMMANDS.get(name)
    if found is None:
        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean /{close[0]}? " if close else ""
        text = f"unknown command /{_short(name)}; {hint}/help lists them, a message may begin with a space"
        raise UsageError(text)
    if argument.strip() and not found.arguments:
        text = f"/{name} takes nothing behind it, found {_short(argument)!r}"
        raise UsageError(text)
    return found.run(chat, argument.strip())


@command("help", "?", help="this list")
def _help(_: Chat, __: str) -> None:
    rows = [
        (", ".join(f"/{name}" for name in each.names) + f" {each.arguments}".rstrip(), each.help)
        for each in dict.fromkeys(COMMANDS.values())
    ]
    width = max(len(left) for left, _ in rows)
    for left, right in rows:
        say(f"  {left:<{width}}  {right}")
    say(
        '  Alt-Enter or """ ... """: several lines. Ctrl-G: $EDITOR. Ctrl-C: stop the answer, twice: leave.'
    )


@command("clear", help="forget what was said; the system prompt stays")
def _clear(chat: Chat, _: str) -> None:
    chat.conversation = Conversation(chat.conversation.system)
    chat.attached, chat.left_out = [], 0
    if chat.kept and chat.file is not None:
        say(f"{chat.file} stays as it is; /save FILE keeps what follows in another one")
    chat.file = None


@command("regen", help="answer the last question anew")
def _regen(chat: Chat, _: str) -> str:
    turn = _last(chat)
    if not chat.draw_seed():
        say("note: nothing is random here, so the text stays; /set temp or /set seed changes it")
    chat.conversation.turns.pop()
    return turn.user


@command("undo", help="take the last question and its answer back")
def _undo(chat: Chat, _: str) -> None:
    turn = _last(chat)
    chat.conversation.turns.pop()
    say(f"taken back: {_short(turn.user)}")


@command(
    "edit", arguments="[TEXT]", help="ask the last question in other words, in $EDITOR or TEXT"
)
def _edit(chat: Chat, text: str) -> str | None:
    turn = _last(chat)
    text = text or edited(turn.user)
    if not text.strip() or text == turn.user:
        say("nothing changed")
        return None
    chat.conversation.turns.pop()
    return text


@command("read", arguments="FILE", help="put a text file before the next message")
def _read(chat: Chat, name: str) -> None:
    path = _path(name, "/read FILE")
    _regular(path, "a text file in UTF-8")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{path}: {_reason(error)}; expected a text file in UTF-8"
        raise UsageError(problem) from None
    tokens, *others = (len(chat.engine.encode(each, raw=True)) for each in [text, *chat.attached])
    if tokens + sum(others) >= chat.engine.n_ctx:
        problem = f"{path.name}: {tokens:,} tokens; the context holds {chat.engine.n_ctx:,} (-c)"
        raise UsageError(problem)
    chat.attached = [*chat.attached, text]
    say(f"{path.name}, {tokens:,} tokens, goes before your next message")


@command("save", arguments="[FILE]", help="write the conversation to a file")
def _save(chat: Chat, name: str) -> None:
    path = _path(name, "/save FILE") if name or chat.file is None else chat.file
    if path.exists() and path != chat.file:
        text = f"{path} exists; choose another name, or remove it first"
        raise UsageError(text)
    chat.save(path)
    say(f"saved {len(chat.conversation.turns)} turns to {path}")


@command("load", arguments="FILE", help="go on with a saved conversation")
def _load(chat: Chat, name: str) -> None:
    path = _path(name, "/load FILE")
    chat.conversation = read_conversation(path)
    chat.attached, chat.left_out = [], 0
    chat.at_home(path)
    say(f"{len(chat.conversation.turns)} turns from {path}")
    if chat.conversation.turns:
        say(f"the last question was: {_short(chat.conversation.turns[-1].user)}")


@command("set", arguments="[NAME VALUE]", help="change a setting: " + ", ".join((*NAMES, "system")))
def _set(chat: Chat, argument: str) -> None:
    name, _, value = argument.partition(" ")
    value = value.strip()
    if not name:
        _show(chat, "settings")
        return
    if name.lstrip("-") == "system":
        chat.conversation.system = value
        say(f"system: {_short(value) or 'none'}")
        return
    plain = name.lstrip("-").replace("_", "-")
    if not value and plain != "stop":
        text = f"/set {name}: expected a value behind the name"
        raise UsageError(text)
    params = changed(chat.params, name, value)
    chat.engine.check(params)
    chat.params = params
    chat.seeded = value != "-1" if plain == "seed" else chat.seeded
    chat.origins[plain] = "/set"
    say(f"{plain}: {dict(listed(params))[plain]}")


@command("show", arguments="[settings|system|info|prompt]", help="what is set, loaded or asked")
def _show(chat: Chat, what: str) -> None:
    shown = {
        "settings": lambda: [
            f"{name}: {value}" + (f" ({chat.origins[name]})" if name in chat.origins else "")
            for name, value in listed(chat.params)
        ],
        "system": lambda: [chat.conversation.system or "no system prompt"],
        "info": lambda: _info(chat),
        "prompt": lambda: [_rendered(chat)],
    }
    if (what or "settings") not in shown:
        text = f"/show {what}: expected {', '.join(shown)}"
        raise UsageError(text)
    for line in shown[what or "settings"]():
        say("  " + line)


@command("think", arguments="on|off|show|hide", help="have the model think or not, show it or not")
def _think(chat: Chat, argument: str) -> None:
    if argument in {"on", "off"}:
        template = {**(chat.params.template or {}), "enable_thinking": argument == "on"}
        chat.params = replace(chat.params, template=template)
        say(f"thinking is {argument}, if the chat template knows about it")
    elif argument in {"show", "hide"}:
        if chat.screen is not None:
            chat.screen.thinking_shown = argument == "show"
        say("thinking is " + ("shown" if argument == "show" else "hidden"))
    else:
        text = f"/think {argument}: expected on, off, show or hide"
        raise UsageError(text)


@command("draft", arguments="on|off|N", help="draft as pays, not at all, or blocks of N rows")
def _draft(chat: Chat, argument: str) -> None:
    if not chat.engine.has_draft:
        text = "no drafter is loaded; start again with --draft"
        raise UsageError(text)
    if argument == "on":  # as the engine was loaded
        params = replace(chat.params, block=None)
    else:
        params = changed(chat.params, "block", "1" if argument == "off" else argument)
    chat.engine.check(params)
    chat.params = params
    say("no drafts" if params.block == 1 else f"block: {params.block or chat.engine.block}")


@command("stats", help="figures of the last answer and of the chat")
def _stats(chat: Chat, _: str) -> None:
    if not chat.stats:
        text = "there is no answer yet"
        raise UsageError(text)
    for line in [*answer_table(chat.stats[-1]), *chat_table(chat.stats)]:
        say("  " + line)


@command("exit", "quit", "bye", help="leave; so does Ctrl-D")
def _exit(_: Chat, __: str) -> None:
    raise Exit


def read_conversation(path: Path) -> Conversation:
    """Return a saved conversation. Raises UsageError, naming the file, for one that is none or is not there."""
    _regular(path, "a conversation that /save wrote")
    try:
        return Conversation.read(path)
    except OSError as error:
        text = f"{path}: {_reason(error)}; expected a conversation that /save wrote"
        raise UsageError(text) from None


def _last(chat: Chat) -> Turn:
    if not chat.conversation.turns:
        text = "nothing has been asked yet"
        raise UsageError(text)
    return chat.conversation.turns[-1]


def _info(chat: Chat) -> list[str]:
    engine = chat.engine
    plan = [] if engine.plan is None else [engine.plan.line()]
    asked = engine.block if chat.params.block is None else chat.params.block
    block = f"block {asked}" if engine.has_draft else "no drafter"
    return [f"{engine.name}, context {engine.n_ctx:,} tokens, {block}", *plan]


def _rendered(chat: Chat) -> str:
    messages = chat.asked().messages()
    if not chat.engine.has_chat_template:
        return chat.conversation.turns[-1].user if chat.conversation.turns else "nothing yet"
    return chat.engine.render(messages, chat.params.template) if messages else "nothing yet"


def _regular(path: Path, expected: str) -> None:
    """Refuse pipes and devices, which may never end; what is not there or a folder tells so when it is read."""
    if path.exists() and not path.is_file() and not path.is_dir():
        text = f"{path}: is no ordinary file; expected {expected}"
        raise UsageError(text)


def _path(name: str, usage: str) -> Path:
    try:
        words = shlex.split(name)
    except ValueError:
        words = [name]
    if not words:
        text = f"expected {usage}"
        raise UsageError(text)
    try:
        path = Path(words[0] if len(words) == 1 else name).expanduser()
        path.exists()  # names that the system has no place for are errors already
    except (OSError, RuntimeError, ValueError) as error:
        text = f"{_short(name)}: {_reason(error)}; expected {usage}"
        raise UsageError(text) from None
    return path


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).rstrip(".")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"

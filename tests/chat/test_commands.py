"""Commands of a chat, on a real engine."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dflash_gguf
from dflash_gguf import Engine, Params, Sampling
from dflash_gguf.chat import Chat, Screen
from dflash_gguf.chat import chat as talk
from dflash_gguf.chat import turn as answer_turn
from dflash_gguf.chat.commands import COMMANDS, execute
from dflash_gguf.chat.conversation import Conversation, Turn
from dflash_gguf.errors import UsageError
from dflash_gguf.terminal import Again

from ..support.random_pairs import Pair

PARAMS = Params(max_tokens=8, template={"enable_thinking": False}, ignore_end=True)


@pytest.fixture(scope="module")
def engine(dense: Pair) -> Iterator[Engine]:
    with dflash_gguf.load(dense.target, dense.draft, context=512, threads=1) as loaded:
        yield loaded


@pytest.fixture
def chat(engine: Engine) -> Chat:
    return Chat(engine, PARAMS, Screen(quiet=True))


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Return what has been said on stderr since."""
    return lambda: capsys.readouterr().err


def test_help_has_every_command(chat: Chat, say: Callable[[], str]) -> None:
    assert execute(chat, "/help") is None
    lines = say()
    for name, each in COMMANDS.items():
        assert f"/{name}" in lines
        assert each.help in lines


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/hlep", "unknown command /hlep; did you mean /help? /help lists them"),
        ("/zzz", "unknown command /zzz; /help lists them"),
        ("/undo", "nothing has been asked yet"),
        ("/regen", "nothing has been asked yet"),
        ("/edit x", "nothing has been asked yet"),
        ("/clear all", "/clear takes nothing behind it, found 'all'"),
        ("/read", "expected /read FILE"),
        ("/read /nowhere/x", "/nowhere/x: No such file or directory; expected a text file"),
        ("/load", "expected /load FILE"),
        ("/load /nowhere/x", "/nowhere/x: No such file or directory; expected a conversation"),
        ("/save", "expected /save FILE"),
        ("/save /nowhere/x", "nothing was written"),
        ("/set temp", "/set temp: expected a value behind the name"),
        ("/set temp hot", "temp hot: expected a number"),
        ("/show x", "/show x: expected settings, system, info, prompt"),
        ("/think maybe", "/think maybe: expected on, off, show or hide"),
        ("/draft 99", "block 99 is outside 1 to 8"),
        ("/draft some", "block some: expected a whole number"),
        ("/stats", "there is no answer yet"),
    ],
)
def test_what_makes_no_sense_changes_nothing(chat: Chat, line: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        execute(chat, line)
    assert told in str(caught.value)
    assert (chat.params, chat.conversation) == (PARAMS, Conversation())


def test_undo_clear_and_edit(chat: Chat, say: Callable[[], str]) -> None:
    chat.conversation.system = "short"
    for question in ("one", "two"):
        answer_turn(chat, question)
    say()
    assert execute(chat, "/undo") is None
    assert say() == "taken back: two\n"
    assert [turn.user for turn in chat.conversation.turns] == ["one"]
    assert execute(chat, "/edit another one") == "another one"
    assert chat.conversation.turns == []
    answer_turn(chat, "another one")
    execute(chat, "/clear")
    assert chat.conversation == Conversation("short")


def test_edit_opens_the_persons_editor(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[[], str]
) -> None:
    answer_turn(chat, "one")
    editor = tmp_path / "an editor"
    editor.write_text('#!/bin/sh\ngrep -qx one "$1" && printf "one and\\ntwo\\n" > "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"'{editor}'")
    assert execute(chat, "/edit") == "one and\ntwo"
    answer_turn(chat, "one")
    monkeypatch.setenv("EDITOR", "true")
    assert execute(chat, "/edit") is None
    assert say().endswith("nothing changed\n")
    monkeypatch.setenv("EDITOR", "false")
    with pytest.raises(UsageError, match="the editor 'false' failed"):
        execute(chat, "/edit")
    assert [turn.user for turn in chat.conversation.turns] == ["one"]


def test_regen_draws_another_seed_unless_a_person_chose_one(
    chat: Chat, say: Callable[[], str]
) -> None:
    chat.params = Params(max_tokens=8, sampling=Sampling(temperature=1.5, seed=3), ignore_end=True)
    answer_turn(chat, "one")
    assert execute(chat, "/regen") == "one"
    assert chat.params.sampling is not None
    assert chat.params.sampling.seed != 3
    execute(chat, "/set seed 5")
    answer_turn(chat, "one")
    say()
    assert execute(chat, "/regen") == "one"
    assert chat.params.sampling.seed == 5
    assert "the text stays" in say()


def test_a_file_goes_before_the_next_message(
    chat: Chat, tmp_path: Path, say: Callable[[], str]
) -> None:
    file = tmp_path / "my notes.txt"
    file.write_text("remember\nthis")
    execute(chat, f"/read '{file}'")
    assert say() == "my notes.txt, 13 tokens, goes before your next message\n"
    answer_turn(chat, "what?")
    answer_turn(chat, "and?")
    assert [turn.user for turn in chat.conversation.turns] == ["remember\nthis\n\nwhat?", "and?"]
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="expected a text file in UTF-8"):
        execute(chat, f"/read {file}")


def test_save_never_writes_over_another_file(
    chat: Chat, tmp_path: Path, say: Callable[[], str]
) -> None:
    answer_turn(chat, "one")
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    other.write_text("precious")
    with pytest.raises(UsageError, match="exists; choose another name"):
        execute(chat, f"/save {other}")
    assert other.read_text() == "precious"
    execute(chat, f"/save {mine}")
    answer_turn(chat, "two")
    execute(chat, "/save")
    assert Conversation.read(mine) == chat.conversation
    saved = chat.conversation
    execute(chat, "/clear")
    with pytest.raises(UsageError, match="expected /save FILE"):
        execute(chat, "/save")  # what was cleared is another conversation
    execute(chat, f"/load {mine}")
    assert chat.conversation == saved
    assert "the last question was: two" in say()


def test_settings_thinking_and_drafts(chat: Chat, say: Callable[[], str]) -> None:
    execute(chat, "/set temp 0.5")
    execute(chat, "/set system Be brief.")
    execute(chat, "/think on")
    execute(chat, "/think hide")
    assert chat.params.sampling is not None
    assert chat.params.sampling.temperature == 0.5
    assert chat.params.template == {"enable_thinking": True}
    assert chat.conversation.system == "Be brief."
    assert chat.screen is not None
    assert not chat.screen.thinking_shown
    say()
    for argument, block, told in (
        ("off", 1, "no drafts"),
        ("4", 4, "block: 4"),
        ("on", None, "block: auto"),
    ):
        execute(chat, f"/draft {argument}")
        assert (chat.params.block, say()) == (block, told + "\n")
    execute(chat, "/show")
    assert "  temp: 0.5 (/set)\n" in say()
    execute(chat, "/show info")
    assert "context 512 tokens, block auto" in say()
    execute(chat, "/show system")
    assert say() == "  Be brief.\n"


def test_drafts_need_a_drafter(dense: Pair) -> None:
    with dflash_gguf.load(dense.target, context=128, threads=1) as plain:
        chat = Chat(plain, PARAMS, None)
        with pytest.raises(UsageError, match="no drafter is loaded"):
            execute(chat, "/draft on")


def test_stats_add_up(chat: Chat, say: Callable[[], str]) -> None:
    for question in ("one", "two"):
        answer_turn(chat, question)
    say()
    execute(chat, "/stats")
    lines = say()
    assert lines.startswith("  last answer: 8 tok · ")
    assert "chat: 2 answers · 16 tok" in lines


@pytest.mark.parametrize("line", ["/exit", "/quit", "/bye"])
@pytest.mark.parametrize("commands", [True, False])
def test_exits(chat: Chat, line: str, commands: bool) -> None:
    lines = iter([line, "not read"])
    assert talk(chat, lambda: next(lines), commands=commands) is False
    assert next(lines) == "not read"
    assert chat.conversation.turns == []


def test_a_question_that_fails_leaves_the_conversation_as_it_was(chat: Chat) -> None:
    answer_turn(chat, "one")
    before = list(chat.conversation.turns)
    with pytest.raises(dflash_gguf.DflashError, match="the context holds 512"):
        answer_turn(chat, "x" * 2000)
    assert chat.conversation.turns == before


def test_a_turn_that_cannot_be_kept_in_its_file_is_not_lost(
    chat: Chat, tmp_path: Path, say: Callable[[], str]
) -> None:
    chat.file, chat.kept = tmp_path / "gone" / "talk.json", True
    lines = iter(["one", "/regen", "/exit"])
    assert not talk(chat, lambda: next(lines), commands=True)
    assert say().count("the last turn is not in it") == 2
    assert [turn.user for turn in chat.conversation.turns] == ["one"]
    assert chat.conversation.turns[0].finish_reason == "length"


@pytest.mark.parametrize("leaving", [Again, SystemExit(143), OSError("no terminal")])
def test_what_ends_the_program_ends_it_when_the_turn_is_kept(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving: BaseException
) -> None:
    """Ctrl-C again, a signal, an output that is gone: in the middle of an answer, and while it ends."""

    def show(*_: object, **__: object) -> None:
        raise leaving

    assert chat.screen is not None
    monkeypatch.setattr(chat.screen, "show", show)
    monkeypatch.setattr("dflash_gguf.chat.screen.write", show)
    chat.file, chat.kept = tmp_path / "talk.json", True
    with pytest.raises(type(leaving) if isinstance(leaving, BaseException) else leaving):
        answer_turn(chat, "one")
    (turn,) = Conversation.read(chat.file).turns
    assert (turn.user, turn.finish_reason) == ("one", "cancelled")
    assert turn.answer
    monkeypatch.undo()
    assert answer_turn(chat, "two").sequence.finish_reason == "length", "the engine is free again"


def test_turns_come_back_when_there_is_room_again(chat: Chat, say: Callable[[], str]) -> None:
    for number in range(5):
        answer_turn(chat, f"{number} " + "x" * 120)
    left = chat.left_out
    assert left
    say()
    execute(chat, "/show prompt")
    shown = say()
    assert [f"{number} x" in shown for number in range(5)] == [n >= left for n in range(5)]
    for _ in range(4):
        execute(chat, "/undo")
    read = answer_turn(chat, "again").sequence.prompt
    assert chat.left_out == 0
    asked = chat.conversation.messages()[:-1]
    assert list(read) == chat.engine.encode(asked, template=chat.params.template)


def test_a_message_that_fails_leaves_the_files_for_the_next(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("remember")
    execute(chat, f"/read {tmp_path}/notes")
    with pytest.raises(dflash_gguf.DflashError, match="the context holds 512"):
        answer_turn(chat, "x" * 2000)
    answer_turn(chat, "hi")
    assert [turn.user for turn in chat.conversation.turns] == ["remember\n\nhi"]


def test_turns_that_are_left_out_stay_in_the_conversation(
    chat: Chat, say: Callable[[], str]
) -> None:
    questions = [f"{number} " + "x" * 120 for number in range(5)]
    read = [answer_turn(chat, question).sequence.prompt for question in questions]
    assert say().count("the oldest turns are left out") == 1
    assert max(map(len, read)) < 512
    assert [turn.user for turn in chat.conversation.turns] == questions
    left = chat.conversation.turns[chat.left_out : -1]
    assert 0 < len(left) < 4
    asked = Conversation("", [*left, Turn(questions[-1])]).messages()
    assert list(read[-1]) == chat.engine.encode(asked, template=chat.params.template)

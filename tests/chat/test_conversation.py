"""What a conversation keeps, forgets and writes to a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.chat.conversation import Conversation, Turn
from dflash_gguf.errors import UsageError
from dflash_gguf.template import Message

TEXT = st.text(max_size=20)
TURN = st.builds(Turn, TEXT, TEXT, TEXT, st.sampled_from(["", "stop", "cancelled"]))
TALK = st.builds(Conversation, TEXT, st.lists(TURN, max_size=6))


def count(messages: Sequence[Message]) -> int:
    """Tokens of messages: a word each."""
    return sum(len(message["content"].split()) + 1 for message in messages)


def talk(*sizes: int, system: str = "") -> Conversation:
    """A conversation of turns with so many words; the last one is not answered."""
    turns = [Turn("q " * size, "a " * size, "", "stop") for size in sizes[:-1]]
    return Conversation(system, [*turns, Turn("q " * sizes[-1])])


def test_messages_are_what_a_template_takes() -> None:
    turns = [Turn("1", "one", "hm", "stop"), Turn("2", "", "", "cancelled"), Turn("3")]
    assert Conversation("be brief", turns).messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "one", "reasoning_content": "hm"},
        {"role": "user", "content": "2"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "3"},
    ]
    assert Conversation().messages() == []


@pytest.mark.parametrize(
    ("sizes", "room", "reserve", "left"),
    [
        ((9, 9, 9), 70, 12, 3),  # 50 read, 12 reserved: all stay
        ((9, 9, 9), 61, 12, 2),  # one too many: down to half of the room
        ((9, 9, 9), 56, 12, 1),
        ((9, 9, 60), 100, 25, 1),  # the last stays, though it fills more than half
        ((9, 9, 99), 100, 25, 3),  # it cannot fit: that is for the engine to say
        ((500,), 100, 25, 1),
    ],
)
def test_oldest_turns_go_where_it_gets_tight(
    sizes: tuple[int, ...], room: int, reserve: int, left: int
) -> None:
    conversation = talk(*sizes, system="")
    last = conversation.turns[-left:]
    assert conversation.shorten(count, room, reserve) == len(sizes) - left
    assert conversation.turns == last


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(8, 200), st.integers(1, 50)
)
def test_what_is_left_fills_half_of_the_room_at_most(
    sizes: list[int], room: int, reserve: int
) -> None:
    reserve = min(reserve, room // 4)  # as chats ask for
    conversation = talk(*sizes, system="one two")
    before = list(conversation.turns)
    gone = conversation.shorten(count, room, reserve)
    assert conversation.turns == before[gone:] != []
    assert conversation.system == "one two"
    read = count(conversation.messages())
    last = count(Conversation("one two", before[-1:]).messages())
    assert read <= room // 2 or read + reserve <= room or last > room // 2
    assert (gone > 0) == (
        len(before) > 1
        and count(Conversation("one two", before).messages()) + reserve > room > last
    )
    if gone:  # not one more than had to
        more = Conversation("one two", before[gone - 1 :])
        assert count(more.messages()) > room // 2


@given(TALK)
def test_a_file_holds_all_of_it(tmp_path_factory: Any, conversation: Conversation) -> None:
    path = tmp_path_factory.mktemp("talk") / "talk.json"
    conversation.save(path, "a model")
    assert Conversation.read(path) == conversation
    assert json.loads(path.read_text())["model"] == "a model"
    assert [each.name for each in path.parent.iterdir()] == ["talk.json"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("not json", "not JSON ("),
        ("[]", "its kind is not 'dflash-gguf conversation'"),
        ('{"kind": "another"}', "its kind is not"),
        ({"version": 2}, "its version is 2, not 1"),
        ({"system": None}, "no system prompt (text) or no turns (list)"),
        ({"turns": [{"answer": "a"}]}, "turn 1 has no 'user'"),
        ({"turns": [{"user": "a"}, 7]}, "turn 2 has no 'user'"),
        ({"turns": [{"user": 7}]}, "'user' of turn 1 is 7, not text"),
        ({"turns": [{"user": "a", "answer": None}]}, "'answer' of turn 1 is None, not text"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: Any, told: str) -> None:
    path = tmp_path / "x.json"
    right = {"kind": "dflash-gguf conversation", "version": 1, "system": "", "turns": []}
    path.write_text(content if isinstance(content, str) else json.dumps(right | content))
    with pytest.raises(UsageError) as caught:
        Conversation.read(path)
    assert told in str(caught.value)
    assert "expected a file that /save wrote" in str(caught.value)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.json"
    Conversation("old").save(path, "m")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        Conversation("new").save(path, "m")
    assert Conversation.read(path).system == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["talk.json"]

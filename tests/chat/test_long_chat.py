"""B4: a chat that is much longer than its context goes on, and drafts are accepted in it as in a fresh engine."""

from __future__ import annotations

from pathlib import Path

import pytest

import dflash_gguf
from dflash_gguf import Params
from dflash_gguf.chat import Chat
from dflash_gguf.chat.loop import turn

from ..support.command import Terminal
from ..support.tiny import Tiny

TURNS = 20


def test_every_turn_accepts_like_a_fresh_engine(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 turns at 512 tokens, of which the oldest go again and again; token for token and draft for draft."""
    draft = tiny.draft("bf16")
    options = {"context": 512, "block": 8, "threads": 1, "flash_attn": False}
    params = Params(max_tokens=130)
    questions = [prompt["messages"][-1]["content"] for prompt in tiny.prompts[::4]][:TURNS]
    came = []
    with dflash_gguf.load(tiny.target_f32, draft, **options) as engine:
        chat = Chat(engine, params, None)
        gone = []
        for question in questions:
            came.append(turn(chat, question).sequence)
            gone.append(chat.left_out)
    assert len(chat.conversation.turns) == TURNS
    assert gone[-1] > TURNS / 2
    assert len(set(gone)) > 3, "turns went at several times"
    assert capsys.readouterr().err.count("the oldest turns are left out") == 1
    assert sum(each.stats.reused_tokens > 0 for each in came if each.stats) > TURNS / 2
    with dflash_gguf.load(tiny.target_f32, draft, prefix_memory=0, **options) as fresh:
        for number, each in enumerate(came):
            again = fresh.start(list(each.prompt), params)
            while again.finish_reason is None:
                fresh.step()
            assert again.tokens == each.tokens, number
            assert again.stats is not None
            assert each.stats is not None
            for counted in ("emitted", "drafted", "accepted", "rounds", "accepted_at"):
                assert getattr(again.stats, counted) == getattr(each.stats, counted), number


def test_a_person_sees_it_once(tiny: Tiny, tmp_path: Path) -> None:
    words = ["-m", tiny.target, "-md", tiny.draft("bf16"), "-c", 512, "--block", 8, "-t", 1]
    questions = [prompt["messages"][-1]["content"] for prompt in tiny.prompts[::12]][:8]
    with Terminal(
        "run", *words, "--no-history", rows=40, columns=100, env={"XDG_STATE_HOME": str(tmp_path)}
    ) as terminal:
        terminal.wait_for(lambda screen: "Send a message" in screen, "prompt")
        for question in questions:
            before = len(terminal.screen)
            terminal.send(question + "\r")
            terminal.wait_for(lambda screen: "tok · " in screen[before:], "figures")  # noqa: B023
            terminal.wait_for(
                lambda screen: "Send a message" in screen[before:].rpartition("tok · ")[2],  # noqa: B023
                "prompt",
            )
        terminal.send("/stats\r")
        terminal.send("\x04")
        assert terminal.end() == 0
    assert terminal.screen.count("the oldest turns are left out") == 1
    assert "Traceback" not in terminal.screen
    assert "error" not in terminal.screen

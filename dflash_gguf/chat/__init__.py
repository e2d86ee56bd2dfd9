"""Answers on a terminal or a pipe: one, or a conversation."""

from __future__ import annotations

from .answering import Answer, Stop, answer
from .loop import answer_once, chat, turn, warn_without_template
from .screen import Screen
from .state import Chat

__all__ = [
    "Answer",
    "Chat",
    "Screen",
    "Stop",
    "answer",
    "answer_once",
    "chat",
    "turn",
    "warn_without_template",
]

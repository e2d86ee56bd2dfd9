"""The official npm client, beside the same server. About 5 seconds."""

from __future__ import annotations

from ..support.tiny import Tiny
from .node import run_node


def test_the_npm_client(base: str, tiny: Tiny) -> None:
    run_node("openai.test.mjs", SERVER=base, QUESTION=tiny.prompts[40]["messages"][0]["content"])

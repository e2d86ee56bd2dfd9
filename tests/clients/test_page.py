"""The web page in a browser, beside a server of the trained pair. About 10 seconds."""

from __future__ import annotations

import os

from ..support.random_pairs import Pair
from ..support.served import serving
from ..support.tiny import Tiny
from .node import chromium, run_node


def test_the_page_in_chromium(tiny: Tiny) -> None:
    browser = chromium()
    pair = Pair(tiny.target, tiny.draft("bf16"))
    question = tiny.prompts[0]["messages"][0]["content"]
    with serving(pair, keys=("open sesame",), rules={"model": "tiny"}, context=2048) as served:
        run_node(
            "page.test.mjs",
            SERVER=served.url,
            KEY="open sesame",
            CHROMIUM=browser,
            QUESTION=question,
            SHOTS=os.environ.get("SHOTS", ""),
        )

"""The server's examples in README.md, sent as they stand. About 2 seconds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

from ..support.served import Served
from ..test_readme import blocks

BASE = "http://127.0.0.1:30000"


def test_curl(served: Served) -> None:
    """Its arguments, sent by the test's own client: not every machine has the program."""
    (block,) = [block for block in blocks("bash") if block.startswith("curl ")]
    _, url, *options = shlex.split(block.replace("\\\n", "").replace(BASE, served.url))
    given = dict(zip(options[::2], options[1::2], strict=True))
    kind, _, value = given["-H"].partition(": ")
    reply = served.http.post(url, headers={kind: value}, content=given["-d"])
    assert reply.json()["object"] == "chat.completion"


def test_openai_client(served: Served) -> None:
    (block,) = [block for block in blocks("py") if "OpenAI" in block]
    done = subprocess.run(
        [sys.executable, "-c", block.replace(BASE, served.url)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_editors_configuration(served: Served) -> None:
    (block,) = blocks("yaml")
    model = dict(re.findall(r"(\w+): (\S.*)", block.replace(BASE, served.url)))
    assert model["provider"] == "openai"
    assert served.http.get(f"{model['apiBase']}/models").status_code == 200

"""A server to be started as a peer: `peer.py PORT FOLDER PAUSE DRAFTED`. Its number stands in FOLDER/pid.

Every answer has three pieces, PAUSE seconds after each, and as many drafted tokens as it is told to tell.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.fake_server import Fake, serving, stream

if __name__ == "__main__":
    port, folder, pause, drafted = sys.argv[1:5]
    timings = {"predicted_n": 5, "draft_n": int(drafted), "draft_n_accepted": 2 * (drafted != "0")}
    answer = stream(*"abc", finish="length", timings=timings)
    fake = Fake(lambda _: replace(answer, pause=float(pause)), owner="llamacpp", port=int(port))
    with serving(fake):
        file = Path(folder) / "pid"
        file.with_suffix(".new").write_text(str(os.getpid()))
        file.with_suffix(".new").rename(file)
        threading.Event().wait()

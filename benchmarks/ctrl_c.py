"""How long after Ctrl-C in a chat the prompt is back, while a long prompt is read and while an answer is written.

    dflash-gguf shape Qwen3.5-0.8B --outdir build/shapes
    python benchmarks/ctrl_c.py --target build/shapes/Qwen3.5-0.8B-shape-BF16.gguf \
        --draft build/shapes/Qwen3.5-0.8B-shape-draft-BF16.gguf

A real `run` on a pseudo-terminal: a file is read with /read, a message sent, Ctrl-C pressed at a random moment. The time
counts from the key to the next prompt. A grammar has answers made of characters that are a token each in the shapes'
vocabulary (its longer ones begin with a t), so that a transcript's text has one spelling. At the end, without drafts, one more question: a fresh process
that goes on with the saved conversation must give the same text. Prints a JSON line per case and a verdict; exit code 1
if a prompt took over a second, a text differs, or a key missed its half of a turn (--prompt, --most).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))  # for tests.support

from tests.support.command import COMMAND, Terminal

LIMIT = 1.0  # seconds
ASKED = "Send a message"  # what a prompt shows on an empty line
QUESTION = "And now?"
WRITTEN = 40  # tokens of the answer that is compared
KEPT = 2  # turns: one of each case
WORDS = ["--grammar", "root ::= [A-Za-su-z0-9] root", "--no-think", "--no-history", "-q"]


def ask(terminal: Terminal, line: str) -> str:
    """Send a line; return what is shown up to the next prompt."""
    before = len(terminal.screen)
    terminal.send(line + "\r")
    return terminal.wait_for(lambda screen: ASKED in screen[before:], "prompt")[before:]


def press(terminal: Terminal, wait: float) -> float:
    """Press Ctrl-C after so many seconds; return how long the prompt took."""
    before = len(terminal.screen)
    end = time.perf_counter() + wait
    while (left := end - time.perf_counter()) > 0:
        terminal.watch(left)
    began = time.perf_counter()
    terminal.send("\x03")
    terminal.wait_for(lambda screen: ASKED in screen[before:], "prompt after Ctrl-C")
    return time.perf_counter() - began


def interrupted(args: argparse.Namespace, folder: Path) -> tuple[dict[str, list[float]], int, str]:
    """Interrupt turns of one chat.

    Returns seconds by case, how many keys came in the wrong half of a turn, and the answer to the last question.
    """
    choose = random.Random(1)
    notes, talk = folder / "notes", folder / "talk.json"
    seconds: dict[str, list[float]] = {"prompt": [], "answer": []}
    missed = 0
    with Terminal(*command(args, talk), rows=30, columns=100) as terminal:
        terminal.wait_for(lambda screen: ASKED in screen, "prompt")
        for case in [case for _ in range(args.times) for case in seconds]:
            notes.write_text("".join(choose.choice("abcdefgh ") for _ in range(args.prompt)))
            ask(terminal, f"/read {notes}")
            before = len(terminal.shown)
            terminal.send(QUESTION + "\r")
            if case == "answer":
                digits = before + len(QUESTION) + 200
                terminal.wait_for(lambda _: len(terminal.shown) > digits, "text")  # noqa: B023
            seconds[case].append(press(terminal, choose.uniform(0.1, args.most)))
            turns = json.loads(talk.read_text())["turns"]
            missed += (turns[-1]["answer"] == "") != (case == "prompt")
            if len(turns) > KEPT:
                ask(terminal, "/undo")  # else the context would be full of notes
        if args.draft is not None:
            ask(terminal, "/draft off")
        ask(terminal, f"/set max-tokens {WRITTEN}")
        shutil.copy(talk, folder / "before.json")
        content = json.loads((folder / "before.json").read_text())
        content["turns"] = content["turns"][:KEPT]
        (folder / "before.json").write_text(json.dumps(content))
        ask(terminal, QUESTION)
        terminal.send("\x04")
        terminal.end()
    return seconds, missed, json.loads(talk.read_text())["turns"][-1]["answer"]


def command(args: argparse.Namespace, talk: Path) -> list[object]:
    """Words of a chat with the pair."""
    drafter = [] if args.draft is None else ["-md", args.draft]
    threads = [] if args.threads is None else ["-t", args.threads]
    context = ["-c", 6 * args.prompt]
    return ["run", "-m", args.target, *drafter, *threads, *context, *WORDS, "--session", talk]


def undisturbed(args: argparse.Namespace, talk: Path) -> str:
    """Return a fresh process' answer to the last question, one row at a time."""
    words = [*command(args, talk), "-p", QUESTION, "-n", WRITTEN, "--json", "--no-draft"]
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, check=True, cwd="/")
    text: str = json.loads(done.stdout)["text"]
    return text


def main() -> int:
    """Measure; print the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, default=None)
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the file that is read")
    parser.add_argument("--times", type=int, default=5, help="interrupts of a case")
    parser.add_argument("--most", type=float, default=2.0, help="seconds until one, at most")
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        seconds, missed, answer = interrupted(args, Path(name))
        expected = undisturbed(args, Path(name) / "before.json")
    for case, taken in seconds.items():
        line: dict[str, Any] = {"at": case, "times": len(taken), "max_s": round(max(taken), 3)}
        print(json.dumps(line | {"median_s": round(statistics.median(taken), 3)}), flush=True)
    slowest = max(max(taken) for taken in seconds.values())
    same = answer == expected and len(answer) > 0
    verdict = {
        "pass": slowest <= LIMIT and same and not missed,
        "max_s": round(slowest, 3),
        "same_text": same,
    }
    verdict |= {"missed": missed}
    print(json.dumps(verdict), flush=True)
    return 0 if verdict["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())

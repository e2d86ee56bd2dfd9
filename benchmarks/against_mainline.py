"""Our files in mainline's own tool: same text, accept lengths side by side. Not part of CI.

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    python benchmarks/against_mainline.py --sdist llama_cpp_python-0.3.36.tar.gz --target T.gguf --draft D.gguf ...

Builds llama-speculative-simple from the sdist's vendor/llama.cpp (about 6 minutes on 2 cores; --bin takes
one that is built), gives it the prompts as we render them, and compares.

Counting rule for both: tokens per verify over the rounds that draft. Mainline starts drafting at the
prompt's last token, we at the first written one, and it counts what follows an end token inside the last
block; so the two may differ by a part of a round per answer.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

from mainline import build
from prompts import spread

import dflash_gguf
from dflash_gguf.draft_family import DSPARK
from dflash_gguf.pair import read_draft

_TRIES = 10  # the tool ends without waiting for its log's thread, so a busy machine loses the end of its output
_COUNTS = re.compile(r"n_(predict|drafted|accept) += (\d+)")


def mainline(
    tool: Path, target: Path, draft: Path, prompt: str, n: int, drafts: int, threads: int
) -> tuple[str, dict[str, int]]:
    """Return mainline's text and its counters for a rendered prompt."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(prompt + "\n")  # it drops one line end
        file.flush()
        kind = "draft-dspark" if read_draft(draft).layout.family == DSPARK else "draft-dflash"
        command = [tool, "-m", target, "-md", draft, "--spec-type", kind]
        command += ["--spec-draft-n-max", drafts, "-f", file.name, "-n", n, "--temp", 0, "-c", 2048]
        command += ["-t", threads, "-td", threads, "-lv", 4]
        for _ in range(_TRIES):
            done = subprocess.run([str(part) for part in command], capture_output=True, check=False)
            log = done.stderr.decode("utf-8", "replace")
            out = done.stdout.decode("utf-8", "replace")
            counts = {name: int(value) for name, value in _COUNTS.findall(log + out)}
            if done.returncode:
                break
            if len(counts) == 3:
                return out, counts
    text = f"{tool} failed ({done.returncode}):\n{log[-2000:]}"
    raise SystemExit(text)


def main() -> None:
    """Print one JSON line per draft file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--sdist", type=Path)
    where.add_argument("--bin", type=Path, help="a built llama-speculative-simple")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, nargs="+", required=True)
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tool = args.bin or build(args.sdist, Path(scratch), "llama-speculative-simple")
        prompts = spread(args.prompts, args.count)
        for draft in args.draft:
            print(json.dumps(compare(tool, draft, prompts, args)), flush=True)


def compare(
    tool: Path, draft: Path, prompts: list[list[dict[str, str]]], args: argparse.Namespace
) -> dict[str, object]:
    """Answer the prompts with both and count."""
    same = accepted = rounds = their_tokens = their_rounds = 0
    with dflash_gguf.load(args.target, draft, threads=args.threads, context=2048) as engine:
        for messages in prompts:
            answer = engine.generate(messages, max_tokens=args.n, block=args.block)
            text, counts = mainline(
                tool,
                args.target,
                draft,
                engine.render(messages),
                args.n,
                args.block - 1,
                args.threads,
            )
            same += answer.text.strip() in text
            if answer.stats is not None:
                accepted += answer.stats.accepted
                rounds += answer.stats.drafting_rounds
            their_tokens += counts["predict"]
            their_rounds += counts["predict"] - counts["accept"]
    return {
        "draft": draft.name,
        "prompts": len(prompts),
        "block": args.block,
        "same_text": same,
        "accept_length": round(1 + accepted / rounds, 3),
        "mainline_accept_length": round(their_tokens / their_rounds, 3),
    }


if __name__ == "__main__":
    main()

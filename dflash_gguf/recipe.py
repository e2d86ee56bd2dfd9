"""Launch lines of other engines for a pair, for people who outgrow one machine.

The options of SGLang and vLLM are those of the model cards of z-lab/Qwen3.5-9B-DFlash and of the engines' documentation;
llama-server's are those of the llama.cpp that the pinned llama-cpp-python packages, where the tests start it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ._native import LLAMA_CPP_PYTHON
from .convert.stream import Progress
from .draft_family import DSPARK
from .errors import ModelError, UsageError
from .model_names import find_drafter, find_target
from .recipe_facts import DraftFacts, TargetFacts, need, read_pair

_UNVERIFIED = "not verified by us: the options are quoted, we have not run them"
_LEAST_BLOCK = 2
_LLAMA_SERVER = "llama-server"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A launch line: `parts` are the program, then each option with its value; `notes` are for the reader."""

    engine: str
    version: str
    verified: bool
    parts: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """The command as arguments."""
        return [word for part in self.parts for word in part]

    def render(self) -> str:
        """Return comment lines and the command, for a shell."""
        state = "verified" if self.verified else _UNVERIFIED
        notes = (f"{self.engine}: {self.version}; {state}", *self.notes)
        lines = [" ".join(map(shlex.quote, part)) for part in self.parts]
        return "".join(f"# {note}\n" for note in notes) + " \\\n  ".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to be served, and how: `block` rows of a verify, `context` tokens of each request."""

    target: TargetFacts
    draft: DraftFacts
    concurrency: int
    block: int
    context: int | None


def named_files(
    engine: str, target: Path, draft: Path, progress: Progress | None = None
) -> tuple[Path, Path]:
    """Return the two with GGUFs that are given by a repository's name fetched, as model_names.py has it.

    `user/repo:QUANT` always means one; without a quant only where the engine reads GGUFs.
    """
    found = []
    for given, find in ((target, find_target), (draft, find_drafter)):
        named = engine == _LLAMA_SERVER or ":" in given.name
        found.append(find(given, progress) if named else given)
    return found[0], found[1]


def make_recipe(
    engine: str,
    target: Path,
    draft: Path,
    *,
    concurrency: int = 1,
    block: int | None = None,
    context: int | None = None,
) -> Recipe:
    """Return the line that serves a pair with `engine`: sglang, vllm or llama-server.

    Target and drafter may be GGUFs, folders of Hugging Face checkpoints, or repositories. `block` is the rows of a
    verify (None: as the drafter was trained), `context` the tokens of each of `concurrency` requests at once.
    Raises UsageError for an engine or a number that cannot be, ModelError where the files do not fit each other or
    the engine.
    """
    if engine not in _ENGINES:
        text = f"--engine {engine}: expected {', '.join(_ENGINES)}"
        raise UsageError(text)
    for option, value in (("--concurrency", concurrency), ("--context", context)):
        if value is not None and value < 1:
            text = f"{option} {value}: expected 1 or more"
            raise UsageError(text)
    facts, drafter = read_pair(target, draft)
    if block is not None and not _LEAST_BLOCK <= block <= drafter.block:
        text = f"--block {block}: expected {_LEAST_BLOCK} to {drafter.block}, the block {draft} was trained with"
        raise UsageError(text)
    return _ENGINES[engine](_Wish(facts, drafter, concurrency, block or drafter.block, context))


def _llama_server(wish: _Wish) -> Recipe:
    target, draft = wish.target.gguf, wish.draft.gguf
    if target is None or draft is None:
        given = "--target" if target is None else "--draft"
        text = f"llama-server reads GGUFs; give one as {given} ('dflash-gguf convert' makes the drafter's)"
        raise ModelError(text)
    parts = [
        ("llama-server",),
        ("--model", str(target)),
        ("--spec-draft-model", str(draft)),
        ("--spec-type", "draft-dspark" if wish.draft.family == DSPARK else "draft-dflash"),
        # the anchor is no drafted token
        ("--spec-draft-n-max", str(wish.block - 1)),
        ("--parallel", str(wish.concurrency)),
    ]
    notes = []
    if wish.context is not None:
        parts.append(("--ctx-size", str(wish.context * wish.concurrency)))
    elif wish.concurrency > 1:
        notes.append(
            "requests at once share the model's context in equal parts; --context sets each one's"
        )
    version = f"of llama.cpp as llama-cpp-python {LLAMA_CPP_PYTHON} packages it"
    return Recipe("llama-server", version, True, (*parts, *_place(8080)), tuple(notes))


def _sglang(wish: _Wish) -> Recipe:
    _no_dspark("sglang", wish.draft)
    target = need(wish.target.checkpoint, "--target", "sglang")
    draft = need(wish.draft.checkpoint, "--draft", "sglang")
    parts = [
        ("python", "-m", "sglang.launch_server"),
        ("--model-path", target.name),
        ("--trust-remote-code",),
        ("--speculative-algorithm", "DFLASH"),
        ("--speculative-draft-model-path", draft.name),
        ("--speculative-dflash-block-size", str(wish.block)),
    ]
    notes = [f"--model-path: {target.why}", f"--speculative-draft-model-path: {draft.why}"]
    windows = {window for window in wish.draft.windows if window is not None}
    if windows:
        # it is refused below the block
        window = max(*windows, wish.block)
        parts.append(("--speculative-dflash-draft-window-size", str(window)))
        free = [str(index) for index, seen in enumerate(wish.draft.windows) if seen is None]
        if free:
            notes.append(
                f"the window holds for all layers of the drafter; layer {', '.join(free)} was trained without one, so "
                "for long texts try it without that option too"
            )
    if wish.target.recurrent:
        parts.append(("--mamba-scheduler-strategy", "extra_buffer"))
    parts += [("--tp-size", "1"), ("--max-running-requests", str(wish.concurrency))]
    if wish.context is not None:
        parts.append(("--context-length", str(wish.context)))
    notes.append(
        "the card's figures are with --attention-backend trtllm_mha --speculative-draft-attention-backend fa4 (NVIDIA "
        "B200; fa3 on Hopper); it recommends block 8 for many requests at once"
    )
    version = "with DFlash, pull request 22077 of sgl-project/sglang, or newer"
    return Recipe("sglang", version, False, (*parts, *_place(30000)), tuple(notes))


def _vllm(wish: _Wish) -> Recipe:
    _no_dspark("vllm", wish.draft)
    target = need(wish.target.checkpoint, "--target", "vllm")
    draft = need(wish.draft.checkpoint, "--draft", "vllm")
    # the anchor is no drafted token
    config = {"method": "dflash", "model": draft.name, "num_speculative_tokens": wish.block - 1}
    parts = [
        ("vllm", "serve", target.name),
        ("--speculative-config", json.dumps(config)),
        ("--attention-backend", "flash_attn"),
        ("--max-num-batched-tokens", "32768"),
        ("--max-num-seqs", str(wish.concurrency)),
    ]
    if wish.context is not None:
        parts.append(("--max-model-len", str(wish.context)))
    notes = (f"target: {target.why}", f"model of the drafter: {draft.why}")
    version = "with DFlash, pull request 36764 of vllm-project/vllm, or newer"
    return Recipe("vllm", version, False, (*parts, *_place(8000)), notes)


def _place(port: int) -> tuple[tuple[str, str], ...]:
    return (("--host", "127.0.0.1"), ("--port", str(port)))


def _no_dspark(engine: str, draft: DraftFacts) -> None:
    if draft.family == DSPARK:
        text = f"{engine}: no line is known for DSpark drafters; expected a DFlash one, or --engine llama-server"
        raise ModelError(text)


_ENGINES: Mapping[str, Callable[[_Wish], Recipe]] = {
    "sglang": _sglang,
    "vllm": _vllm,
    _LLAMA_SERVER: _llama_server,
}

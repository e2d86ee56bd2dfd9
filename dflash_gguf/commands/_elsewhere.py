"""Options of llama-cli, llama-server, mlx_lm and ollama that people type here too.

Each becomes words of ours that mean exactly the same, or nothing where we do so anyway, or is refused with a line
that says what to do instead. REFERENCE.md lists them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import UsageError

Words: TypeAlias = list[str]


@dataclass(frozen=True, slots=True)
class Foreign:
    """An option of another program.

    Attributes:
        names: how it is spelt.
        takes: whether a value stands behind it.
        becomes: our words for its name and value; raises UsageError if there are none.
        says: the same for people, in REFERENCE.md.
    """

    names: tuple[str, ...]
    takes: bool
    becomes: Callable[[str, str], Words]
    says: str


def _same(ours: str, *names: str) -> Foreign:
    return Foreign(names, True, lambda _, value: [ours, value], f"`{ours}`")


def _flag(ours: str, *names: str) -> Foreign:
    return Foreign(names, False, lambda _, __: [ours], f"`{ours}`")


def _idle(*names: str, why: str) -> Foreign:
    return Foreign(names, False, lambda _, __: [], f"taken, changes nothing: {why}")


def _instead(advice: str, *names: str, takes: bool = True) -> Foreign:
    def refuse(name: str, _value: str) -> Words:
        text = f"{name} is not an option here: {advice}"
        raise UsageError(text)

    return Foreign(names, takes, refuse, advice)


def _drafted(name: str, value: str) -> Words:
    if not value.isdecimal():
        text = f"{name} {value}: expected a number of drafted tokens (--block takes one more: the rows of a verify)"
        raise UsageError(text)
    return ["--block", str(int(value) + 1)]


def _kind(name: str, value: str) -> Words:
    if value == "none":
        return ["--no-draft"]
    if value in {"draft-dflash", "draft-dspark"}:
        return []
    text = (
        f"{name} {value}: drafts come from DFlash, DFlash2 and DSpark models here; expected draft-dflash, "
        "draft-dspark or none"
    )
    raise UsageError(text)


def _effort(_name: str, value: str) -> Words:
    if value == "default":
        return []
    return ["--chat-template-kwargs", json.dumps({"reasoning_effort": value})]


def _budget(name: str, value: str) -> Words:
    if value == "-1":
        return []
    text = f"{name} {value}: thinking is on or off here, or bound with the answer by -n; --reasoning off"
    raise UsageError(text)


def _thoughts(name: str, value: str) -> Words:
    if value in {"auto", "deepseek"}:
        return []
    text = (
        f"{name} {value}: thinking is always apart from the answer here; --hide-thinking hides it"
    )
    raise UsageError(text)


def _loading(name: str, value: str) -> Words:
    ways = {"auto": [], "none": ["--no-mmap"], "mmap": ["--mmap"]}
    if value not in ways:
        text = f"{name} {value}: expected auto, none (--no-mmap) or mmap (--mmap)"
        raise UsageError(text)
    return ways[value]


_KIND_OF_SAMPLING = "there are --temp, --top-k, --top-p, --min-p, --typical and the penalties"
_TEXT_ONLY = "text alone is read and written"
_SYSTEM = "that is left to the system (taskset, nice, numactl)"
_TRAINED = "positions are as the target's file says"
_TEMPLATE = "prompts go through the chat template in the target's file"
_SPLIT = "a model is not split between devices; name one with -dev, the drafter's with -devd"

FOREIGN = (
    # the pair
    _same("--target", "-hf", "-hfr", "--hf-repo"),
    _same(
        "--draft",
        *("--model-draft", "--spec-draft-model", "--spec-draft-hf", "-hfd", "-hfrd"),
        "--hf-repo-draft",
    ),
    _instead("name the quantisation behind the repository: -m OWNER/NAME:QUANT", "-hff", "--hf-file"),
    _instead("set HF_TOKEN in the environment", "-hft", "--hf-token"),
    _instead("download the file and give it to -m", "-mu", "--model-url", "-dr", "--docker-repo"),
    _instead("adapters cannot be loaded; merge it into the target's file", "--lora", "--lora-scaled"),
    _instead(_TEXT_ONLY, "-mm", "--mmproj", "--image", "--audio", "--video"),
    # drafting
    Foreign(
        ("--spec-draft-n-max", "--draft-max", "--draft-n", "--num-draft-tokens"),
        True,
        _drafted,
        "`--block` with one more: the rows of a verify",
    ),
    Foreign(
        ("--spec-type",),
        True,
        _kind,
        "nothing for `draft-dflash` and `draft-dspark`, which are found by themselves; `--no-draft` for `none`",
    ),
    _instead(
        "--block auto drafts as much as pays, which may be nothing",
        *("--spec-draft-n-min", "--draft-min", "--draft-n-min"),
        *("--spec-draft-p-min", "--draft-p-min", "--spec-draft-p-split", "--draft-p-split"),
    ),
    _instead("--draft-sampling gumbel or rejection", "--spec-draft-sampling"),
    _same("--draft-gpu-layers", "--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"),
    _same("--draft-device", "--spec-draft-device", "--device-draft"),
    _same("--cache-type-k-draft", "--spec-draft-type-k"),
    _same("--cache-type-v-draft", "--spec-draft-type-v"),
    _same("--threads-draft", "--spec-draft-threads"),
    _instead(
        "-td counts for prompts too",
        *("-tbd", "--threads-batch-draft", "--spec-draft-threads-batch"),
    ),
    # what is asked
    _same("--max-tokens", "--predict"),
    _same("--stop", "-r", "--reverse-prompt"),
    _same("--chat-template-kwargs", "--chat-template-args", "--chat-template-config"),
    Foreign(
        ("--reasoning-effort",),
        True,
        _effort,
        "`--chat-template-kwargs` with `reasoning_effort`",
    ),
    Foreign(("--reasoning-budget",), True, _budget, "nothing for -1, else `--reasoning off` or `-n`"),
    Foreign(
        ("--reasoning-format",), True, _thoughts, "nothing for `auto` and `deepseek`: thinking is apart"
    ),
    _instead(_TEMPLATE, "--chat-template", "--chat-template-file"),
    _instead(_TEMPLATE, "--no-jinja", "--ignore-chat-template", takes=False),
    _instead(
        _TEMPLATE + "; -p TEXT answers once", "-no-cnv", "--no-conversation", takes=False
    ),
    _instead(
        "a chat begins where no prompt is given", "-i", "--interactive", "-if", "--interactive-first", takes=False
    ),
    _instead(
        "earlier thinking is never given to the model again", "--reasoning-preserve", takes=False
    ),
    _instead("the oldest turns go when the context is full", "--context-shift", takes=False),
    _instead("the oldest turns go when the context is full, the system prompt stays", "--keep"),
    _instead("--json-schema '{}' gives JSON", "--format"),
    _instead("`run` answers one prompt at a time", "-np", "--parallel"),
    _idle("--jinja", why="templates are jinja2's"),
    _idle("--no-context-shift", "--no-reasoning-preserve", why="as ever"),
    _idle("-mli", "--multiline-input", why='Alt-Enter, or """, begins a line'),
    # how tokens are chosen
    _same("--typical", "--typical-p"),
    _same("--repeat-penalty", "--repetition-penalty"),
    _instead(
        _KIND_OF_SAMPLING,
        *("--samplers", "--sampler-seq", "--sampling-seq", "--mirostat", "--mirostat-lr", "--mirostat-ent"),
        *("--xtc-probability", "--xtc-threshold", "--top-nsigma", "--top-n-sigma"),
        *("--dry-multiplier", "--dry-base", "--dry-allowed-length", "--dry-penalty-last-n"),
        *("--dry-sequence-breaker", "--dynatemp-range", "--dynatemp-exp"),
        *("--adaptive-target", "--adaptive-decay"),
    ),
    _instead("--logit-bias ID-inf bans an end token", "--ignore-eos", takes=False),
    # how it is shown
    _flag("--hide-thinking", "--hidethinking", "--hide-reasoning", "-R"),
    _idle("--no-display-prompt", "--show-timings", "--perf", "--no-perf", "--simple-io", why="as ever"),
    _idle("--log-disable", why="llama.cpp's log appears with -v alone"),
    _instead("-q leaves figures out", "--no-show-timings", takes=False),
    _instead("/show prompt in a chat", "--display-prompt", "--verbose-prompt", takes=False),
    _instead("special tokens are never written", "-sp", "--special", takes=False),
    _instead("-v, or -vv for llama.cpp's whole log", "-lv", "--verbosity", "--log-verbosity"),
    _instead("send stderr there: 2> FILE", "--log-file"),
    _instead("--color, or NO_COLOR", "--log-colors"),
    # memory, devices, threads
    _same("--ctx-size", "--max-kv-size"),
    _same("--batch-size", "--prefill-step-size"),
    Foreign(("-lm", "--load-mode"), True, _loading, "`--mmap` or `--no-mmap`"),
    _instead("memory is not locked; --no-mmap copies the weights into it", "--mlock", takes=False),
    _instead("caches are where the layers are (-ngl)", "-nkvo", "--no-kv-offload", takes=False),
    _instead(_SPLIT, "-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu"),
    _instead("both models must be on this machine; name devices with -dev", "--rpc"),
    _instead(
        _SYSTEM,
        *("-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict", "--prio", "--poll", "--numa"),
    ),
    _instead(
        _TRAINED,
        *("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"),
        *("--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast"),
    ),
    _idle("--warmup", "--no-warmup", why="costs are measured once and kept"),
    # other commands
    _instead("dflash-gguf devices", "--list-devices", takes=False),
    _instead("dflash-gguf --version", "--version", takes=False),
    _instead("dflash-gguf --show-completion bash", "--completion-bash", takes=False),
)  # fmt: skip
BY_NAME = {name: each for each in FOREIGN for name in each.names}

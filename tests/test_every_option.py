"""Every option of `run` gives the same text with the drafter on and off, at temperature 0 with a target in f32 (H6).

The list of options is the command's own: a new one fails here until it has an example, or a reason for having none.
Commands run in this process, and an engine serves all that open the pair in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import dflash_gguf.loading
from dflash_gguf import Engine
from dflash_gguf.__main__ import app
from dflash_gguf.hardware import devices

from .support.tiny import Tiny

COMMAND: Any = typer.main.get_command(app)
NAMES = [parameter.name for parameter in COMMAND.commands["run"].params if parameter.name != "help"]
ASKED = "Anna has 12 apples. Then Anna buys 35 more. How many apples does Anna have now?"
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
GRAMMAR = 'root ::= "Anna " [a-z ]+ [0-9]+ "."'
DRAFTS = re.compile(r" accept \d\.\d/\d+ \((\d\.\d\d)\)")
LONG = ["-n", "120"]  # what is thought comes first
# what every command has, unless the option under test says it otherwise
BASE = {
    "prompt": ["-p", ASKED],
    "max_tokens": ["-n", "40"],
    "temp": ["--temp", "0"],
    "block": ["--block", "8"],
    "context": ["-c", "512"],
    "threads": ["-t", "1"],
    "cache_k": ["-ctk", "f32"],
    "cache_v": ["-ctv", "f32"],
    "flash_attn": ["-fa", "off"],
    "think": ["--no-think"],
}
# words of each option; {FILE} is a folder with these files
FILES = {"question": ASKED, "system": "Be brief.", "grammar": GRAMMAR, "schema": SCHEMA}
CASES: dict[str, list[list[str]]] = {
    "words": [["How", "many", "apples?"]],
    "prompt": [["-p", "17 + 25 ="]],
    "file": [["-f", "{}/question"]],
    "escape": [["-e", "-p", "one\\ntwo"], ["--no-escape", "-p", "one\\ntwo"]],
    "system": [["-sys", "Be brief."]],
    "system_file": [["-sysf", "{}/system"]],
    "conversation": [["-cnv"]],
    "single_turn": [["-st", "-p", ASKED]],
    "session": [["--session", "{}/talk.json"]],
    "max_tokens": [["-n", "1"], ["-n", "-1"]],
    "stop": [["--stop", "apples", "--stop", "47"]],
    "think": [["--think", *LONG], ["--no-think"]],
    "reasoning": [["--reasoning", "on", *LONG], ["-rea", "off"]],
    "template_arguments": [["--chat-template-kwargs", '{"enable_thinking": true}', *LONG]],
    "json_output": [["--json"]],
    "show_thinking": [["--show-thinking"], ["--hide-thinking"]],
    "show_accepted": [["--show-accepted"]],
    "color": [["--color", "on"], ["--color", "off"]],
    "no_history": [["--no-history"]],
    "quiet": [["-q"]],
    "temp": [["--temperature", "0"]],
    "top_k": [["--top-k", "3"]],
    "top_p": [["--top-p", "0.5"]],
    "min_p": [["--min-p", "0.2"]],
    "typical": [["--typical", "0.5"]],
    "repeat_penalty": [["--repeat-penalty", "1.3"]],
    "presence_penalty": [["--presence-penalty", "1.5"]],
    "frequency_penalty": [["--frequency-penalty", "0.7"]],
    "repeat_last_n": [["--repeat-last-n", "8", "--repeat-penalty", "1.3"]],
    "logit_bias": [["-l", "20-inf", "-l", "30+2"]],
    "seed": [["-s", "7"]],
    "grammar": [["--grammar", GRAMMAR]],
    "grammar_file": [["--grammar-file", "{}/grammar"]],
    "json_schema": [["-j", SCHEMA]],
    "json_schema_file": [["-jf", "{}/schema"]],
    "no_draft": [["--no-draft"]],
    "block": [["--block", "1"], ["--block", "auto"]],
    "draft_sampling": [["--draft-sampling", "rejection"], ["--draft-sampling", "gumbel"]],
    "context": [["-c", "96"]],
}
# how a pair is opened: several at once, since each way costs two loads
TOGETHER = [
    {
        "draft_window": ["--draft-window", "24"],
        "draft_context": ["-cd", "64"],
        "draft_cache_k": ["-ctkd", "q8_0"],
        "draft_cache_v": ["-ctvd", "f16"],
        "draft_batch": ["--draft-batch", "24"],
        "draft_threads": ["-td", "2"],
        "flash_attn": ["-fa", "auto"],
    },
    {
        "threads": ["-t", "2"],
        "batch_threads": ["-tb", "1"],
        "cache_k": ["-ctk", "f16"],
        "cache_v": ["-ctv", "bf16"],
        "batch": ["-b", "48"],
        "ubatch": ["-ub", "24"],
        "mmap": ["--mmap"],
        "cache_ram": ["-cram", "0"],
    },
    {
        "gpu_layers": ["-ngl", "0"],
        "draft_gpu_layers": ["-ngld", "0"],
        "device": ["-dev", devices()[0].name],
        "draft_device": ["-devd", devices()[0].name],
        "memory_limit": ["--memory-limit", "2G"],
        "context": ["-c", "0"],
        "block": ["--block", "16"],
        "mmap": ["--no-mmap"],
        "cache_ram": ["-cram", "64"],
    },
]
REASONS = {
    "target": "every command here has it",
    "draft": "it is what is turned on and off",
    "verbose": "turns on llama.cpp's log for the whole process; tests/test_run_command.py has it",
}
# no other prompt, or another way to say the same
INSTEAD = {
    **dict.fromkeys(("words", "file", "escape", "conversation", "single_turn"), "prompt"),
    **dict.fromkeys(("reasoning", "template_arguments"), "think"),
}
UNDRAFTED = ({"--block", "1"}, {"--no-draft"}, {"-n", "1"})


class _Shared:
    """An engine that outlives the command that has opened it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> Engine:
        return self._engine

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[Any, Engine]]:
    """Engines by what they were opened with."""
    opened: dict[Any, Engine] = {}
    yield opened
    for engine in opened.values():
        engine.close()


@pytest.fixture(scope="module")
def draft(tiny: Tiny) -> Path:
    """The trained drafter."""
    return tiny.draft("bf16")


@pytest.fixture
def said(
    tiny: Tiny,
    draft: Path,
    engines: dict[Any, Engine],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., tuple[Any, str]]:
    """Return what a command writes, with the drafter or without: its answer, and its line of figures."""
    real = dflash_gguf.loading.load

    def load(target: Path, drafter: Path | None, *, options: Any, **_: object) -> _Shared:
        key = target, drafter, options
        if key not in engines:
            engines[key] = real(target, drafter, options=options)
        return _Shared(engines[key])

    monkeypatch.setattr("dflash_gguf.loading.load", load)

    def run(names: set[str], words: list[str], *, drafted: bool) -> tuple[Any, str]:
        folder = tmp_path / str(drafted)
        folder.mkdir()
        for file, text in FILES.items():
            (folder / file).write_text(text)
        left_out = names | {INSTEAD.get(name, name) for name in names}
        base = [word for key, given in BASE.items() if key not in left_out for word in given]
        model = ["-m", str(tiny.target_f32), *(["-md", str(draft)] if drafted else [])]
        own = [word.format(folder) if word.startswith("{}") else word for word in words]
        lines = f"{ASKED}\n17 + 25 =\n" if "conversation" in names else ""
        result = CliRunner().invoke(app, ["run", *model, *base, *own], input=lines)
        assert result.exit_code == 0, (result.output, result.exception)
        if "json_output" not in names:
            return result.stdout, result.stderr
        made = json.loads(result.stdout)
        answer = {key: made[key] for key in ("text", "reasoning", "finish_reason", "usage")}
        rate = made["speculative"]["accepted"] / max(1, made["speculative"]["drafted"])
        return answer, f" accept 1.0/8 ({rate:.2f})"

    return run


def examples() -> Iterator[Any]:
    """Sets of options, and words that give them."""
    for name, all_words in CASES.items():
        for words in all_words:
            yield pytest.param({name}, words, id=" ".join(words))
    for group in TOGETHER:
        words = [word for given in group.values() for word in given]
        yield pytest.param(set(group), words, id=" ".join(words))


def test_every_option_has_an_example_or_a_reason() -> None:
    grouped = [name for group in TOGETHER for name in group]
    assert {*CASES, *grouped, *REASONS} == set(NAMES)
    assert not set(REASONS) & {*CASES, *grouped}


@pytest.mark.parametrize(("names", "words"), list(examples()))
def test_the_drafter_changes_no_text(
    said: Callable[..., tuple[Any, str]], names: set[str], words: list[str]
) -> None:
    plain, _ = said(names, words, drafted=False)
    drafted, figures = said(names, words, drafted=True)
    assert drafted == plain
    assert plain.strip() if isinstance(plain, str) else plain["text"]
    if "quiet" not in names and "auto" not in words:  # auto may find that drafts do not pay here
        expected = not any(each <= set(words) for each in UNDRAFTED)
        rates = [float(rate) for rate in DRAFTS.findall(figures)]
        assert any(rates) == expected, "drafts were accepted, or there were none to accept"

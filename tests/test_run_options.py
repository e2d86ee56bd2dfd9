"""Every option of `run`: what it means to the engine, and that a run with it works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self

import pytest
from typer.testing import CliRunner

import dflash_gguf
from dflash_gguf import Options, Params, Sampling
from dflash_gguf.__main__ import app
from dflash_gguf.chat import Chat
from dflash_gguf.hardware import devices
from dflash_gguf.suggested import Suggested

from .support.command import UNTHINKING, command
from .support.random_pairs import Pair
from .support.tiny import Tiny

PLANNED = re.compile(r"^memory planned: ([\d,.]+) (KiB|MiB|GiB) \(", re.MULTILINE)


class _Enough(Exception):
    """What was to be seen has been seen."""


@pytest.fixture
def meant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Options, Params]]:
    """Return what a command line asks the engine for, without loading anything."""

    def parse(*words: object) -> tuple[Options, Params]:
        asked: list[Any] = []

        class Loaded:
            warnings: tuple[str, ...] = ()
            has_chat_template = True
            suggested = Suggested()

            def suggested_sampling(self, **fields: Any) -> Sampling:
                return Sampling(**fields)

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        def load(*_: object, options: Options, **__: object) -> Loaded:
            asked.append(options)
            return Loaded()

        def answer(state: Chat, _question: str, **_: object) -> None:
            asked.append(state.params)
            raise _Enough

        monkeypatch.setattr("dflash_gguf.loading.load", load)
        monkeypatch.setattr("dflash_gguf.chat.turn", answer)
        given = ["run", "-m", "t.gguf", "-md", "d.gguf", "-p", "hi", *map(str, words)]
        result = CliRunner().invoke(app, given)
        assert isinstance(result.exception, _Enough), result.output
        return asked[0], asked[1]

    return parse


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--memory-limit", "1.5G"], "memory_limit", "1.5G"),
        (["-c", 512], "context", 512),
        (["-c", 0], "context", None),
        (["-cd", 100], "draft_context", 100),
        (["--ctx-size-draft", 0], "draft_context", None),
        (["--draft-window", 64], "draft_window", 64),
        (["--draft-window", 0], "draft_window", None),
        (["-ctk", "q8_0"], "kv_type", ("q8_0", "f16")),
        (["--cache-type-v", "bf16"], "kv_type", ("f16", "bf16")),
        (["-ctk", "f32"], "draft_kv_type", ("f32", "f16")),
        (["-ctkd", "q8_0", "-ctk", "f32"], "draft_kv_type", ("q8_0", "f16")),
        (["-ctvd", "q4_0"], "draft_kv_type", ("f16", "q4_0")),
        (["--mmap"], "mmap", True),
        (["--no-mmap"], "mmap", False),
        (["-fa", "on"], "flash_attn", True),
        (["-fa", "off"], "flash_attn", False),
        (["-fa", "auto"], "flash_attn", None),
        (["-fa", "1"], "flash_attn", True),
        (["-fa", "Enabled"], "flash_attn", True),
        (["-fa"], "flash_attn", True),
        (["-cram", 16], "prefix_memory", 16 * 2**20),
        (["-b", 99], "batch", 99),
        (["-ub", 66], "ubatch", 66),
        (["--draft-batch", 77], "draft_batch", 77),
        (["-t", 3], "threads", 3),
        (["-t", -1], "threads", None),
        (["-tb", 2], "threads_batch", 2),
        (["-tb", -1], "threads_batch", None),
        (["-td", 1], "draft_threads", 1),
        (["-td", -1], "draft_threads", None),
        (["--block", 5], "block", 5),
        (["--block", 5], "max_block", 5),
        (["--block", 1], "max_block", 2),
        ([], "block", "auto"),
        (["-ngl", 7], "gpu_layers", 7),
        (["-ngld", "all"], "draft_gpu_layers", -1),
        (["-dev", "A, B"], "devices", ("A", "B")),
        (["-devd", "C"], "draft_devices", ("C",)),
    ],
)
def test_options_of_the_engine(
    meant: Callable[..., tuple[Options, Params]], words: list[object], field: str, value: object
) -> None:
    options, _ = meant(*words)
    assert getattr(options, field) == value
    plain = getattr(meant()[0], field)
    assert (plain == value) == (words in ([], ["-c", 0]) or str(words[-1]) in {"-1", "0", "auto"})


def test_one_answer_keeps_nothing_for_later_ones(
    meant: Callable[..., tuple[Options, Params]],
) -> None:
    assert meant()[0].prefix_memory == 0
    assert meant("--cache-ram", -1)[0].prefix_memory == 2**62


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--temp", 0.7], "temperature", 0.7),
        (["--temperature", 0.6], "temperature", 0.6),
        (["--top-k", 9], "top_k", 9),
        (["--top-p", 0.8], "top_p", 0.8),
        (["--min-p", 0.1], "min_p", 0.1),
        (["--typical", 0.9], "typical", 0.9),
        (["--repeat-penalty", 1.1], "repeat_penalty", 1.1),
        (["--presence-penalty", 1.5], "presence_penalty", 1.5),
        (["--frequency-penalty", 0.3], "frequency_penalty", 0.3),
        (["--repeat-last-n", 7], "repeat_last_n", 7),
        (["--seed", 5], "seed", 5),
        (["-l", "3-inf", "--logit-bias", "4+1.5"], "logit_bias", {3: float("-inf"), 4: 1.5}),
        (["--draft-sampling", "rejection"], "draft_sampling", "rejection"),
    ],
)
def test_options_of_sampling(
    meant: Callable[..., tuple[Options, Params]], words: list[object], field: str, value: object
) -> None:
    assert getattr(meant(*words)[1].sampling, field) == value
    assert getattr(meant()[1].sampling, field) != value


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["-n", 9], "max_tokens", 9),
        (["--think"], "template", {"enable_thinking": True}),
        (["--no-think"], "template", {"enable_thinking": False}),
        (["--reasoning", "off"], "template", {"enable_thinking": False}),
        (["-rea", "on"], "template", {"enable_thinking": True}),
        (
            [
                "--chat-template-kwargs",
                '{"a": 1, "b": 2}',
                "--chat-template-kwargs",
                '{"b": 3}',
                "--no-think",
            ],
            "template",
            {"a": 1, "b": 3, "enable_thinking": False},
        ),
        (["-e", "--stop", r"\n\x41\q"], "stop", ("\nA\\q",)),
        (["--grammar", "root ::= [a]"], "grammar", "root ::= [a]"),
        (["-j", "{}"], "json_schema", "{}"),
        (["--stop", "a", "--stop", "b"], "stop", ("a", "b")),
    ],
)
def test_options_of_an_answer(
    meant: Callable[..., tuple[Options, Params]], words: list[object], field: str, value: object
) -> None:
    assert getattr(meant(*words)[1], field) == value
    assert getattr(meant()[1], field) != value


def test_all_of_them_together_give_the_engines_own_text(pair: Pair) -> None:
    caches = {"kv_type": ("f32", "bf16"), "draft_kv_type": ("q8_0", "f32")}
    sizes: dict[str, Any] = {"batch": 48, "ubatch": 24, "draft_batch": 40, "draft_context": 300}
    sizes |= {"context": 512, "draft_window": 70, "memory_limit": "2G", "flash_attn": True}
    sampling = Sampling(
        temperature=0.9,
        top_k=80,
        top_p=0.98,
        min_p=0.001,
        typical=0.99,
        repeat_penalty=1.1,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        repeat_last_n=30,
        logit_bias={7: -3.0},
        seed=11,
    )
    with dflash_gguf.load(pair.target, pair.draft, threads=1, block=6, **caches, **sizes) as engine:
        expected = engine.generate(
            "Tell me more " * 20, max_tokens=60, sampling=sampling, template=UNTHINKING
        )
    words = ["-ctk", "f32", "-ctv", "bf16", "-ctkd", "q8_0", "-ctvd", "f32", "-b", 48, "-ub", 24]
    words += ["--draft-batch", 40, "-cd", 300, "-c", 512, "--draft-window", 70, "-fa", "on"]
    words += ["--memory-limit", "2G", "-t", 1, "-tb", 1, "-td", 1, "--block", 6, "-n", 60]
    words += ["--temp", 0.9, "--top-k", 80, "--top-p", 0.98, "--min-p", 0.001, "--typical", 0.99]
    words += ["--repeat-penalty", 1.1, "--presence-penalty", 0.3, "--frequency-penalty", 0.2]
    words += [
        "--repeat-last-n",
        30,
        "-l",
        "7-3.0",
        "-s",
        11,
        "--no-think",
        "-p",
        "Tell me more " * 20,
    ]
    done = command("run", "-m", pair.target, "-md", pair.draft, *words)
    assert done.returncode == 0, done.stderr
    text = expected.text.replace("\r\n", "\n").replace("\r", "\n")
    assert done.stdout == text + "\n"
    assert f"{len(expected.tokens)} tok" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--memory-limit", "lots"], "memory_limit is 'lots'; expected a size such as '8G'"),
        (["-cd", -1], "-cd -1: expected a number of tokens"),
        (["-cd", 8, "-c", 64], "draft_context is 8; expected more than the 8 rows of a block"),
        (["--draft-window", -2], "--draft-window -2: expected a number of tokens"),
        (["-ctk", "q3_0"], "kv_type is ('q3_0', 'f16'); expected one of f32"),
        (["-ctvd", "q8_0", "-fa", "off"], "which need flash attention (-fa on or auto)"),
        (["-fa", "maybe"], "-fa maybe: expected on, off or auto"),
        (["-cram", -2], "--cache-ram -2: expected a number of MiB"),
        (["--color", "blue"], "--color blue: expected on, off or auto"),
        (["--reasoning", "deep"], "--reasoning deep: expected on, off or auto"),
        (
            ["--reasoning", "off", "--think"],
            "--think and --reasoning are given; expected one of them",
        ),
        (["--chat-template-kwargs", "[1]"], "--chat-template-kwargs [1]: expected a JSON object"),
        (
            ["--chat-template-kwargs", '{"enable_thinking": true}', "--no-think"],
            "sets enable_thinking to true, and thinking is turned off",
        ),
        (["-sysf", "/nowhere"], "--system-prompt-file /nowhere: No such file"),
        (["-sysf", "x", "-sys", "y"], "--system and --system-prompt-file are given"),
        (["-jf", "x", "--grammar", "y"], "--grammar and --json-schema-file are given"),
        (["-b", 0], "batch is 0; expected a whole number from 1"),
        (["-ub", 0], "ubatch is 0; expected a whole number from 1"),
        (["--draft-batch", 4], "draft_batch is 4; expected at least 8 for 1 sequences"),
        (["-tb", 0], "threads_batch is 0; expected a whole number from 1"),
        (["-td", 9999], "draft_threads is 9999; expected a whole number from 1"),
        (["--typical", 2], "typical is 2"),
        (["--repeat-last-n", -2], "repeat_last_n is -2"),
        (["--draft-sampling", "none"], "draft_sampling is 'none'; expected gumbel or rejection"),
    ],
)
def test_what_makes_no_sense_is_one_line(dense: Pair, words: list[object], said: str) -> None:
    given = ["run", "-m", str(dense.target), "-md", str(dense.draft), "-p", "hi"]
    result = CliRunner().invoke(app, [*given, *map(str, words)])
    assert isinstance(result.exception, dflash_gguf.UsageError), result.output
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)


def planned(text: str) -> float:
    """Return the MiB of the plan's line."""
    found = PLANNED.search(text)
    assert found is not None, text
    return float(found[1].replace(",", "")) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[found[2]]


def test_a_memory_limit_is_kept_and_what_gave_way_is_said(tiny: Tiny) -> None:
    """Kept prefixes first, then blocks, then snapshots; the text does not change."""
    draft = tiny.draft("f32")
    words = ["run", "-m", tiny.target_f32, "-md", draft, "-p", "17 + 25 =", "-n", 40, "-c", 512]
    words += ["-t", 1, "--block", 16, "--cache-ram", 512]
    free = command(*words, "-v", plan=True)
    assert free.returncode == 0
    assert "kept prefixes 512.0 MiB" in free.stderr
    whole = planned(free.stderr) - 512
    found = re.search(r"([\d.]+) MiB  snapshots", free.stderr)
    assert found is not None
    state = float(found[1]) / 15
    seen = []
    for less in (-60, 3.5 * state, 15.5 * state):
        limit = whole - less
        done = command(*words, "--memory-limit", f"{limit * 1024:.0f}K", "-v", plan=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout == free.stdout
        assert planned(done.stderr) <= limit + 0.1
        seen.append(done.stderr)
    assert all("for states of earlier texts" in text for text in seen)
    assert "rows are verified at once" not in seen[0] + seen[2]
    assert re.search(
        r"blocks of 16 do not fit in memory: at most 1[0-4] rows are verified", seen[1]
    )
    assert "the state is kept once, and after a rejected draft" in seen[2]
    assert "the state is kept once" not in seen[0] + seen[1]


def test_a_limit_that_cannot_be_met_names_a_context_that_can(dense: Pair) -> None:
    words = ["run", "-m", dense.target, "-md", dense.draft, "-p", "hi", "-n", 9, "-ctk", "f32"]
    words += ["--no-think", "--memory-limit", "40M", "-c"]
    refused = command(*words, 60_000)
    assert refused.returncode == 4
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    found = re.search(
        r"a context of 60,000 tokens takes ([\d.]+) MiB with the models, 40\.0 MiB are allowed; at most "
        r"([\d,]+) tokens would fit \(-c\)\n$",
        refused.stderr,
    )
    assert found is not None, refused.stderr
    assert float(found[1]) > 40
    most = int(found[2].replace(",", ""))
    followed = command(*words, most, "-v", plan=True)
    assert followed.returncode == 0, followed.stderr
    assert planned(followed.stderr) <= 40.05
    assert followed.stdout != "\n"
    assert command(*words, most * 4 // 3).returncode == 4
    none = command(*words[:-3], "--memory-limit", "1M", "-c", 256)
    assert none.returncode == 4
    assert "1.0 MiB are allowed; no context fits: take a smaller model" in none.stderr


@pytest.mark.parametrize("option", ["--tensor-split", "--rpc"])
def test_devices_are_not_split_between(dense: Pair, option: str) -> None:  # L7, B8
    done = command("run", "-m", dense.target, "-p", "hi", option, "1,1")
    assert done.returncode == 2
    assert done.stderr.startswith(f"dflash-gguf: {option} is not an option here: ")
    assert "with -dev" in done.stderr


def test_a_drafter_on_a_named_device_works(dense: Pair) -> None:  # L7
    words = ["run", "-m", dense.target, "-md", dense.draft, "-p", "hi", "-n", 9]
    names = [device.name for device in devices()]
    plain = command(*words)
    for option in ("-dev", "-devd"):
        done = command(*words, option, names[0])
        assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr

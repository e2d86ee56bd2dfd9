"""Options as llama-cli, mlx_lm and ollama spell them: what they become, and which are refused with advice."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from dflash_gguf.__main__ import app
from dflash_gguf.commands._elsewhere import BY_NAME, FOREIGN
from dflash_gguf.errors import UsageError

from .support.command import command
from .support.random_pairs import Pair


@pytest.fixture
def run() -> Any:
    group: Any = typer.main.get_command(app)
    return group.commands["run"]


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("-hf a/b:Q4_0", "--target a/b:Q4_0"),
        ("--model-draft d.gguf", "--draft d.gguf"),
        ("--spec-draft-n-max 15", "--block 16"),
        ("--draft-max=7", "--block 8"),
        ("--num-draft-tokens 0", "--block 1"),
        ("--spec-type draft-dflash", ""),
        ("--spec-type none", "--no-draft"),
        ("-ngl 99 --jinja -n 5", "-ngl 99 -n 5"),
        ("-fa", "-fa on"),
        ("-fa -t 2", "-fa on -t 2"),
        ("-fa -1", "-fa -1"),
        ("-fa off", "-fa off"),
        ("--flash-attn=auto", "--flash-attn=auto"),
        ("--color -st", "--color on -st"),
        ("--top_k 5 --repeat_last_n 3", "--top-k 5 --repeat-last-n 3"),
        ("--typical-p 0.9", "--typical 0.9"),
        ("-r END", "--stop END"),
        ("--reasoning-effort default", ""),
        ("--reasoning-budget -1", ""),
        ("-lm none", "--no-mmap"),
        ("-p --jinja --jinja", "-p --jinja"),  # what stands behind -p is a prompt
        ("-e --mlock_ x", "-e --mlock_ x"),  # not ours, nor theirs: for the parser to refuse
        ("--no-warmup -- --mlock --jinja", "-- --mlock --jinja"),
        ("-v -p", "-v -p"),
    ],
)
def test_words_become_ours(run: Any, typed: str, ours: str) -> None:
    assert run.translated(typed.split()) == ours.split()


def test_an_effort_is_an_argument_of_the_template(run: Any) -> None:
    made = run.translated(["--reasoning-effort", "low"])
    assert made == ["--chat-template-kwargs", '{"reasoning_effort": "low"}']


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("--mlock", "--mlock is not an option here: memory is not locked; --no-mmap"),
        ("-no-cnv", "-p TEXT answers once"),
        ("--mirostat 2", "there are --temp, --top-k"),
        ("-ts 1,1", "name one with -dev"),
        ("--list-devices", "dflash-gguf devices"),
        ("--lora=x.gguf", "adapters cannot be loaded"),
        ("--spec-draft-p-min 0.5", "--block auto drafts as much as pays"),
        ("--spec-type draft-mtp", "--spec-type draft-mtp: drafts come from DFlash"),
        ("--draft-max many", "--draft-max many: expected a number of drafted tokens"),
        ("--reasoning-budget 99", "--reasoning off"),
        ("--reasoning-format none", "--hide-thinking hides it"),
        ("-lm mlock", "expected auto, none (--no-mmap) or mmap (--mmap)"),
    ],
)
def test_what_there_is_not_says_what_there_is(run: Any, typed: str, advice: str) -> None:
    with pytest.raises(UsageError) as refused:
        run.translated(typed.split())
    assert advice in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_name_is_there_twice_and_all_advice_names_options_that_exist(run: Any) -> None:
    names = [name for each in FOREIGN for name in each.names]
    assert len(names) == len(set(names)) == len(BY_NAME) > 100
    own = {name for param in run.params for name in (*param.opts, *param.secondary_opts)}
    assert not own & set(names)
    for each in FOREIGN:
        value = "none" if each.names[0] in {"--spec-type", "-lm"} else "1"
        try:
            words = each.becomes(each.names[0], value)
        except UsageError:
            continue
        assert not words or words[0] in own, each.names


def test_a_line_of_llama_cli_runs(dense: Pair) -> None:
    line = (
        "--model-draft DRAFT -ngl 0 -fa --no-mmap -st --color off -e --jinja --spec-draft-n-max 3"
    )
    line += (
        " --spec-type draft-dflash -cram 16 --reasoning off --temp 0 --log-disable -n 9 -c 512 -t 1"
    )
    words = [dense.draft if word == "DRAFT" else word for word in line.split()]
    done = command("run", "-m", dense.target, *words, "-p", r"a\nb")
    assert done.returncode == 0, done.stderr
    ours = ["-md", dense.draft, "--no-think", "--block", 4, "-n", 9, "-c", 512, "-t", 1]
    assert done.stdout == command("run", "-m", dense.target, *ours, "-p", "a\nb").stdout
    refused = command("run", "-m", dense.target, "--mlock", "-p", "hi")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("dflash-gguf: --mlock is not an option here: ")
    assert refused.stderr.count("\n") == 1

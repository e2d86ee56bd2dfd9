"""`dflash-gguf run` for one answer, in real processes: streams, exit codes, interruptions, bad input."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import dflash_gguf

from .support.command import COMMAND, UNTHINKING, WAIT, command, endless, start
from .support.edited import edited
from .support.random_pairs import Pair

LINE = re.compile(
    r"^\d+ tok · [\d,.]+ tok/s · prompt [\d,]+ tok/s · accept \d\.\d/8 \(\d\.\d\d\)\n$"
)


def test_stdout_is_the_answer_and_stderr_the_statistics(pair: Pair) -> None:  # H7
    with dflash_gguf.load(pair.target, pair.draft, threads=1) as engine:
        expected = engine.generate("Why?", max_tokens=40, template=UNTHINKING)
    arguments = ["run", "--target", pair.target, "--draft", pair.draft, "--block", 8]
    result = command(*arguments, "-p", "Why?", "-n", 40, "-t", 1, "--no-think")
    assert result.returncode == 0
    # stdout translates line ends when decoded
    assert result.stdout == expected.text.replace("\r\n", "\n").replace("\r", "\n") + "\n"
    assert LINE.match(result.stderr), result.stderr


def test_quiet_leaves_nothing_but_the_answer(dense: Pair) -> None:
    loud = command("run", "-m", dense.target, "-md", dense.draft, "-p", "hi", "-n", 20)
    quiet = command("run", "-m", dense.target, "-md", dense.draft, "-p", "hi", "-n", 20, "-q")
    assert (quiet.stdout, quiet.stderr) == (loud.stdout, "")


def test_the_drafter_changes_nothing_but_the_statistics(pair: Pair) -> None:
    arguments = ["run", "-m", pair.target, "-p", "Tell me", "-n", 60, "--temp", 0, "-c", 512]
    texts = set()
    for more in (
        ["--draft", pair.draft, "--block", 8],
        ["--draft", pair.draft, "--block", 3],
        [],
        ["--draft", "none", "--no-draft", "--block", 99],
    ):
        result = command(*arguments, *more)
        assert result.returncode == 0, result.stderr
        assert ("no drafts" in result.stderr) == (not more or "--no-draft" in more)
        texts.add(result.stdout)
    assert len(texts) == 1


def test_a_seed_gives_one_text_and_is_told(dense: Pair) -> None:
    sampled = ["--temp", 1.2, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.01, "-l", "200-inf"]
    arguments = [
        "run",
        "-m",
        dense.target,
        "-p",
        "Tell me",
        "-n",
        30,
        "-c",
        512,
        "--no-think",
        *sampled,
    ]
    first = command(*arguments)  # draws a seed
    told = re.search(r" · seed (\d+)$", first.stderr.strip())
    assert told is not None, first.stderr
    with_draft = command(*arguments, "-md", dense.draft, "--seed", told[1])
    other = command(*arguments, "--seed", int(told[1]) + 1)
    assert first.stdout == with_draft.stdout != other.stdout
    assert f"seed {told[1]}" in with_draft.stderr


def test_llama_cpps_spellings_are_taken(dense: Pair) -> None:
    spelled = ["--model", dense.target, "--draft-model", dense.draft, "--n-predict", 9, "--temperature", 0,
               "--ctx-size", 300, "--threads", 1, "--n-gpu-layers", 0, "-ngld", "auto", "--prompt", "hi"]  # fmt: skip
    short = ["-m", dense.target, "-md", dense.draft, "-n", 9, "--temp", 0, "-c", 300, "-t", 1, "-ngl", "auto",
             "-ngld", 0, "-p", "hi"]  # fmt: skip
    first, second = command("run", *spelled), command("run", *short)
    assert (first.returncode, first.stdout) == (0, second.stdout)


def test_thinking_is_a_switch_of_the_template(dense: Pair, tmp_path: Path) -> None:
    words = "{{ 'unset' if enable_thinking is not defined else enable_thinking }}"
    template = "{{ raise_exception('thinking: ' ~ (" + words[2:-2] + ")) }}"
    target = edited(dense.target, tmp_path / "t.gguf", change={"tokenizer.chat_template": template})
    for flag, value in (("--think", "True"), ("--no-think", "False"), ("-q", "unset")):
        result = command("run", "-m", target, "-p", "hi", flag)
        assert (result.returncode, result.stderr) == (
            2, f"dflash-gguf: the chat template refuses these messages: thinking: {value}\n"
        )  # fmt: skip


def test_a_folder_gives_its_drafter(dense: Pair, tmp_path: Path) -> None:
    shutil.copy(dense.draft, tmp_path / "some-F32.gguf")
    result = command("run", "-m", dense.target, "--draft", tmp_path, "-p", "hi", "-n", 9)
    assert result.returncode == 0
    assert f"draft: {tmp_path / 'some-F32.gguf'}\n" in result.stderr


def test_a_checkpoints_folder_is_converted_once(dense: Pair, tmp_path: Path) -> None:
    folder = dense.draft.parent / "draft"
    arguments = ("run", "-m", dense.target, "--draft", folder, "-p", "hi", "-n", 9)
    first = command(*arguments)
    assert first.returncode == 0, first.stderr
    assert f"draft: converting {folder} to {tmp_path / 'cache'}" in first.stderr
    second = command(*arguments)
    assert "converted before from" in second.stderr
    assert "converting" not in second.stderr
    assert second.stdout == first.stdout
    assert len(list((tmp_path / "cache").rglob("*.gguf"))) == 1


def test_no_template_is_a_warning(dense: Pair, tmp_path: Path) -> None:  # P1
    target = edited(dense.target, tmp_path / "t.gguf", drop=("tokenizer.chat_template",))
    result = command("run", "-m", target, "-p", "hi", "-n", 4)
    assert result.returncode == 0
    assert result.stderr.startswith(
        "warning: the target has no chat template; the prompt is taken as plain text\n"
    )


def test_a_context_beyond_the_training_is_a_warning(dense: Pair) -> None:
    result = command("run", "-m", dense.target, "-p", "hi", "-n", 4, "-c", 5000, "-q")
    assert result.returncode == 0
    assert result.stderr == (
        "warning: a context of 5000 tokens is longer than the 4096 that the target was trained for; text beyond "
        "may make no sense\n"
    )


def test_a_full_context_is_said(dense: Pair, tmp_path: Path) -> None:
    target = endless(dense, tmp_path / "t.gguf")
    result = command("run", "-m", target, "-p", "hi", "-c", 100)
    assert result.returncode == 0
    assert "note: the context of 100 tokens is full; a larger one: -c\n" in result.stderr


def test_odd_bytes_and_streams_are_no_fault(dense: Pair) -> None:
    arguments = ["run", "-m", dense.target, "-n", 30, "-q", "-p"]
    narrow = command(*arguments, "日本🙂", env={"PYTHONIOENCODING": "ascii"})
    assert (narrow.returncode, narrow.stderr) == (0, "")
    assert narrow.stdout.isascii()
    broken = subprocess.run(
        [*COMMAND, *map(str, arguments), b"\xff\xfe"], capture_output=True, check=False, cwd="/"
    )
    assert (broken.returncode, broken.stderr) == (0, b"")
    for closing in ("<&-", ">&-", "2>&-"):
        script = f'exec "$@" {closing}'
        closed = subprocess.run(
            ["sh", "-c", script, "sh", *COMMAND, *map(str, arguments), "hi"],
            capture_output=True,
            check=False,
            cwd="/",
        )
        assert (closed.returncode, closed.stderr) == (0, b""), closing


def test_an_interrupt_keeps_what_was_said(dense: Pair, tmp_path: Path) -> None:
    process = start("run", "-m", endless(dense, tmp_path / "t.gguf"), "-p", "hi", "-c", 50_000)
    assert process.stdout is not None
    begun = process.stdout.read(64)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert len(begun) == 64
    assert rest.endswith(b"\n")
    said = errors.decode().strip()
    assert re.fullmatch(r"\d+ tok · .* tok/s · prompt .* tok/s · no drafts", said)


def test_a_reader_that_leaves_ends_it_quietly(dense: Pair, tmp_path: Path) -> None:
    target = endless(dense, tmp_path / "t.gguf")
    process = start("run", "-m", target, "-p", "hi", "-c", 50_000, "-q")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(WAIT) != 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_llama_cpps_log_is_shown_when_asked_for(dense: Pair) -> None:
    result = command("run", "-m", dense.target, "-p", "hi", "-n", 4, "-vv")
    assert result.returncode == 0
    assert "llama_model_loader" in result.stderr
    assert "llama" not in result.stdout


def test_texts_keep_to_a_grammar_or_a_schema(dense: Pair, tmp_path: Path) -> None:
    path = tmp_path / "g.gbnf"
    path.write_text('root ::= "ab" [0-3]{2}\n', encoding="utf-8")
    pair = ("run", "--target", dense.target, "--draft", dense.draft, "-p", "x", "-c", 64)
    for options in (("--grammar-file", path), ("--grammar", path.read_text(encoding="utf-8"))):
        assert re.fullmatch("ab[0-3]{2}\n", command(*pair, *options).stdout)
    done = command(*pair, "-j", '{"enum": ["é", 12]}', "--temp", 1, "--draft-sampling", "rejection")
    assert done.stdout in {'"é"\n', "12\n"}
    done = command(*pair, "--grammar", "root ::= [a", "-q")
    assert "the grammar, line 1: expected a closing bracket, found the end" in done.stderr
    assert done.returncode == 2
    done = command(*pair, "-j", "{", "--grammar-file", path)
    assert "--grammar-file and --json-schema are given; expected one of them" in done.stderr

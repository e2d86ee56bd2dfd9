"""Completion in a shell: the scripts, a real bash that uses them, and where they are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import shellingham

from dflash_gguf.commands._completion import DETECT, show, with_shells
from dflash_gguf.errors import UsageError

from .support.command import command

BASH = shutil.which("bash")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A `dflash-gguf` on a path of its own, as an installation puts it there."""
    made = tmp_path / "bin" / "dflash-gguf"
    made.parent.mkdir()
    code = "import sys; sys.argv[0] = 'dflash-gguf'; from dflash_gguf.__main__ import main; main()"
    made.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -c "{code}" "$@"\n')
    made.chmod(0o755)
    return made


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o default"), ("zsh", "#compdef"), ("fish", "complete --command")]
)  # fmt: skip
def test_every_shell_has_a_script(shell: str, mark: str) -> None:
    shown = command("--show-completion", shell)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert mark in shown.stdout
    assert "_DFLASH_GGUF_COMPLETE" in shown.stdout


@pytest.mark.skipif(BASH is None, reason="there is no bash here")
def test_bash_completes_commands_options_and_files(program: Path) -> None:
    script = """
        PATH="$1:$PATH"; eval "$(dflash-gguf --show-completion bash)"; complete -p dflash-gguf
        ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _dflash_gguf_completion dflash-gguf
                echo "$2 $3: ${COMPREPLY[*]}"; }
        ask dflash-gguf qu; ask dflash-gguf run --reason; ask dflash-gguf run --mlock --draft-s
        ask dflash-gguf convert --outt; ask dflash-gguf --show
    """
    done = subprocess.run(
        [str(BASH), "--norc", "-c", script, "bash", str(program.parent)],
        capture_output=True, text=True, timeout=60, cwd="/", check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert (
        done.stdout.splitlines()
        == [
            "complete -o default -F _dflash_gguf_completion dflash-gguf",
            "qu : quantize",
            "run --reason: --reasoning",
            "run --mlock: --draft-sampling",  # what is refused when it runs does not keep it from helping
            "convert --outt: --outtype",
            "--show : --show-completion",
        ]
    )


@pytest.mark.parametrize(
    ("shell", "path", "sourced"),
    [
        ("bash", ".bash_completions/dflash-gguf.sh", ".bashrc"),
        ("zsh", ".zfunc/_dflash-gguf", ".zshrc"),
        ("fish", ".config/fish/completions/dflash-gguf.fish", None),
    ],
)
def test_it_is_installed_where_a_shell_looks(
    shell: str, path: str, sourced: str | None, tmp_path: Path
) -> None:
    told = command("--install-completion", shell, env={"HOME": str(tmp_path)})
    assert told.returncode == 0, told.stderr
    assert str(tmp_path / path) in told.stderr
    assert (tmp_path / path).read_text().strip() == command(
        "--show-completion", shell
    ).stdout.strip()
    if sourced:
        assert ".bash_completions" in (text := (tmp_path / sourced).read_text()) or ".zfunc" in text


def test_without_a_name_the_shell_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> tuple[str, str]:  # as in a container
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr(shellingham, "detect_shell", none)
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert with_shells(["--show-completion"]) == ["--show-completion", DETECT]
    assert with_shells(["run", "--show-completion"]) == ["run", "--show-completion"]
    show(DETECT)
    assert capsys.readouterr().out.startswith("complete --command dflash-gguf")
    monkeypatch.delenv("SHELL")
    with pytest.raises(
        UsageError, match=r"the shell is not known; name one: --show-completion bash"
    ):
        show(DETECT)
    refused = command("--show-completion", "tcsh")
    assert refused.returncode == 2
    assert refused.stderr == (
        "dflash-gguf: completion is for bash, zsh, fish, and the shell is tcsh; name one: --show-completion bash\n"
    )

"""`dflash-gguf bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._fetched import complete_model

_PAIR, _ASKED, _PEERS, _OUTPUT = "The pair", "What is asked", "Other engines", "Output"


def bench(
    command: typer.Context,
    target: Annotated[
        Path | None,
        typer.Option(
            "--target",
            "-m",
            "--model",
            help="The target model: a GGUF, or user/repo[:QUANT] of the Hugging Face Hub.",
            show_default=False,
            rich_help_panel=_PAIR,
            autocompletion=complete_model,
        ),
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft",
            "-md",
            "--draft-model",
            help="The drafter, likewise; or a folder with its checkpoint.",
            show_default=False,
            rich_help_panel=_PAIR,
            autocompletion=complete_model,
        ),
    ] = None,
    modes: Annotated[
        str | None,
        typer.Option(
            help="ar (plain decoding), dflash, mtp (by a server that has it), with commas between.",
            show_default="ar,dflash",
            rich_help_panel=_PAIR,
        ),
    ] = None,
    block: Annotated[
        str,
        typer.Option(
            help="Rows of a verify, each of them an arm: numbers from 2, or auto, with commas between.",
            rich_help_panel=_PAIR,
        ),
    ] = "auto",
    context: Annotated[
        int,
        typer.Option(
            "--ctx-size",
            "-c",
            help="Context of each request in tokens; 0: up to 8192, as the model allows.",
            rich_help_panel=_PAIR,
        ),
    ] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            "-t",
            help="CPU threads.",
            show_default="physical cores",
            rich_help_panel=_PAIR,
        ),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep",
            help="Ask nothing; time a verify and a draft of every width, and name the best width by acceptance.",
            rich_help_panel=_PAIR,
        ),
    ] = False,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="CURVE",
            help="Draw how many drafts are accepted: a curve's name, or its probabilities with commas between. "
            "For pairs whose weights mean nothing; all output says so.",
            show_default=False,
            rich_help_panel=_PAIR,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="gsm8k, math500, humaneval, mbpp, mt-bench, alpaca, builtin, tiny, or NAME=FILE.jsonl, with commas "
            "between or given again; NAME:KIND asks one kind of its questions. Public sets come through `datasets` unless they have a file.",
            show_default="builtin",
            rich_help_panel=_ASKED,
        ),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Questions of each workload, chosen by one seed.",
            show_default="10, or as many as run at a time",
            rich_help_panel=_ASKED,
        ),
    ] = None,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            "-n",
            "--n-predict",
            min=1,
            help="Tokens of an answer.",
            rich_help_panel=_ASKED,
        ),
    ] = 256,
    concurrency: Annotated[
        str,
        typer.Option(
            help="Requests at a time, with commas between.",
            rich_help_panel=_ASKED,
        ),
    ] = "1",
    runs: Annotated[
        int,
        typer.Option(min=1, help="Runs that count, after one to warm up.", rich_help_panel=_ASKED),
    ] = 5,
    think: Annotated[
        bool | None,
        typer.Option(
            "--think/--no-think",
            help="Whether the chat template lets the model think first.",
            show_default="the template's",
            rich_help_panel=_ASKED,
        ),
    ] = None,
    temp: Annotated[
        float,
        typer.Option(
            "--temp",
            "--temperature",
            min=0,
            help="Temperature of sampling; 0: the most likely token.",
            rich_help_panel=_ASKED,
        ),
    ] = 0.0,
    top_k: Annotated[
        int,
        typer.Option(
            min=0, help="Sample from the most likely tokens; 0: all.", rich_help_panel=_ASKED
        ),
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(
            help="Sample from the most likely tokens up to this probability.",
            rich_help_panel=_ASKED,
        ),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option("--seed", "-s", min=0, help="Of sampling.", rich_help_panel=_ASKED)
    ] = 0,
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="An OpenAI-compatible server to measure beside; may be given again. dflash:8=URL, mtp:3=URL put it "
            "among these columns, else it counts as a baseline.",
            show_default=False,
            rich_help_panel=_PEERS,
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROGRAM",
            help="A llama-server, by name or path, to start beside each of our arms: plain, and with as many drafts "
            "as our blocks have.",
            show_default=False,
            rich_help_panel=_PEERS,
        ),
    ] = None,
    peer_cmd: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND",
            help="Start any server and end it; {port} in it becomes its port, {concurrency} the requests at a time "
            "and {context} the context of them all. Of llama-server the column is read from --spec-type and "
            "--spec-draft-n-max.",
            show_default=False,
            rich_help_panel=_PEERS,
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream/--no-stream",
            help="Ask servers for answers piece by piece, or whole: pieces tell the first token's time, and cost some.",
            rich_help_panel=_PEERS,
        ),
    ] = True,
    peer_model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model to ask servers for.",
            show_default="the one they list",
            rich_help_panel=_PEERS,
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Form on stdout: md, json, jsonl or csv.",
            rich_help_panel=_OUTPUT,
        ),
    ] = "md",
    save_dir: Annotated[
        Path | None,
        typer.Option(
            help="Keep every run, as soon as it is over, in a new folder in this one.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write PNGs into this folder: throughput, acceptance, speed-up.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    show: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Measure nothing, show a run that --save-dir kept or a file that -o json wrote.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Nothing on stderr but warnings and errors.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
) -> None:
    """Measure as the drafters' model cards do: workloads, concurrencies, blocks, arms in turns, and their tables.

    Ctrl-C shows the tables of what was measured by then. Exit code 1: an arm failed, or its counts do not add up.

    Examples:
        dflash-gguf bench -m target.gguf -md draft.gguf --workload builtin --block 4,8,16,auto
        dflash-gguf bench -m target.gguf -md draft.gguf --concurrency 1,8,32 --save-dir runs --plot plots
        dflash-gguf bench -m target.gguf -md draft.gguf --block 4,8,16 --concurrency 1,8,32 --peer llama-server
        dflash-gguf bench -m target.gguf -md draft.gguf --peer-cmd "llama-server -m target.gguf --port {port}"
        dflash-gguf bench --show runs/20261130T120000Z -o csv
    """
    from ..bench.idle import refuse_idle
    from ..bench.measuring import Wishes, measured, swept
    from ..bench.showing import shown
    from ..terminal import show_notes
    from ._fetched import gguf_files

    show_notes(quiet=True)
    drafts = draft is not None and (modes is None or "dflash" in modes)
    refuse_idle(*_given(command), dflash=drafts, greedy=temp == 0)
    if show is not None:
        good = shown(show, output, plot)
    else:
        if target is not None:
            target, draft = gguf_files(target, draft, quiet=quiet)
        wishes = Wishes(
            target=target,
            draft=draft,
            modes=modes,
            block=block,
            context=context,
            threads=threads,
            simulate=simulate,
            workloads=tuple(workload or ["builtin"]),
            questions=questions,
            max_tokens=max_tokens,
            concurrency=concurrency,
            runs=runs,
            think=think,
            temperature=temp,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            base_urls=tuple(base_url or []),
            peer_commands=tuple(peer_cmd or []),
            peer_programs=tuple(peer or []),
            peer_model=peer_model,
            streams=stream,
        )
        if sweep:
            swept(wishes, output, quiet=quiet)
            return
        good = measured(wishes, output, save_dir, plot, quiet=quiet)
    if not good:
        raise typer.Exit(1)


def _given(command: typer.Context) -> tuple[set[str], dict[str, str]]:
    """Return the options on the command line, by their parameters' names, and how all are spelt."""
    flags = {str(option.name): option.opts[0] for option in command.command.params}
    sources = {name: command.get_parameter_source(name) for name in flags}
    given = {name for name, source in sources.items() if source and source.name != "DEFAULT"}
    return given, flags

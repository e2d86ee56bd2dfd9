"""Options of `run`: which pair, what is asked, how it is shown, where models go. Spelt as in llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._fetched import complete_model
from ._panels import DRAFTING, PAIR, PLACES, QUESTION, SHOWN

Target = Annotated[
    Path,
    typer.Option(
        "--target",
        "-m",
        "--model",
        help="The target model: a GGUF, or user/repo[:QUANT] of the Hugging Face Hub.",
        show_default=False,
        autocompletion=complete_model,
        rich_help_panel=PAIR,
    ),
]
Draft = Annotated[
    Path | None,
    typer.Option(
        "--draft",
        "-md",
        "--draft-model",
        help="The drafter: a GGUF, a folder with one or with its checkpoint, or a repository's name likewise.",
        show_default=False,
        autocompletion=complete_model,
        rich_help_panel=PAIR,
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PROMPT]...",
        help="What to answer, as -p; without a prompt, chat.",
        show_default=False,
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        "-p",
        help="Answer this and end.",
        show_default=False,
        rich_help_panel=QUESTION,
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        help="Answer the text of this file and end.",
        show_default=False,
        rich_help_panel=QUESTION,
    ),
]
Escape = Annotated[
    bool,
    typer.Option(
        "--escape/--no-escape",
        "-e",
        help=r"Read \n, \t, \\ and the like in -p, --system and --stop.",
        rich_help_panel=QUESTION,
    ),
]
System = Annotated[
    str,
    typer.Option(
        "--system",
        "-sys",
        "--system-prompt",
        help="System prompt.",
        show_default=False,
        rich_help_panel=QUESTION,
    ),
]
SystemFile = Annotated[
    Path | None,
    typer.Option(
        "--system-prompt-file",
        "-sysf",
        help="A file with the system prompt.",
        show_default=False,
        rich_help_panel=QUESTION,
    ),
]
Conversation = Annotated[
    bool,
    typer.Option(
        "--conversation",
        "-cnv",
        help="Take each line of stdin as a message, one turn each.",
        rich_help_panel=QUESTION,
    ),
]
SingleTurn = Annotated[
    bool,
    typer.Option(
        "--single-turn",
        "-st",
        help="Refuse to chat if there is no prompt.",
        rich_help_panel=QUESTION,
    ),
]
Session = Annotated[
    Path | None,
    typer.Option(
        help="Go on with the conversation in this file, if there is one, and keep it there.",
        show_default=False,
        rich_help_panel=QUESTION,
    ),
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "-n",
        "--n-predict",
        help="Tokens to write; -1: until the model ends or the context is full.",
        rich_help_panel=QUESTION,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        help="End the answer before this text; may be given again.",
        show_default=False,
        rich_help_panel=QUESTION,
    ),
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        help="Whether the chat template lets the model think first.",
        show_default="the template's",
        rich_help_panel=QUESTION,
    ),
]
Reasoning = Annotated[
    str,
    typer.Option(
        "--reasoning",
        "-rea",
        metavar="on|off|auto",
        help="The same in llama.cpp's words.",
        rich_help_panel=QUESTION,
    ),
]
TemplateArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--chat-template-kwargs",
        metavar="JSON",
        help="""An object of values for the chat template, such as '{"reasoning_effort": "low"}'.""",
        show_default=False,
        rich_help_panel=QUESTION,
    ),
]
JsonOutput = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One answer as a JSON document: text, reasoning, figures.",
        rich_help_panel=SHOWN,
    ),
]
ShowThinking = Annotated[
    bool,
    typer.Option(
        "--show-thinking/--hide-thinking",
        help="Show thinking, dim, on a terminal's stderr.",
        rich_help_panel=SHOWN,
    ),
]
ShowAccepted = Annotated[
    bool,
    typer.Option(
        "--show-accepted",
        help="Tint what was accepted from drafts, on a terminal.",
        rich_help_panel=SHOWN,
    ),
]
Color = Annotated[
    str,
    typer.Option(
        "--color",
        "-co",
        metavar="on|off|auto",
        help="Colours and styles; on and off are FORCE_COLOR and NO_COLOR.",
        rich_help_panel=SHOWN,
    ),
]
NoHistory = Annotated[
    bool,
    typer.Option(
        "--no-history",
        help="Do not keep what is typed for the next chat.",
        rich_help_panel=SHOWN,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Nothing on stderr but warnings and errors.",
        rich_help_panel=SHOWN,
    ),
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        help="Every line of the memory plan, llama.cpp's warnings; twice: its whole log.",
        rich_help_panel=SHOWN,
    ),
]
NoDraft = Annotated[
    bool, typer.Option("--no-draft", help="Leave the drafter out.", rich_help_panel=DRAFTING)
]
Block = Annotated[
    str,
    typer.Option(
        help="Rows of a verify: auto (what is fastest), or 1 (no drafts) to the drafter's block.",
        rich_help_panel=DRAFTING,
    ),
]
DraftSampling = Annotated[
    str,
    typer.Option(
        metavar="gumbel|rejection",
        help="How drafted tokens are sampled: with the target's own noise (a seed gives one text), or "
        "from the draft's distribution (may keep more, and a seed's text then depends on the drafter "
        "and the block).",
        rich_help_panel=DRAFTING,
    ),
]
Context = Annotated[
    int,
    typer.Option(
        "--ctx-size",
        "-c",
        help="Context in tokens; 0: up to 8192, as the model allows.",
        rich_help_panel=PLACES,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        "-t",
        help="CPU threads; -1: the default.",
        show_default="physical cores",
        rich_help_panel=PLACES,
    ),
]
GpuLayers = Annotated[
    str,
    typer.Option(
        "--gpu-layers",
        "-ngl",
        "--n-gpu-layers",
        help="Target layers on the GPU: a number, all, or auto (all if there is one).",
        rich_help_panel=PLACES,
    ),
]
DraftGpuLayers = Annotated[
    str,
    typer.Option(
        "--draft-gpu-layers",
        "-ngld",
        help="Draft layers on the GPU, likewise.",
        rich_help_panel=PLACES,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "-dev",
        help="Devices of the target, by comma; `dflash-gguf devices` lists them.",
        show_default=False,
        rich_help_panel=PLACES,
    ),
]
DraftDevice = Annotated[
    str,
    typer.Option(
        "--draft-device",
        "-devd",
        help="Devices of the drafter.",
        show_default=False,
        rich_help_panel=PLACES,
    ),
]

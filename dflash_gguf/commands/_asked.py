"""Options of `run`: what is asked, how tokens are chosen, where models go. Spelt as in llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._fetched import complete_model

Target = Annotated[
    Path,
    typer.Option(
        "--target",
        "-m",
        "--model",
        help="The target model: a GGUF, or user/repo[:QUANT] of the Hugging Face Hub.",
        show_default=False,
        autocompletion=complete_model,
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
    typer.Option("--prompt", "-p", help="Answer this and end.", show_default=False),
]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Answer the text of this file and end.", show_default=False),
]
System = Annotated[str, typer.Option("--system", "-sys", help="System prompt.", show_default=False)]
Conversation = Annotated[
    bool,
    typer.Option(
        "--conversation", "-cnv", help="Take each line of stdin as a message, one turn each."
    ),
]
Session = Annotated[
    Path | None,
    typer.Option(
        help="Go on with the conversation in this file, if there is one, and keep it there.",
        show_default=False,
    ),
]
JsonOutput = Annotated[
    bool,
    typer.Option("--json", help="One answer as a JSON document: text, reasoning, figures."),
]
ShowThinking = Annotated[
    bool,
    typer.Option(
        "--show-thinking/--hide-thinking", help="Show thinking, dim, on a terminal's stderr."
    ),
]
ShowAccepted = Annotated[
    bool,
    typer.Option("--show-accepted", help="Tint what was accepted from drafts, on a terminal."),
]
NoDraft = Annotated[bool, typer.Option("--no-draft", help="Leave the drafter out.")]
Block = Annotated[
    str,
    typer.Option(
        help="Rows of a verify: auto (what is fastest), or 1 (no drafts) to the drafter's block."
    ),
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "-n",
        "--n-predict",
        help="Tokens to write; -1: until the model ends or the context is full.",
    ),
]
Temp = Annotated[
    float,
    typer.Option(
        "--temp", "--temperature", help="Temperature of sampling; 0: the most likely token."
    ),
]
TopK = Annotated[int, typer.Option(help="Sample from the most likely tokens; 0: all.")]
TopP = Annotated[
    float, typer.Option(help="Sample from the most likely tokens up to this probability.")
]
MinP = Annotated[
    float, typer.Option(help="Drop tokens below this share of the most likely one's chance.")
]
Typical = Annotated[float, typer.Option(help="Locally typical sampling; 1: off.")]
RepeatPenalty = Annotated[float, typer.Option(help="Divides the logits of recent tokens; 1: off.")]
PresencePenalty = Annotated[
    float, typer.Option(help="Subtracted once from the logits of recent tokens.")
]
FrequencyPenalty = Annotated[
    float, typer.Option(help="Subtracted for every occurrence of a recent token.")
]
RepeatLastN = Annotated[int, typer.Option(help="Tokens that count as recent; -1: all, 0: none.")]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        "-l",
        help="TOKEN_ID(+/-)BIAS, such as 15043-1 or 2-inf; may be given again.",
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", "-s", help="Of sampling; a seed gives one text. -1: any."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(help="End the answer before this text; may be given again.", show_default=False),
]
DraftSampling = Annotated[
    str,
    typer.Option(
        help="How drafted tokens are sampled: gumbel (with the target's own noise: a seed gives one "
        "text) or rejection (from the draft's distribution; may keep more, and the text of a seed then "
        "depends on the drafter and the block)."
    ),
]
Grammar = Annotated[
    str | None,
    typer.Option(help="GBNF that answers must keep to.", show_default=False),
]
GrammarFile = Annotated[
    Path | None, typer.Option(help="A file with such a grammar.", show_default=False)
]
JsonSchema = Annotated[
    str | None,
    typer.Option(
        "--json-schema",
        "-j",
        help="JSON schema that answers must be a value of; {} for any JSON.",
        show_default=False,
    ),
]
Context = Annotated[
    int,
    typer.Option("--ctx-size", "-c", help="Context in tokens; 0: up to 8192, as the model allows."),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", "-t", help="CPU threads; -1: the default.", show_default="physical cores"
    ),
]
GpuLayers = Annotated[
    str,
    typer.Option(
        "--gpu-layers",
        "-ngl",
        "--n-gpu-layers",
        help="Target layers on the GPU: a number, all, or auto (all if there is one).",
    ),
]
DraftGpuLayers = Annotated[
    str,
    typer.Option("--draft-gpu-layers", "-ngld", help="Draft layers on the GPU, likewise."),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "-dev",
        help="Devices of the target, by comma; `dflash-gguf devices` lists them.",
    ),
]
DraftDevice = Annotated[
    str, typer.Option("--draft-device", "-devd", help="Devices of the drafter.")
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        help="Whether the chat template lets the model think first.",
        show_default="the template's",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Nothing on stderr but warnings and errors.")
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        help="Every line of the memory plan, llama.cpp's warnings; twice: its whole log.",
    ),
]

NoHistory = Annotated[
    bool, typer.Option("--no-history", help="Do not keep what is typed for the next chat.")
]

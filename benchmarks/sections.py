"""What BENCHMARKS.md consists of: sections of commands, and how what they print is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from report_tables import (
    Columns,
    Lines,
    as_they_are,
    bench_tables,
    peers_table,
    pivot,
    sweep_of,
    wrote,
)

from dflash_gguf.bench.tables import Table

SERVER = "{server}"  # llama-server's path in a command
BENCH, SHAPE = ("dflash-gguf", "bench"), ("dflash-gguf", "shape")
CURVE = "qwen3.5-9b-gsm8k"
TINY = ("--target", "models/tiny/target.gguf", "--draft", "build/demo/tiny-draft-BF16.gguf")


@dataclass(frozen=True, slots=True)
class Step:
    """A command in the repository's folder, and the tables of the JSON that it prints."""

    words: tuple[str, ...]
    tables: Callable[[Lines], Sequence[Table]]
    document: bool = False  # one JSON document, else a line for each object


@dataclass(frozen=True, slots=True)
class Section:
    """A part of BENCHMARKS.md that is measured as a whole.

    Attributes:
        minutes: that it takes, on the two cores it was written on.
        text: what it shows.
        unasked: whether it is measured if no section is named.
    """

    name: str
    title: str
    minutes: float
    text: str
    steps: tuple[Step, ...]
    unasked: bool = True


def _script(name: str, options: str, tables: Callable[[Lines], Sequence[Table]]) -> Step:
    return Step(("python", f"benchmarks/{name}.py", *options.split()), tables)


def _bench(options: str, tables: Callable[[Lines], Sequence[Table]]) -> Step:
    return Step((*BENCH, *options.split(), "-o", "json"), tables, document=True)


def _shape(name: str, outtype: str, *more: str) -> Step:
    options = ("--outdir", "build/shapes", "--outtype", outtype, *more, "--force", "--quiet")
    return Step((*SHAPE, name, *options), wrote)


def _simulated(name: str, outtype: str, options: str) -> Step:
    pair = f"--target build/shapes/{name}-{outtype}.gguf --draft build/shapes/{name}-draft-{outtype}.gguf"
    # noise has a token for each byte, so that prompts of some length would take most of the time
    asked = f"--simulate {CURVE} --workload short=benchmarks/short_prompts.jsonl -c 2048 --peer {SERVER} --no-stream"
    return _bench(f"{pair} {asked} {options}", bench_tables)


def _never_right(title: str) -> Columns:
    return Columns(
        title,
        ("sequences", "Answers at once"),
        ("n", "Tokens each"),
        ("plain_tok_s", "Plain tok/s"),
        ("auto_all", "All tokens"),
        ("auto_first", "The first 256"),
        ("auto_prompt", "Prompts"),
    )


SECTIONS = (
    Section(
        "tiny",
        "The model cards' tables, for the tiny pair",
        17,
        "`models/tiny`, the trained pair of this repository, on its held-out prompts by kind, greedily, to the end token: "
        "this engine and mainline's llama-server in one run, in turns; the server is asked for whole answers, as streams would cost it a tenth here. llama-server drafts n - 1 tokens (`--spec-draft-n-max`) "
        "for a block of n, which is then verified in as many rows as ours. All speed-ups are over the same baseline, this "
        "engine without a drafter; that of llama-server stands beside it. This run is older than the mending of a fault by which a few "
        "texts of ours differ at 32 answers at once (CHANGELOG, Fixed).",
        (
            _bench(
                f"{' '.join(TINY)} --workload tiny:arithmetic,tiny:code,tiny:qa --questions 32 --block 4,8,16,auto "
                f"--concurrency 1,8,32 --runs 3 -n 256 -c 1024 --peer {SERVER} --no-stream",
                bench_tables,
            ),
        ),
    ),
    Section(
        "0.8b",
        "A pair of Qwen3.5-0.8B's shape in bf16 (simulated acceptance)",
        5,
        "Random weights in files of the real shape. Times and memory are real; how many drafts are accepted is drawn from a "
        "curve with the accept lengths that the model card of z-lab/Qwen3.5-9B-DFlash has for GSM8K, llama-server's by its own "
        "`--spec-synth-rates`. What it shows is what such acceptance would be worth on this machine. Prompts of some 30 "
        "tokens count in tok/s; decode tok/s is without them.",
        (
            _shape("Qwen3.5-0.8B", "bf16"),
            _simulated(
                "Qwen3.5-0.8B-shape",
                "BF16",
                "--block 4,8,16,auto --questions 2 -n 96 --runs 2",
            ),
        ),
    ),
    Section(
        "0.8b-q4",
        "The same shape in q4_0, beside llama-server's MTP (simulated acceptance)",
        4,
        "As above, in q4_0, whose rows cost more in a block, and with the target's own next-token layer, which llama-server "
        "drafts with (MTP, from the card's accept lengths of MTP; n steps stand beside a block of n + 1).",
        (
            _shape("Qwen3.5-0.8B", "q4_0", "--mtp"),
            _simulated(
                "Qwen3.5-0.8B-shape-mtp",
                "Q4_0",
                "--modes ar,mtp,dflash --block 4,8,16,auto --questions 2 -n 64 --runs 2",
            ),
        ),
    ),
    Section(
        "9b",
        "A pair of Qwen3.5-9B's shape in q4_0 (simulated acceptance)",
        7,
        "As above, with 5.3 GB of target. One arm at a time is in memory.",
        (
            _shape("Qwen3.5-9B", "q4_0"),
            _simulated("Qwen3.5-9B-shape", "Q4_0", "--block 8,auto --questions 1 -n 48 --runs 1"),
        ),
    ),
    Section(
        "trimmed-head",
        "A head of 32,768 tokens, beside llama-server with the whole one (simulated acceptance)",
        3,
        "Decoding alone of Qwen3.5-0.8B's shape in bf16: our drafter with a head of its own for the most useful 32,768 tokens of "
        "248,320 (`--draft-vocab`), the server's with the borrowed one. What such a head costs in acceptance depends on the "
        "text and is not simulated: both draw from one curve (z-lab/dflash issue 52).",
        (
            _shape("Qwen3.5-0.8B", "bf16"),
            _shape("Qwen3.5-0.8B", "bf16", "--draft-vocab", "32768"),
            _script(
                "peers",
                f"--server {SERVER} --target build/shapes/Qwen3.5-0.8B-shape-BF16.gguf "
                "--draft build/shapes/Qwen3.5-0.8B-shape-draft-32768-BF16.gguf "
                "--peer-draft build/shapes/Qwen3.5-0.8B-shape-draft-BF16.gguf "
                "--simulate --count 2 -n 64 --blocks 8,auto --n-max 7 --passes 4",
                peers_table,
            ),
        ),
    ),
    Section(
        "sweep",
        "What a verify and a draft cost by width",
        2,
        "The picture behind `--block auto`: rounds of bare decodes of the tiny pair.",
        (_bench(f"{' '.join(TINY)} --sweep --concurrency 1,8,32 -c 1024", sweep_of),),
    ),
    Section(
        "peers",
        "Decoding alone, beside llama-server and a bare loop",
        3,
        "The same ids to all, prompts not counted, whole answers over HTTP. The loop is one of the same llama.cpp calls without "
        "any choice in it (`benchmarks/floor_arm.py`). Ratios are medians of each pass's own.",
        (
            _script(
                "peers",
                f"--server {SERVER} {' '.join(TINY)} --count 16 --blocks 8,auto --n-max 7,15 --p-min 0,0.5 --passes 9",
                peers_table,
            ),
            _script(
                "peers",
                f"--server {SERVER} {' '.join(TINY)} --sequences 8 --passes 3 --n-max 3,7 --p-min 0 --blocks 4,8,auto",
                peers_table,
            ),
            _script(
                "against_mainline",
                f"--server {SERVER} {' '.join(TINY)} build/demo/tiny-draft-Q5_K_M.gguf --count 24",
                Columns(
                    "Tokens per verify at one block, the same ids",
                    ("draft", "Drafter"),
                    ("block", "Block"),
                    ("prompts", "Prompts"),
                    ("same_text", "Same text"),
                    ("accept_length", "dflash-gguf"),
                    ("mainline_accept_length", "llama-server"),
                ),
            ),
        ),
    ),
    Section(
        "never-slower",
        "`--block auto` where a drafter does not help, and where it does",
        5,
        "Ratios to plain decoding, in turns with it. A drafter of random weights is never right; it is measured from the first "
        "look on, with an empty cache, over as many tokens an answer as the table says. With the real drafter, 256.",
        (
            _script(
                "never_slower",
                "--target models/tiny/target.gguf --random-like models/tiny/draft --sequences 1,8 --pairs 3",
                _never_right("A drafter that is never right"),
            ),
            _script(
                "never_slower",
                "--target models/tiny/target.gguf --random-like models/tiny/draft --sequences 32 -n 2048 --pairs 3",
                _never_right("The same, 32 answers at once"),
            ),
            _script(
                "never_slower",
                f"{' '.join(TINY)} --sequences 1 --pairs 5 -n 256 --blocks 4,6,8,10,12,16",
                Columns(
                    "The drafter of the tiny pair",
                    ("sequences", "Answers at once"),
                    ("plain_tok_s", "Plain tok/s"),
                    ("auto_all", "auto"),
                    ("4_all", "4"),
                    ("6_all", "6"),
                    ("8_all", "8"),
                    ("10_all", "10"),
                    ("12_all", "12"),
                    ("16_all", "16"),
                    ("best", "Best fixed"),
                    ("auto_to_best", "auto to the best"),
                ),
            ),
        ),
    ),
    Section(
        "busy",
        "While other programs keep the cores busy",
        3,
        "Tokens per second of decoding with an endless loop on every core, and without, by how long OpenMP's threads spin.",
        (
            _script(
                "busy_cores",
                f"{' '.join(TINY)} --spins default,2000",
                Columns(
                    "Decode speed, tok/s",
                    ("GOMP_SPINCOUNT", "GOMP_SPINCOUNT"),
                    ("drafts", "Drafter"),
                    ("idle", "Cores idle"),
                    ("busy", "Cores taken"),
                    ("ratio", "Ratio"),
                ),
            ),
        ),
    ),
    Section(
        "sampling",
        "Drafts of sampled text",
        4,
        "Tokens accepted of a draft of 15 behind the same places of texts that the target sampled: drafted with shared noise "
        "(gumbel) or by rejection, from the drafter's distribution sharpened by s; inf: its best tokens, as in mainline; "
        "learnt: as the engine chooses s.",
        (
            _script(
                "draft_sampling",
                "",
                pivot("Tokens accepted", ("way", "s"), "temperature", "mean_accepted"),
            ),
        ),
    ),
    Section(
        "vocab",
        "A drafter's head for fewer tokens (`--draft-vocab`)",
        2,
        "Time to draft with the whole head and with smaller ones: of Qwen3.5-0.8B's shape in bf16 (random weights, 248,320 "
        "tokens), and of the tiny pair, whose 1,280 tokens are all in use.",
        (
            _script(
                "draft_vocab",
                "--shape Qwen3.5-0.8B --sizes 8192,32768,65536 --count 1 -n 16 --passes 3 --threads 2",
                Columns(
                    "Qwen3.5-0.8B's shape, block 16",
                    ("head", "Tokens"),
                    ("file_mb", "File MB"),
                    ("draft_ms", "Draft ms"),
                    ("draft_ms_all", "Each pass"),
                ),
            ),
            _script(
                "draft_vocab",
                "--target models/tiny/target.gguf --checkpoint models/tiny/draft --count 12 --passes 3 --threads 2 "
                "--sizes 200,400,700,1000",
                Columns(
                    "The tiny pair, block 16",
                    ("head", "Tokens"),
                    ("accept_length", "Accept length"),
                    ("draft_ms", "Draft ms"),
                    ("round_ms", "Decoding ms of all answers"),
                    ("same_text", "Same text"),
                    ("prompts", "Prompts"),
                ),
            ),
        ),
    ),
    Section(
        "anchors",
        "Drafts against PyTorch's, place by place",
        15,
        "The tiny pair from the token ids on; `benchmarks/per_anchor.py` says what each line means.",
        (_script("per_anchor", f"--server {SERVER} --every 4 --thin 3", as_they_are),),
        unasked=False,
    ),
)

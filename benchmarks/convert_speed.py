"""Conversion of a drafter of the real size against mainline's tools and against copying, interleaved in one run.

    python benchmarks/convert_speed.py --sdist-dir llama_cpp_python-0.3.36 --llama-quantize build/bin/llama-quantize

Makes a checkpoint (hidden 4096, 5 layers, 1.05 B parameters, 2.1 GB of random bf16) and its target: a GGUF for
us, a Hugging Face folder for mainline, both with the tokenizer alone. Then, `--runs` times in turn:

- ours: `dflash-gguf convert` to BF16 and Q5_K_M in one command,
- mainline: convert_hf_to_gguf.py to BF16, then llama-quantize to Q5_K_M,
- ours to BF16 alone, and `cp`, `sync` and `sha256sum` of the same checkpoint.

Peak memory is that of the process which converts, mapped pages included. Ends with exit code 1 if a bound does
not hold. Mainline's script needs torch, transformers, tokenizers and sentencepiece. Takes 8 GB of disk; --scale
0.0625 tries it out in seconds, at which size the bounds say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from dflash_gguf.gguf_file import GgufFile

_BOUND_MEGABYTES = 600
_BOUND_MAINLINE = 0.8
_BOUND_COPY = 1.5

_KINDS = ("BF16", "Q5_K_M")
_TAPS = [1, 8, 15, 22, 29]
_TARGET_LAYERS = 32
_HEAD = 128
_SPECIALS = 64
_PIECE = 1 << 22  # values made at a time

# a process's peak is its own only if a small one started it: it inherits its parent's up to exec
_LAUNCHER = """
import json, os, sys, time
start = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), time.perf_counter() - start, usage.ru_maxrss], file)
"""

# the made tokenizer is none of those mainline knows by the hash of a test string
_MAINLINE = """
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall time in seconds and peak memory in MB (10^6 bytes) of a command."""

    seconds: float
    megabytes: float

    def then(self, other: Cost) -> Cost:
        """The cost of one after the other."""
        return Cost(self.seconds + other.seconds, max(self.megabytes, other.megabytes))


def measure(folder: Path, *command: object) -> Cost:
    """Run a command in `folder`, with nothing left to be written to the disk before. Raises SystemExit if it fails."""
    report, log = folder / "cost.json", folder / "log.txt"
    os.sync()
    with log.open("wb") as file:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, report, *map(str, command)],
            check=True,
            cwd=folder,
            stdout=file,
            stderr=file,
        )
    code, seconds, peak = json.loads(report.read_text())
    if code:
        text = f"{command} ended with {code}:\n{log.read_text(errors='replace')[-3000:]}"
        raise SystemExit(text)
    unit = 1 if platform.system() == "Darwin" else 1024
    return Cost(seconds, peak * unit / 1e6)


def make_config(scale: float, vocab: int) -> dict[str, Any]:
    """The drafter's config.json; `scale` 1 is the real size."""
    hidden = max(1, round(4096 * scale / 256)) * 256
    heads = hidden // _HEAD
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": 5,
        "num_attention_heads": heads,
        "num_key_value_heads": max(1, heads // 4),
        "head_dim": _HEAD,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "vocab_size": vocab,
        "max_position_embeddings": 262144,
        "rope_theta": 10000000.0,
        "block_size": 16,
        "num_target_layers": _TARGET_LAYERS,
        "attention_bias": False,
        "dflash_config": {"mask_token_id": vocab - 1, "target_layer_ids": _TAPS},
    }


def shapes_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of the checkpoint."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q, kv = config["num_attention_heads"] * _HEAD, config["num_key_value_heads"] * _HEAD
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(_TAPS) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    in_layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "self_attn.q_norm": (_HEAD,),
        "self_attn.k_norm": (_HEAD,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"layers.{index}.{name}.weight": shape for name, shape in in_layer.items()}
    return shapes


def make_checkpoint(folder: Path, config: dict[str, Any]) -> Path:
    """Write config.json and model.safetensors of random bf16 weights; returns the folder."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    shapes, header, offset = shapes_of(config), {}, 0
    for name, shape in shapes.items():
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(1)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for left in range(offset // 2, 0, -_PIECE):
            values = random.standard_normal(min(left, _PIECE), np.float32) * np.float32(0.02)
            file.write((values.view(np.uint32) >> 16).astype("<u2").data)
    return folder


def make_vocabulary(size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens and merges of a byte-level BPE: bytes, then pairs and triples of them, then special tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    single = [chr(byte) for byte in plain] + [chr(256 + index) for index in range(256 - len(plain))]

    def merges() -> Iterator[tuple[str, str]]:
        pairs = [(a, b) for a in single for b in single]
        yield from pairs
        yield from ((a + b, c) for a, b in pairs for c in single)

    found = [pair for pair, _ in zip(merges(), range(size - len(single) - _SPECIALS), strict=False)]
    special = [f"<|special_{index}|>" for index in range(_SPECIALS)]
    return [*single, *(a + b for a, b in found), *special], found


def make_targets(folder: Path, config: dict[str, Any]) -> tuple[Path, Path]:
    """Write the target as a GGUF and as a Hugging Face folder, without weights; returns both."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, merges = make_vocabulary(config["vocab_size"])
    plain = len(tokens) - _SPECIALS
    writer = gguf.GGUFWriter(folder / "target.gguf", "qwen35")
    writer.add_block_count(_TARGET_LAYERS)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * plain + [3] * _SPECIALS)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(plain)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    model = models.BPE(vocab={token: i for i, token in enumerate(tokens[:plain])}, merges=merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in tokens[plain:]])
    target = folder / "target"
    target.mkdir()
    tokenizer.save(str(target / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokens[plain]}
    (target / "tokenizer_config.json").write_text(json.dumps(described))
    kind: dict[str, Any] = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3",
    }
    kind |= {"vocab_size": len(tokens), "eos_token_id": plain}
    (target / "config.json").write_text(json.dumps(kind))
    return folder / "target.gguf", target


class Bench:
    """The commands, on files in `folder`; what they write is removed after each."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self.folder = folder
        self.draft = make_checkpoint(folder / "draft", make_config(args.scale, args.vocab))
        self.gguf, self.target = make_targets(folder, make_config(args.scale, args.vocab))
        self.vendor = args.sdist_dir.resolve() / "vendor" / "llama.cpp"
        self.quantize = args.llama_quantize.resolve()

    def ours(self, types: str, out: Path) -> Cost:
        """Convert with one command."""
        command = [sys.executable, "-m", "dflash_gguf", "convert", self.draft]
        options = ["--target", self.gguf, "--outtype", types, "--outdir", out, "--name", "ours"]
        return measure(self.folder, *command, *options)

    def mainline(self, out: Path) -> tuple[Cost, Cost]:
        """Convert with mainline's script, then quantise."""
        out.mkdir()
        script = self.vendor / "convert_hf_to_gguf.py"
        command = [sys.executable, "-c", _MAINLINE, self.vendor, script, self.draft]
        options = ["--target-model-dir", self.target, "--outtype", "bf16"]
        whole, small = out / "BF16.gguf", out / "Q5_K_M.gguf"
        return (
            measure(self.folder, *command, *options, "--outfile", whole),
            measure(self.folder, self.quantize, whole, small, "Q5_K_M"),
        )

    def copy(self, out: Path) -> Cost:
        """Copy the checkpoint to the disk and compute its digest."""
        out.mkdir()
        script = 'cp -- "$1" "$2" && sync && sha256sum -- "$1"'
        file = self.draft / "model.safetensors"
        return measure(self.folder, shutil.which("sh"), "-c", script, "-", file, out / file.name)


def same_tensors(ours: Path, mainline: Path) -> bool:
    """Whether two files hold the same tensors, byte for byte."""
    with GgufFile(ours) as left, GgufFile(mainline) as right:
        return left.tensors.keys() == right.tensors.keys() and all(
            left.tensors[name].type == right.tensors[name].type
            and left.data(name) == right.data(name)
            for name in left.tensors
        )


def run(bench: Bench, runs: int) -> tuple[dict[str, list[Cost]], bool]:
    """Measure all commands in turn, and compare once what we and mainline write."""
    costs: dict[str, list[Cost]] = {}
    same = True
    for index in range(runs):
        ours, theirs = bench.folder / "ours", bench.folder / "mainline"
        both = bench.ours("bf16,q5_k_m", ours)
        converted, quantised = bench.mainline(theirs)
        if index == 0:
            pairs = [(ours / f"ours-{kind}.gguf", theirs / f"{kind}.gguf") for kind in _KINDS]
            same = all(same_tensors(*pair) for pair in pairs)
        shutil.rmtree(ours)
        shutil.rmtree(theirs)
        plain = bench.ours("bf16", ours)
        shutil.rmtree(ours)
        copied = bench.copy(ours)
        shutil.rmtree(ours)
        for name, cost in (
            ("ours: BF16 + Q5_K_M", both),
            ("mainline: convert_hf_to_gguf.py", converted),
            ("mainline: llama-quantize", quantised),
            ("mainline: both steps", converted.then(quantised)),
            ("ours: BF16", plain),
            ("cp + sync + sha256sum", copied),
        ):
            costs.setdefault(name, []).append(cost)
    return costs, same


def main() -> None:
    """Print a JSON line for each command, then one with the bounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sdist-dir", type=Path, required=True, help="unpacked, with vendor/")
    parser.add_argument("--llama-quantize", type=Path, required=True)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the widths; 1 is the real size"
    )
    parser.add_argument("--vocab", type=int, default=248320, help="tokens of the target")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where to make the files; default: TMPDIR")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="convert-speed-", dir=args.dir) as folder:
        bench = Bench(Path(folder), args)
        costs, same = run(bench, args.runs)
        size = (bench.draft / "model.safetensors").stat().st_size
    for name, each in costs.items():
        line = {"command": name, "seconds": round(statistics.median(c.seconds for c in each), 2)}
        print(
            json.dumps(
                line | {"all_seconds": [round(c.seconds, 2) for c in each], "peak_mb": peak(each)}
            )
        )
    mainline = ratio(costs["ours: BF16 + Q5_K_M"], costs["mainline: both steps"])
    copied = ratio(costs["ours: BF16"], costs["cp + sync + sha256sum"])
    megabytes = max(peak(costs["ours: BF16 + Q5_K_M"]), peak(costs["ours: BF16"]))
    holds = megabytes < _BOUND_MEGABYTES and mainline <= _BOUND_MAINLINE and copied <= _BOUND_COPY
    summary = {
        "checkpoint_bytes": size,
        "same_tensors": same,
        "peak_mb": [megabytes, _BOUND_MEGABYTES],
        "of_mainline": [mainline, _BOUND_MAINLINE],
        "of_copy": [copied, _BOUND_COPY],
        "holds": holds and same,
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()}",
        "date": date.today().isoformat(),
    }
    print(json.dumps(summary))
    sys.exit(0 if holds and same else 1)


def peak(costs: Sequence[Cost]) -> float:
    """The highest peak, in MB."""
    return round(max(cost.megabytes for cost in costs), 1)


def ratio(ours: Sequence[Cost], theirs: Sequence[Cost]) -> float:
    """The median of the ratios of wall time, run by run."""
    pairs = zip(ours, theirs, strict=True)
    return round(statistics.median(a.seconds / b.seconds for a, b in pairs), 3)


if __name__ == "__main__":
    main()

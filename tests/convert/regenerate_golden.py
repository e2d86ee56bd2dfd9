"""Run mainline's converter and llama-quantize on the made checkpoints and keep digests of what they write.

    python -m tests.convert.regenerate_golden SDIST LLAMA_QUANTIZE

SDIST is the unpacked sdist of the pinned llama-cpp-python, LLAMA_QUANTIZE the tool built from its
vendor/llama.cpp. Run it from an editable install; it needs torch, transformers, tokenizers and sentencepiece,
of which the tests need none.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dflash_gguf.convert import convert
from dflash_gguf.gguf_file import GgufFile

from .cases import CASES, RUNS, Case, Run
from .made import (
    CHAT_TEMPLATE,
    EOS,
    VOCAB,
    make_imatrix,
    make_tables,
    vocabulary,
    write_safetensors,
)

GOLDEN = Path(__file__).with_name("golden.json")
CONVERTED = ("f32", "bf16", "f16", "q8_0")
MIXES = ("q5_k_m", "q4_k_m")
QUANTISED = ("q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_k_m", "q4_k_s", "q4_0")

_HF_ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "qwen35": "Qwen3_5ForConditionalGeneration"}

# the made tokenizer is none of those mainline knows by the hash of a test string
_DRIVER = """
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def digest_tensors(path: Path) -> dict[str, str]:
    """Each tensor's type, shape and digest."""
    with GgufFile(path) as file:
        return {
            name: f"{info.type.name} {_shape(info.shape)} {_sha(file.data(name))}"
            for name, info in sorted(file.tensors.items())
        }


def digest_keys(path: Path) -> dict[str, str]:
    """Type and value, or its digest, of each dflash.* and tokenizer.* key."""
    keys: dict[str, str] = {}
    with GgufFile(path) as file:
        for key, field in sorted(file.fields.items()):
            kinds = [field.type.name, field.element and field.element.name]
            if key.startswith("dflash."):
                keys[key] = json.dumps([*kinds, file.value(key)])
            elif key.startswith("tokenizer."):
                keys[key] = json.dumps([kinds[0], _sha(file.raw(key))])
    return keys


def main() -> None:
    """Write golden.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sdist", type=Path)
    parser.add_argument("llama_quantize", type=Path)
    parser.add_argument("--only", nargs="*", help="these cases; the others' digests are kept")
    args = parser.parse_args()
    golden: dict[str, Any] = {"machine": platform.machine(), "cases": {}}
    if args.only:
        golden = json.loads(GOLDEN.read_text())
    for case in CASES:
        if args.only and case.name not in args.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            golden["cases"][case.name] = _run_case(case, Path(folder), args)
    golden["runs"] = {}
    for run in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            golden["runs"][run.name] = _run_quantize(run, Path(folder), args)
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


def _run_case(case: Case, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    draft, _ = case.write(folder)
    target = _write_hf_target(case, folder / "target")
    vendor = args.sdist / "vendor" / "llama.cpp"
    script = vendor / "convert_hf_to_gguf.py"
    result: dict[str, Any] = {"converted": {}, "quantised": {}, "keys": {}}
    for kind in CONVERTED:
        path = folder / f"{kind}.gguf"
        command: list[Path | str] = [sys.executable, "-c", _DRIVER, vendor, script, draft]
        command += ["--target-model-dir", target, "--outtype", kind, "--outfile", path]
        subprocess.run(command, check=True)
        result["converted"][kind] = digest_tensors(path)
        keys = digest_keys(path)
        assert result["keys"] in ({}, keys)  # the same whatever the type
        result["keys"] = keys
    # from f32 where the checkpoint is finer than bf16: we quantise what it holds, too
    source = folder / ("bf16.gguf" if case.dtype == "BF16" else "f32.gguf")
    for kind in QUANTISED if case.every_type else MIXES:
        path = folder / f"quantised-{kind}.gguf"
        subprocess.run([args.llama_quantize, source, path, kind], check=True)
        result["quantised"][kind] = digest_tensors(path)
    return result


def _run_quantize(run: Run, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    source = source_of(run, folder)
    options: list[Path | str] = ["--allow-requantize"]
    for wish in run.tensor_types:
        options += ["--tensor-type", wish]
    if run.imatrix:
        options += ["--imatrix", imatrix_of(run, folder, source)]
    path = folder / "out.gguf"
    subprocess.run([args.llama_quantize, *options, source, path, run.kind], check=True)
    return {"tensors": digest_tensors(path), "keys": imatrix_keys(path)}


def source_of(run: Run, folder: Path) -> Path:
    """Write the file that a run of llama-quantize reads."""
    draft, target = run.case.write(folder)
    (written,) = convert(draft, target, outdir=folder, outtypes=[run.after or "bf16"])
    return written.path


def imatrix_of(run: Run, folder: Path, source: Path) -> Path:
    """Write the importance matrix of a run."""
    name = "imatrix.dat" if run.legacy else "imatrix.gguf"
    return make_imatrix(folder / name, source, legacy=run.legacy)


def imatrix_keys(path: Path) -> dict[str, Any]:
    """What a file says of its importance matrix, but for the place of it."""
    prefix = "quantize.imatrix."
    with GgufFile(path) as file:
        keys = [key for key in file.fields if key.startswith(prefix) and key != f"{prefix}file"]
        return {key: [file.fields[key].type.name, file.value(key)] for key in sorted(keys)}


def _write_hf_target(case: Case, folder: Path) -> Path:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, merges = vocabulary()
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    ids = {token: index for index, token in enumerate(tokens[:EOS])}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in tokens[EOS:]])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokens[EOS],
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    config = {
        "architectures": [_HF_ARCHITECTURES[case.architecture]],
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "eos_token_id": EOS,
        **case.target_config,
    }
    (folder / "config.json").write_text(json.dumps(config))
    if case.mask:
        tables = make_tables(case.hidden, "BF16")
        renamed = {
            "model.embed_tokens.weight": tables["token_embd.weight"],
            "lm_head.weight": tables["output.weight"],
        }
        write_safetensors(folder / "model.safetensors", renamed)
    return folder


def _shape(shape: tuple[int, ...]) -> str:
    # llama-quantize drops a last dimension of 1, the converter does not
    return "x".join(map(str, shape)).removesuffix("x1")


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


if __name__ == "__main__":
    main()

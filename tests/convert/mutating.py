"""What is needed to mutate inputs of the converter and to tell whether it answered as stated."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import gguf
import numpy as np

from dflash_gguf.convert import convert, quantize
from dflash_gguf.errors import ModelError
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.inspection import inspect_file

from .made import make_checkpoint, make_config, make_tables, make_target

SECONDS, MEGABYTES = 5, 500  # of CPU, and of memory at the peak
TYPES = ("bf16", "q8_0", "q5_k_m")
OURS = {"dflash_gguf.source.sha256", "dflash_gguf.source.files"}  # differ with the source's bytes

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

# the name in the GGUF of each tensor of the made checkpoint, written down apart from the converter
NAMES = {
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "layers.0.input_layernorm.weight": "blk.0.attn_norm.weight",
    "layers.0.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
    "layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "layers.0.self_attn.k_proj.weight": "blk.0.attn_k.weight",
    "layers.0.self_attn.v_proj.weight": "blk.0.attn_v.weight",
    "layers.0.self_attn.o_proj.weight": "blk.0.attn_output.weight",
    "layers.0.self_attn.q_norm.weight": "blk.0.attn_q_norm.weight",
    "layers.0.self_attn.k_norm.weight": "blk.0.attn_k_norm.weight",
    "layers.0.mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
    "layers.0.mlp.up_proj.weight": "blk.0.ffn_up.weight",
    "layers.0.mlp.down_proj.weight": "blk.0.ffn_down.weight",
}


def small_config(**changes: Any) -> dict[str, Any]:
    """The config of the made drafter: one layer whose rows K-quants can hold."""
    small = {"intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2}
    return make_config(**{**small, "num_key_value_heads": 1, "head_dim": 128, **changes})


@dataclass(frozen=True)
class Change:
    """How a sound output differs from the unmutated one: values by GGUF name, raw bytes of keys (None: absent)."""

    values: Mapping[str, Values] = field(default_factory=dict)
    keys: Mapping[str, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """An error that names the file `where` (a path in the case's folder) and matches `says`."""

    says: str
    where: str = "draft/model.safetensors"


@dataclass(frozen=True)
class Sound:
    """The unmutated output, but for the `Change` that the mutation returns."""


@dataclass(frozen=True)
class Reported:
    """`inspect` gives a report, in which `says` matches one of the oddities."""

    says: str


class Files:
    """A sound pair in a folder of its own, for one mutation: its `source` is what is given to the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.draft = folder / "draft"
        self.weights = self.draft / "model.safetensors"
        self.config = self.draft / "config.json"
        self.target = folder / "target.gguf"
        self.drafter = folder / "drafter.gguf"  # what quantize and inspect read
        self.source = self.draft
        self.draft.mkdir(parents=True)
        template = _template()
        self.weights.write_bytes(template.weights)
        self.config.write_text(json.dumps(small_config()))
        self.target.write_bytes(template.target)

    def add_drafter(self) -> bytes:
        """Write the unmutated drafter's GGUF in bf16; returns its bytes."""
        data = _template().outputs["bf16"]
        self.drafter.write_bytes(data)
        return data

    def edit_config(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change config.json."""
        config = small_config()
        change(config)
        self.config.write_text(json.dumps(config))

    def edit_header(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the header of the safetensors file in place; its data stay."""
        header, body = split(self.weights.read_bytes())
        change(header)
        self.weights.write_bytes(joined(text_of(header), body))


Mutation: TypeAlias = Callable[[Files, int, Random], Change | None]


@dataclass(frozen=True)
class Kind:
    """A kind of mutated input: `count` cases, each made by `mutate` from its number and a seeded Random.

    With `real`, its first case is run as a process of its own too, whose time and memory are measured.
    """

    name: str
    outcome: Refused | Sound | Reported
    mutate: Mutation
    count: int = 1
    command: str = "convert"
    real: bool = False


def named(kind: Kind) -> str:
    """Its name in pytest's output."""
    return kind.name.replace(" ", "-")


def check_kind(kind: Kind, folder: Path) -> None:
    """Hold all cases of a kind against the outcome that it states."""
    for number in range(kind.count):
        try:
            check_case(kind, number, folder)
        except BaseException as error:
            error.add_note(f"{kind.name}, case {number}")
            raise
        shutil.rmtree(folder / "case")


def check_case(kind: Kind, number: int, folder: Path) -> None:
    """Mutate, run in this process, and compare with the outcome that the kind states."""
    files = Files(folder / "case")
    change = kind.mutate(files, number, Random(f"{kind.name} {number}"))
    before, peak, start = listing(folder), _peak(), time.process_time()
    if isinstance(kind.outcome, Refused):
        said = _refusal(kind, files)
        check_refusal(kind.outcome, files, said)
        assert listing(folder) == before
    elif isinstance(kind.outcome, Reported):
        report = inspect_file(files.drafter)
        json.dumps(report.as_dict(), allow_nan=False)
        assert any(re.search(kind.outcome.says, odd) for odd in report.oddities), report.oddities
    else:
        for name, data in _run(kind, files).items():
            compare(data, _template().outputs[name], change or Change())
    assert time.process_time() - start < SECONDS
    assert _peak() - peak < MEGABYTES


def _run(kind: Kind, files: Files) -> dict[str, bytes]:
    """Run a command in this process; returns the outputs by type."""
    if kind.command == "inspect":
        inspect_file(files.drafter)
        return {}
    if kind.command == "quantize":
        written = [
            quantize(files.drafter, files.folder / f"{name}.gguf", name) for name in TYPES[1:]
        ]
    else:
        out = files.folder / "out"
        written = convert(files.source, files.target, outdir=out, outtypes=TYPES, name="x")
    return {each.type.lower(): each.path.read_bytes() for each in written}


def _refusal(kind: Kind, files: Files) -> str:
    try:
        _run(kind, files)
    except ModelError as error:
        return str(error)
    text = "it was not refused"
    raise AssertionError(text)


def check_refusal(outcome: Refused, files: Files, said: str) -> None:
    """An error is one printable line that names the file and the fault."""
    assert str(files.folder / outcome.where) in said
    assert re.search(outcome.says, said), said
    assert said.isprintable()
    assert len(said) < 1500


def compare(ours: bytes, unmutated: bytes, change: Change) -> None:
    """Hold an output against the unmutated one; what changed must be as mainline's own quantisers make it."""
    with TemporaryDirectory() as folder:
        for name, data in (("ours", ours), ("unmutated", unmutated)):
            (Path(folder) / name).write_bytes(data)
        with (
            GgufFile(Path(folder) / "ours") as left,
            GgufFile(Path(folder) / "unmutated") as right,
        ):
            _compare_keys(left, right, change)
            assert list(left.tensors) == list(right.tensors)
            for name, info in right.tensors.items():
                assert left.tensors[name].type == info.type
                assert left.tensors[name].shape == info.shape
                if name not in change.values:
                    assert left.data(name) == right.data(name), name
                else:
                    _compare_values(left.data(name), right.data(name), info, change.values[name])


def _compare_keys(left: GgufFile, right: GgufFile, change: Change) -> None:
    wanted = {key: right.raw(key) for key in right.fields} | dict(change.keys)
    wanted = {key: raw for key, raw in wanted.items() if raw is not None}
    assert left.fields.keys() == wanted.keys()
    differing = {key for key, raw in wanted.items() if left.raw(key) != raw}
    assert differing <= OURS


def _compare_values(ours: bytes, unmutated: bytes, info: Any, values: Values) -> None:
    kind = gguf.GGMLQuantizationType(info.type.number)
    values = values.reshape(info.shape[::-1])
    if info.type.name in {"F32", "BF16", "Q8_0"}:
        assert ours == gguf.quants.quantize(values, kind).tobytes()
        return
    # gguf has no numpy twin of K-quants: what was not touched stays, the rest is near
    before, block = np.frombuffer(unmutated, np.uint8), np.frombuffer(ours, np.uint8)
    shape = (*info.shape[:0:-1], -1)
    old = gguf.quants.dequantize(before.reshape(shape), kind).reshape(-1, 256)
    new = gguf.quants.dequantize(block.reshape(shape), kind).reshape(-1, 256)
    wanted = values.reshape(-1, 256)
    same = (block.reshape(len(new), -1) == before.reshape(len(old), -1)).all(axis=1)
    touched = _touched(info.name, wanted)
    assert same[~touched].all()
    assert (abs(new - wanted).max(axis=1) <= abs(wanted).max(axis=1) / 8).all()


def _touched(name: str, values: Values) -> np.ndarray[Any, np.dtype[np.bool_]]:
    original = weights_of(_template().weights)
    source = next(source for source, there in NAMES.items() if there == name)
    touched: np.ndarray[Any, np.dtype[np.bool_]] = (
        original[source].reshape(values.shape) != values
    ).any(axis=1)
    return touched


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data of a sound safetensors file."""
    (length,) = struct.unpack_from("<Q", data)
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header, data[8 + length :]


def text_of(header: Mapping[str, Any]) -> bytes:
    """The text of a header."""
    return json.dumps(header).encode()


def joined(text: bytes, body: bytes) -> bytes:
    """A safetensors file of a header's text and data."""
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def weights_of(data: bytes) -> dict[str, Values]:
    """A checkpoint's values by name, as safetensors itself reads it. Raises SafetensorError."""
    import safetensors

    values: dict[str, Values] = {}
    for name, entry in safetensors.deserialize(data):
        raw = bytes(entry["data"])
        if entry["dtype"] == "BF16":
            found = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            found = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[entry["dtype"]])
        values[name] = found.astype(np.float32).reshape(entry["shape"])
    return values


@dataclass(frozen=True)
class _Template:
    weights: bytes
    target: bytes
    outputs: dict[str, bytes]


@cache
def _template() -> _Template:
    """The unmutated pair and what it becomes."""
    with TemporaryDirectory() as folder:
        draft = make_checkpoint(Path(folder) / "draft", small_config())
        tables = make_tables(256, "BF16")
        target = make_target(Path(folder) / "target.gguf", tensors=tables)
        written = convert(draft, target, outtypes=TYPES, name="x")
        outputs = {each.type.lower(): each.path.read_bytes() for each in written}
        return _Template((draft / "model.safetensors").read_bytes(), target.read_bytes(), outputs)


def listing(folder: Path) -> set[str]:
    """All files and folders below."""
    return {
        str(Path(top, name)) for top, *both in os.walk(folder) for names in both for name in names
    }


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6

"""Find a checkpoint's files."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from .faults import refuse_file
from .files import read_header, read_json, require_file
from .pickles import read_pickle
from .reader import SourceTensor

_PICKLES = {".bin", ".pt", ".pth", ".ckpt"}
_WEIGHTS = {".safetensors", *_PICKLES}
_INDEXES = (".safetensors.index.json", ".bin.index.json")

# a folder may hold other pickles, such as an optimiser's; these names are what transformers saves weights as
_PICKLED = ("pytorch_model.bin.index.json", "pytorch_model.bin")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of a checkpoint: `origin` names it, `folder` holds config.json."""

    origin: Path
    folder: Path
    sharded: bool
    files: tuple[Path, ...]
    tensors: dict[str, SourceTensor]


def find_checkpoint(source: Path) -> Checkpoint:
    """Find and check a checkpoint: a .safetensors file, an index of shards, or a folder with one of them.

    PyTorch's own files (.bin, .pt) are read with torch, if it is there.
    Raises ConvertError if there is none, more than one, or if a header, an index and the files disagree.
    """
    origin = _pick(source)
    if origin.name.endswith(".index.json"):
        files, mapping = _read_index(origin)
        tensors = _merge(files)
        _compare_with_index(origin, mapping, tensors)
    else:
        files = (origin,)
        tensors = _merge(files)
    if not tensors:
        refuse_file(
            origin, "it holds no tensors", "expected a drafter's weights; get the file again"
        )
    return Checkpoint(origin, origin.parent, len(files) > 1, files, tensors)


def _pick(source: Path) -> Path:
    try:
        mode = source.stat().st_mode
    except OSError as error:
        refuse_file(
            source,
            f"it cannot be read ({error.strerror})",
            "give a .safetensors file or its folder",
        )
    if stat.S_ISDIR(mode):
        return _pick_in_folder(source)
    if source.suffix == ".gguf":
        refuse_file(source, "it is a GGUF already", "expected a .safetensors file or its folder")
    if source.suffix not in _WEIGHTS and not source.name.endswith(_INDEXES):
        refuse_file(
            source,
            f"its name ends in '{source.suffix}'",
            "expected .safetensors (or .bin, .pt); give that or its folder",
        )
    require_file(source)
    return source


def _pick_in_folder(folder: Path) -> Path:
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    singles = sorted(folder.glob("*.safetensors"))
    found = indexes or singles
    if folder / "model.safetensors" in singles and not indexes:
        found = [folder / "model.safetensors"]
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:4])
        fault = f"it holds {len(found)} checkpoints ({names})"
        refuse_file(folder, fault, "give one of the files by name")
    if not found:
        found = [folder / name for name in _PICKLED if (folder / name).exists()][:1]
    if not found:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
        fault = f"it holds {pickles[0]}, but" if pickles else "it holds"
        refuse_file(
            folder, f"{fault} no .safetensors file", "give the folder of a drafter's checkpoint"
        )
    require_file(found[0])
    return found[0]


def _read_index(path: Path) -> tuple[tuple[Path, ...], dict[str, str]]:
    mapping = read_json(path).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        refuse_file(
            path, "it has no weight_map", "expected tensor names and files; get the index again"
        )
    for name, file in mapping.items():
        if not isinstance(file, str) or file in {"", ".."} or Path(file).name != file:
            refuse_file(
                path, f"{name} is in {file!r}", "expected the name of a file beside the index"
            )
    return tuple(path.parent / name for name in sorted(set(mapping.values()))), mapping


def _merge(files: tuple[Path, ...]) -> dict[str, SourceTensor]:
    tensors: dict[str, SourceTensor] = {}
    for file in files:
        for tensor in read_pickle(file) if file.suffix in _PICKLES else read_header(file):
            if tensor.name in tensors:
                other = tensors[tensor.name].path.name
                refuse_file(
                    file,
                    f"{tensor.name} stands in {other} too",
                    "expected it once; get the files again",
                )
            tensors[tensor.name] = tensor
    return tensors


def _compare_with_index(
    path: Path, mapping: dict[str, str], tensors: dict[str, SourceTensor]
) -> None:
    absent = [
        name for name in mapping if name not in tensors or tensors[name].path.name != mapping[name]
    ]
    if absent:
        where = mapping[absent[0]]
        refuse_file(
            path,
            f"{len(absent)} tensors such as {absent[0]} are not in {where}",
            "get the files again",
        )
    extra = [name for name in tensors if name not in mapping]
    if extra:
        refuse_file(
            path, f"it does not list {len(extra)} tensors such as {extra[0]}", "get the index again"
        )

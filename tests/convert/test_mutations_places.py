"""Checkpoints that are not where or what they should be: KINDS states beforehand what comes of each kind."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from .made import make_shards
from .mutating import Files, Kind, Mutation, Refused, Sound, check_kind, named, small_config
from .mutating_process import check_process
from .test_mutations_config import CONFIG, NO_JSON, NO_OBJECT, text

INDEX = "draft/model.safetensors.index.json"
SHARD = "draft/model-00002-of-00002.safetensors"
UNREADABLE = r"it cannot be read \(|it holds no \.safetensors file"


def folder_without_checkpoint(files: Files, number: int, random: Random) -> None:
    files.weights.unlink()
    if number == 1:
        files.config.unlink()
    if number == 2:
        (files.draft / "README.md").write_text("#")
    if number == 3:
        (files.draft / "below").mkdir()
        (files.draft / "below" / "model.safetensors").touch()
    if number == 4:
        (files.draft / "optimizer.pt").touch()
    if number == 5:
        shutil.copy(files.target, files.draft / "model.gguf")


def loop(path: str) -> Mutation:
    """Put a link there which leads to itself, over another one, or nowhere."""

    def mutate(files: Files, number: int, random: Random) -> None:
        place = files.folder / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        if number == 0:
            place.symlink_to(place.name)
        elif number == 1:
            place.symlink_to(f"{place.name}.2")
            place.with_name(f"{place.name}.2").symlink_to(place.name)
        else:
            place.symlink_to("nowhere")

    return mutate


def no_file(path: str) -> Mutation:
    """Put something there that is no file: it would block, or never end."""

    def mutate(files: Files, number: int, random: Random) -> None:
        place = files.folder / path
        place.unlink()
        if number == 0:
            os.mkfifo(place)
        elif number == 1:
            place.symlink_to("/dev/zero")
        elif number == 2:
            place.mkdir()
        else:
            here = Path.cwd()
            os.chdir(place.parent)  # a socket's path may have a hundred bytes
            try:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(place.name)
            finally:
                os.chdir(here)

    return mutate


def nowhere(files: Files, number: int, random: Random) -> None:
    files.source = files.folder / ("no", "no/model.safetensors", "x" * 300, "no\nwhere")[number]


def linked(files: Files, number: int, random: Random) -> None:
    """Links that lead to the checkpoint, and a link back to the folder in it."""
    if number == 0:
        files.source = files.folder / "link"
        files.source.symlink_to("draft")
    elif number == 1:
        files.weights.rename(files.folder / "blob")
        files.weights.symlink_to("../blob")
    else:
        (files.draft / "self").symlink_to(".")


def shard(files: Files) -> dict[str, Any]:
    """Make shards of the checkpoint; returns their index."""
    shutil.rmtree(files.draft)
    make_shards(files.draft, small_config())
    index: dict[str, Any] = json.loads((files.folder / INDEX).read_text())
    return index


def edited_index(
    change: Callable[[dict[str, Any], int], object],
) -> Mutation:
    """Change the index of shards."""

    def mutate(files: Files, number: int, random: Random) -> None:
        index = shard(files)
        change(index, number)
        (files.folder / INDEX).write_text(json.dumps(index))

    return mutate


MAPS = [None, [], {}, "x", 3, [["model.fc.weight", "a"]]]
PLACES = [
    "../draft/model-00001-of-00002.safetensors",
    "/etc/passwd",
    "",
    3,
    None,
    ["a"],
    "a/b",
    "..",
    ".",
]
FC = "model.fc.weight"


def of_shard(mutate: Callable[[Path], object]) -> Mutation:
    """Change the second shard."""

    def change(files: Files, number: int, random: Random) -> None:
        shard(files)
        mutate(files.folder / SHARD)

    return change


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def like_the_first(path: Path) -> None:
    shutil.copy(path.with_name("model-00001-of-00002.safetensors"), path)


KINDS = (
    Kind(
        "folder without a checkpoint",
        Refused(r"no \.safetensors file; give the folder", "draft"),
        folder_without_checkpoint,
        6,
        real=True,
    ),
    Kind(
        "loop for the weights", Refused(UNREADABLE), loop("draft/model.safetensors"), 3, real=True
    ),
    Kind("loop for the config", Refused(UNREADABLE, CONFIG), loop(CONFIG), 3),
    Kind("loop for the folder", Refused(UNREADABLE, "draft"), loop("draft"), 3, real=True),
    Kind(
        "no file for the weights",
        Refused("it is not a regular file"),
        no_file("draft/model.safetensors"),
        4,
        real=True,
    ),
    Kind("no file for the config", Refused("it is not a regular file", CONFIG), no_file(CONFIG), 4),
    Kind("nowhere", Refused(UNREADABLE, ""), nowhere, 4),
    Kind("links", Sound(), linked, 3),
    Kind("shards", Sound(), lambda files, number, random: shard(files) and None),
    Kind("broken index", Refused("it is not JSON", INDEX), text(NO_JSON, INDEX), len(NO_JSON)),
    Kind(
        "index that is no object",
        Refused("expected a JSON object", INDEX),
        text(NO_OBJECT, INDEX),
        len(NO_OBJECT),
    ),
    Kind(
        "index without a map",
        Refused("it has no weight_map", INDEX),
        edited_index(lambda index, number: index.update(weight_map=MAPS[number])),
        len(MAPS),
    ),
    Kind(
        "index that leads elsewhere",
        Refused("expected the name of a file beside the index", INDEX),
        edited_index(lambda index, number: index["weight_map"].update({FC: PLACES[number]})),
        len(PLACES),
    ),
    Kind(
        "index of too much",
        Refused("tensors such as x are not in", INDEX),
        edited_index(lambda index, number: index["weight_map"].update(x=index["weight_map"][FC])),
    ),
    Kind(
        "index of too little",
        Refused("it does not list 1 tensors", INDEX),
        edited_index(lambda index, number: index["weight_map"].pop(FC)),
    ),
    Kind(
        "index to a shard that is not there",
        Refused(UNREADABLE, "draft/no.safetensors"),
        edited_index(lambda index, number: index["weight_map"].update({FC: "no.safetensors"})),
    ),
    Kind("shard cut off", Refused("it is not a whole safetensors file", SHARD), of_shard(truncate)),
    Kind("shard gone", Refused(UNREADABLE, SHARD), of_shard(Path.unlink)),
    Kind("shard that is a loop", Refused(UNREADABLE, SHARD), of_shard(to_itself)),
    Kind(
        "shard that stands twice",
        Refused("stands in .* too; expected it once", SHARD),
        of_shard(like_the_first),
    ),
)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_outcome(kind: Kind, tmp_path: Path) -> None:
    check_kind(kind, tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.real], ids=named)
def test_outcome_of_a_process(kind: Kind, tmp_path: Path) -> None:
    check_process(kind, tmp_path)

"""Keep what mainline llama.cpp drafts for the made pairs of other families, and what the reference drafts.

    python -m tests.regenerate_drafts SOURCE BUILD

SOURCE is vendor/llama.cpp of the unpacked sdist of the pinned llama-cpp-python, BUILD the bin folder of its
tools, built with shared libraries. Needs a C++ compiler, transformers and PyPI's dflash, of which the tests
need none.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

from .support.family_pairs import BLOCK, VARIANTS, FamilyPair, make_family_pair
from .support.family_rig import FamilyRig, target_tables

GOLDEN = Path(__file__).with_name("drafts.json")
TEXTS = [[(i * 37 + 11 * k) % 256 for i in range(12 + 5 * k)] for k in range(4)]
ANCHORS = [65, 66, 67, 68]
NARROW = 3


def digest(made: FamilyPair) -> str:
    """Digest of the pair's weights, so that drafts are never compared with another pair's."""
    whole = hashlib.sha256()
    for path in (made.pair.target, made.pair.draft):
        for tensor in GGUFReader(path).tensors:
            whole.update(tensor.name.encode() + np.ascontiguousarray(tensor.data).tobytes())
    return whole.hexdigest()


def main() -> None:
    """Write drafts.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("build", type=Path)
    args = parser.parse_args()
    golden: dict[str, Any] = {
        "about": "made by python -m tests.regenerate_drafts",
        "machine": f"{platform.system()} {platform.machine()}",
        "pairs": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        tool = _compile(args.source, args.build, Path(scratch))
        for variant in VARIANTS:
            for hybrid in (False, True):
                name = f"{variant}{'-hybrid' if hybrid else ''}"
                made = make_family_pair(Path(scratch) / name, variant, hybrid=hybrid)
                golden["pairs"][name] = _drafts(tool, made, variant)
    pairs = ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in golden.pop("pairs").items())
    head = json.dumps(golden)[:-1]
    GOLDEN.write_text(f'{head}, "pairs": {{\n{pairs}\n}}}}\n', encoding="utf-8")


def _compile(source: Path, build: Path, folder: Path) -> Path:
    tool = folder / "mainline_drafts"
    includes = [f"-I{source / part}" for part in ("common", "include", "ggml/include", "vendor")]
    libraries = [f"-l{name}" for name in ("llama-common", "llama", "ggml", "ggml-base")]
    code = Path(__file__).parent / "support" / "mainline_drafts.cpp"
    where = [f"-L{build}", f"-Wl,-rpath,{build.absolute()}", "-o", str(tool)]
    command = ["c++", "-std=c++17", "-O1", *includes, str(code), *libraries, *where]
    subprocess.run(command, check=True)
    return tool


def _drafts(tool: Path, made: FamilyPair, variant: str) -> dict[str, Any]:
    kind = "draft-dflash" if variant == "dflash2" else "draft-dspark"
    entry: dict[str, Any] = {"weights": digest(made)}
    for count in (made.most, NARROW):
        entry[str(count)] = _mainline(tool, made, kind, count)
    if variant == "dflash2":
        entry["reference"] = _reference(made)
    return entry


def _mainline(tool: Path, made: FamilyPair, kind: str, count: int) -> list[list[int]]:
    lines = [
        " ".join(map(str, [*text, anchor])) for text, anchor in zip(TEXTS, ANCHORS, strict=True)
    ]
    done = subprocess.run(
        [tool, made.pair.target, made.pair.draft, kind, str(count)],
        input="\n".join(lines) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def _reference(made: FamilyPair) -> list[list[int]]:
    """Draft whole blocks with the reference's own class, from the features that our target gives."""
    import torch
    from dflash.model import DFlash2DraftModel
    from safetensors.torch import load_file
    from transformers import Qwen3Config

    settings = {key: value for key, value in made.config.items() if key != "architectures"}
    settings["rope_parameters"] = {"rope_type": "default", "rope_theta": settings["rope_theta"]}
    config = Qwen3Config(**settings)
    config._attn_implementation = "sdpa"
    model = DFlash2DraftModel(config).eval()
    state = load_file(made.pair.draft.parent / "draft" / "model.safetensors")
    codebook = "candidate_selector.predecessor_codebook"
    state[f"{codebook}.weight"] = state.pop(codebook)
    model.load_state_dict(state)
    table, head = (torch.from_numpy(np.array(part)) for part in target_tables(made))
    rig, drafts = FamilyRig(made), []
    for text, anchor in zip(TEXTS, ANCHORS, strict=True):
        number, features = rig.read(text)
        rig.session.remove(number)
        ids = torch.tensor(
            [[anchor] + [made.config["dflash_config"]["mask_token_id"]] * (BLOCK - 1)]
        )
        with torch.no_grad():
            hidden = model(
                target_hidden=torch.from_numpy(features)[None],
                noise_embedding=table[ids],
                position_ids=torch.arange(len(text) + BLOCK)[None],
            )[:, 1:]
            tokens, _, _ = model.propose(hidden, ids[:, 0], lambda x: x @ head.T, 0.0)
        drafts.append(tokens[0].tolist())
    return drafts


if __name__ == "__main__":
    main()

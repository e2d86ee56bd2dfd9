"""The plan of memory: llama.cpp's own numbers, what is taken in the end, and what gives way."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import ResourceError, UsageError, hardware, memory
from dflash_gguf._native import core
from dflash_gguf.expected_speed import expected_speed
from dflash_gguf.fitting import parse_size
from dflash_gguf.plan import MemoryPlan, size_text
from dflash_gguf.sizes import Sizes, draft_params, target_params

from .support.random_pairs import Pair, make_pair
from .support.tiny import Tiny

MIB = 2**20
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "memory_plan.py"
QUICK: dict[str, Any] = {"threads": 1, "prefix_memory": 0, "block": 2}


def plan_of(target: Path, draft: Path | None = None, **options: Any) -> MemoryPlan:
    with dflash_gguf.load(target, draft, **QUICK | options) as engine:
        assert engine.plan is not None
        return engine.plan


def taken(target: Path, draft: Path | None, fill: int, **options: Any) -> dict[str, int]:
    """Run a case of benchmarks/memory_plan.py."""
    given = {"target": str(target), "draft": draft and str(draft), "fill": fill}
    given |= QUICK | options
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--case", json.dumps(given)],
        capture_output=True,
        text=True,
        cwd="/",  # in the clone's root Python would find the source folder before the installed package
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"context": 300},
        {"context": 5000, "sequences": 8},
        {"context": 1000, "sequences": 3, "kv_type": ("q8_0", "f32"), "max_block": 3},
        {"context": 512, "draft_window": 64, "draft_kv_type": "bf16", "flash_attn": False},
    ],
)
def test_buffers_planned_are_those_of_the_real_contexts(
    pair: Pair, options: dict[str, Any]
) -> None:
    plan = plan_of(pair.target, pair.draft, **options)
    given = dflash_gguf.Options(**QUICK | options)
    native = core()
    target = native.Model(str(pair.target))
    block = given.max_block or 8
    sizes = Sizes(given.context or 0, block, block - 1 if target.has_state else 0)
    real = native.Context(target, target_params(given, sizes)).buffers
    assert {use.place for use in real} == {"host"}
    assert plan.of("target cache", "states", "snapshots") == sum(use.caches for use in real)
    assert plan.of("target buffers") == sum(use.compute for use in real)
    # a mapped file holds a little more than its tensors
    assert plan.of("target weights") == pytest.approx(sum(use.weights for use in real), rel=0.01)
    params = draft_params(given, sizes)
    assert params.window == options.get("draft_window", 0)
    assert plan.of("draft cache") > 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing tells what is resident")
@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_full_contexts_take_what_was_planned(tmp_path: Path, kind: str) -> None:  # B2
    pair = make_pair(tmp_path, hybrid=kind == "hybrid", block=16)
    options = {"context": 2048, "sequences": 8, "kv_type": "f32", "block": 16}
    found = taken(pair.target, pair.draft, 2000, **options)
    # notes of llama.cpp's that are written to or not, as the allocator has it, weigh more here than in a pair of use
    assert found["taken"] == pytest.approx(found["planned"], rel=0.05, abs=8 * MIB)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing tells what is resident")
def test_kept_prefixes_and_windows_are_counted_and_all_is_given_back(tiny: Tiny) -> None:  # B2
    options = {"context": 1024, "sequences": 2, "draft_window": 128, "kv_type": "q8_0"}
    found = taken(tiny.target, tiny.draft("bf16"), 500, block=16, prefix_memory=24 * MIB, **options)
    assert found["kept"] > 20 * MIB
    # beside these notes, holes between states that came and went
    assert found["taken"] == pytest.approx(found["planned_of_this"], rel=0.05, abs=12 * MIB)
    assert found["left"] < 4 * MIB, "a closed engine holds nothing"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing tells what is resident")
def test_large_contexts_take_what_was_planned(tiny: Tiny) -> None:  # B2
    options = {"context": 65_536, "sequences": 8, "max_block": 16}
    found = taken(tiny.target, tiny.draft("bf16"), -1, **options)
    assert found["planned_at_load"] > 1000 * MIB
    assert found["at_load"] == pytest.approx(found["planned_at_load"], rel=0.05)


def test_places_and_kinds_add_up(hybrid: Pair) -> None:
    plan = plan_of(hybrid.target, hybrid.draft, context=300, sequences=2, mmap=True)
    assert plan.total == sum(plan.at(place) for place in plan.places)
    assert plan.of("snapshots") == 7 * plan.of("states") > 0
    assert plan.at("host", mapped=False) == plan.total - plan.of("target weights", "draft weights")
    # keys and values of one head of 32 in f16, one layer of attention, contexts rounded up to 256
    assert plan.of("target cache") == 2 * 512 * 2 * 32 * 2
    assert plan.line().startswith(f"memory planned: {size_text(plan.total)} (weights ")
    assert len(plan.table()) == len(plan.lines)


def test_without_a_drafter_nothing_of_one_is_planned(pair: Pair) -> None:
    plan = plan_of(pair.target, context=300)
    assert plan.of("snapshots", "kept states", "draft cache", "draft buffers", "layer inputs") == 0
    assert not any("draft" in line.name for line in plan.lines)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8G", 8 * 2**30),
        ("1.5 GiB", 3 * 2**29),
        ("500M", 500 * MIB),
        ("500mb", 500 * MIB),
        ("64", 64 * MIB),
        (64, 64 * MIB),
        ("100K", 102_400),
    ],
)
def test_sizes_are_read(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "8X", "-1G", "0", 0, "1e9", True])
def test_other_sizes_are_refused(text: int | str) -> None:
    with pytest.raises(UsageError, match=r"memory_limit is .*; expected a size such as '8G'"):
        parse_size(text)


def test_guessed_speeds_are_in_order() -> None:
    for replay in (False, True):
        speeds = [expected_speed(block, replay=replay) for block in range(1, 40)]
        assert speeds == sorted(speeds)
        assert speeds[0] == 1
    assert all(
        expected_speed(block, replay=True) < expected_speed(block, replay=False)
        for block in range(2, 40)
    )
    # one snapshot is not worth giving up wide blocks for
    assert expected_speed(2, replay=False) < expected_speed(16, replay=True)
    assert expected_speed(6, replay=False) > expected_speed(16, replay=True)


def test_snapshots_give_way_first_to_narrower_blocks_then_to_replay(hybrid: Pair) -> None:
    options: dict[str, Any] = {"context": 256, "sequences": 40, "kv_type": "f32", **QUICK}
    # batches of one size, whatever the block
    options |= {"batch": 400, "draft_batch": 400}
    whole = plan_of(hybrid.target, hybrid.draft, **options)
    prompt = list(range(1, 9))
    texts = set()
    seen: list[tuple[int, str]] = []
    for less in (0, 2.5, 4.5, 9.1):
        memory_limit = (whole.total + MIB - int(less * whole.of("states"))) // 1024
        with dflash_gguf.load(
            hybrid.target, hybrid.draft, memory_limit=f"{memory_limit}K", **options
        ) as engine:
            assert engine.plan is not None
            assert engine.plan.total <= memory_limit * 1024
            depth = engine.plan.of("snapshots") // engine.plan.of("states")
            seen.append((depth, " ".join(engine.warnings)))
            texts.add(tuple(engine.generate(prompt, max_tokens=60, ignore_end=True).tokens))
    assert seen[0] == (7, "")
    assert 2 <= seen[2][0] < seen[1][0] < 7
    assert "blocks of 8 do not fit in memory: at most" in seen[1][1]
    assert seen[3][0] == 0
    assert "the state is kept once" in seen[3][1]
    assert "at most" not in seen[3][1], "replay needs no states for wide blocks"
    assert len(texts) == 1


def test_what_cannot_fit_is_refused_with_a_context_that_does(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:  # L4
    monkeypatch.setattr(memory, "available", lambda: 64 * MIB)
    asked: dict[str, Any] = {"sequences": 4, "kv_type": "f32", **QUICK}
    with pytest.raises(ResourceError) as caught:
        dflash_gguf.load(pair.target, pair.draft, context=50_000, **asked)
    words = str(caught.value)
    assert "a context of 50,000 tokens for each of 4 sequences takes " in words
    assert "64.0 MiB are free; at most " in words
    most = int(re.findall(r"at most ([\d,]+) tokens would fit", words)[0].replace(",", ""))
    assert most >= 256
    dflash_gguf.load(pair.target, pair.draft, context=most, **asked).close()
    with pytest.raises(ResourceError, match=r"at most [\d,]+ tokens would fit"):
        dflash_gguf.load(pair.target, pair.draft, context=most * 5 // 4, **asked)


def test_a_limit_is_kept_and_named(pair: Pair) -> None:
    with pytest.raises(ResourceError, match=r"1\.0 MiB are allowed; no context fits"):
        dflash_gguf.load(pair.target, pair.draft, memory_limit="1M", **QUICK)
    assert plan_of(pair.target, pair.draft, context=256, memory_limit="1G").total < 2**30


def test_small_files_are_copied_unless_asked_otherwise(
    hybrid: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(mmap: bool | None) -> tuple[bool, list[int]]:
        with dflash_gguf.load(
            hybrid.target, hybrid.draft, context=256, mmap=mmap, **QUICK
        ) as engine:
            assert engine.plan is not None
            mapped = any(line.mapped and line.size for line in engine.plan.lines)
            return mapped, engine.generate([1, 2, 3], max_tokens=9, ignore_end=True).tokens

    mapped, tokens = found(True)
    assert mapped
    assert found(False) == found(None) == (False, tokens)
    monkeypatch.setattr(hardware, "_COPIED", 1000)
    assert found(None) == (True, tokens)


def test_a_context_of_any_size_is_refused_without_taking_it(dense: Pair) -> None:
    before = core().own_memory()
    with pytest.raises(ResourceError, match=r"takes about [\d,.]+ GiB with"):
        dflash_gguf.load(dense.target, context=2**30, **QUICK)
    assert core().own_memory() - before < 500 * MIB


def test_weights_of_a_file_may_be_more_than_is_free(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tiny.target, context=256, mmap=True)
    monkeypatch.setattr(memory, "available", lambda: plan.at("host", mapped=False) + 4 * MIB)
    with dflash_gguf.load(tiny.target, context=256, mmap=True, **QUICK) as engine:
        (warning,) = engine.warnings
        assert re.match(
            r"the weights do not fit in memory beside the rest \([\d.]+ MiB planned", warning
        )
        assert engine.generate([1, 2, 3], max_tokens=5, ignore_end=True).tokens
    with pytest.raises(ResourceError, match="are allowed; no context fits"):
        dflash_gguf.load(tiny.target, context=256, memory_limit="16M", **QUICK)

"""Opening a pair: its options, what is refused, how a load is watched and stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import DflashError, ModelError, ResourceError, UsageError

from .support.edited import edited
from .support.random_pairs import Pair

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]
QUICK: dict[str, Any] = {"threads": 1, "context": 256, "kv_type": "f32"}


def test_a_narrower_engine_refuses_wider_blocks(pair: Pair) -> None:
    with dflash_gguf.load(pair.target, pair.draft, max_block=3, **QUICK) as engine:
        assert engine.generate(PROMPT, block=3, max_tokens=1).block == 3
        assert len(engine.generate(PROMPT, max_tokens=9, ignore_end=True).tokens) == 9
        with pytest.raises(UsageError, match="block 4 is outside 1 to 3"):
            engine.start(PROMPT, block=4)


@pytest.mark.parametrize("context", [1, 2, 7, 8, 9])
def test_a_context_smaller_than_a_block_runs(pair: Pair, context: int) -> None:
    options = QUICK | {"context": context, "sequences": 2}
    with dflash_gguf.load(pair.target, pair.draft, **options) as engine:
        for length in range(1, context):
            prompts = [[length] * length, [length + 1] * length]
            answers = [engine.start(prompt, ignore_end=True) for prompt in prompts]
            while engine.busy:
                engine.step()
            assert [len(answer.tokens) for answer in answers] == [context - length] * 2


def test_a_block_as_wide_as_a_prefill_runs(hybrid: Pair, tmp_path: Path) -> None:
    wide = edited(hybrid.draft, tmp_path / "d.gguf", change={"dflash.block_size": 256})
    with dflash_gguf.load(hybrid.target, wide, **QUICK) as engine:
        assert engine.generate(PROMPT, block=256, max_tokens=1).block == 256
        assert len(engine.generate(PROMPT, max_tokens=9, ignore_end=True).tokens) == 9


def test_a_block_no_machine_holds_is_refused(dense: Pair, tmp_path: Path) -> None:
    change = {"dflash.block_size": 2**32 - 1}
    wide = edited(dense.draft, tmp_path / "d.gguf", change=change)
    with pytest.raises(UsageError, match="block 4294967295 is more than 1024"):
        dflash_gguf.load(dense.target, wide, **QUICK)
    with dflash_gguf.load(dense.target, wide, max_block=4, **QUICK) as engine:
        assert engine.generate(PROMPT, block=4, max_tokens=1).block == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"contxt": 5}, "there is no option 'contxt'; expected one of context, block, max_block"),
        ({"context": 0}, "context is 0; expected a whole number from 1"),
        ({"context": 2**31}, "context is 2147483648; expected"),
        ({"context": "big"}, "context is 'big'; expected"),
        ({"context": 2**30, "sequences": 2}, "context is 1073741824; expected"),
        ({"threads": 0}, "threads is 0; expected"),
        ({"threads": 5000}, "threads is 5000; expected a whole number from 1 to 512"),
        ({"sequences": 0}, "sequences is 0; expected"),
        ({"sequences": 257}, "sequences is 257; expected a whole number from 1 to 256"),
        ({"max_block": 0}, "max_block is 0; expected"),
        ({"max_block": 9}, "block 9 is wider than the 8 that"),
        ({"gpu_layers": -2}, "gpu_layers is -2; expected"),
        ({"kv_type": "q4_9"}, "kv_type is 'q4_9'; expected one of f32, f16, bf16, q8_0"),
        ({"draft_kv_type": ("f16", 3)}, "draft_kv_type is ('f16', 3); expected one of f32"),
        ({"kv_type": "q8_0", "flash_attn": False}, "values of q8_0, which need flash attention"),
        ({"flash_attn": "yes"}, "flash_attn is 'yes'; expected True, False or None"),
        ({"batch": 7}, "batch is 7; expected at least 9 for 1 sequences with blocks of 8"),
        ({"ubatch": 8}, "ubatch is 8; expected at least 9 for 1 sequences with blocks of 8"),
        ({"draft_batch": 15, "sequences": 2}, "draft_batch is 15; expected at least 16 for 2"),
        ({"draft_context": 8}, "draft_context is 8; expected more than the 8 rows of a block"),
        ({"draft_window": 0}, "draft_window is 0; expected a whole number from 1"),
        ({"threads_batch": 0}, "threads_batch is 0; expected a whole number from 1 to 512"),
        ({"draft_threads": 900}, "draft_threads is 900; expected"),
        ({"memory_limit": "lots"}, "memory_limit is 'lots'; expected a size such as '8G'"),
        ({"block": None}, "block is None; expected a value, or to be left out"),
        ({"sequences": None}, "sequences is None; expected a value"),
        ({"sequences": True}, "sequences is True; expected a whole number"),
        ({"prefix_memory": None}, "prefix_memory is None; expected a value"),
        ({"devices": "CPU"}, "devices is 'CPU'; expected several names"),
        ({"draft_devices": (1,)}, "draft_devices is (1,); expected several names"),
        ({"mmap": "yes"}, "mmap is 'yes'; expected True, False or None"),
        ({"causal": 3}, "causal is 3; expected True, False or None"),
        ({"flash_attn": []}, "flash_attn is []; expected True, False or None"),
        ({"options": 5}, "options is int; expected an Options, or its fields as keywords"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    dense: Pair, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        dflash_gguf.load(dense.target, dense.draft, **options)
    assert words in str(caught.value)


def test_what_cannot_be_had_is_a_resource_error(dense: Pair) -> None:
    with pytest.raises(ResourceError, match="device 'CUDA7' is not available; this build has: "):
        dflash_gguf.load(dense.target, devices=("CUDA7",))


def test_options_may_come_as_one_value(dense: Pair) -> None:
    options = dflash_gguf.Options(context=300, threads=1)
    with dflash_gguf.load(dense.target, options=options, sequences=2) as engine:
        assert (engine.n_ctx, engine.free) == (300, 2)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_other_cache_types_run(pair: Pair, kv_type: str) -> None:
    with dflash_gguf.load(
        pair.target, pair.draft, threads=1, context=128, kv_type=kv_type
    ) as engine:
        assert len(engine.generate(PROMPT, max_tokens=20, ignore_end=True).tokens) == 20


def test_a_target_without_a_template_takes_plain_text(dense: Pair, tmp_path: Path) -> None:
    bare = edited(dense.target, tmp_path / "t.gguf", drop=("tokenizer.chat_template",))
    with dflash_gguf.load(bare, dense.draft, **QUICK) as engine:
        assert not engine.has_chat_template
        assert engine.encode("hi") == engine.encode("hi", raw=True)
        with pytest.raises(UsageError, match="has no chat template"):
            engine.encode([{"role": "user", "content": "hi"}])


def test_a_broken_template_is_a_model_error(dense: Pair, tmp_path: Path) -> None:
    broken = edited(
        dense.target, tmp_path / "t.gguf", change={"tokenizer.chat_template": "{% if %}"}
    )
    with pytest.raises(ModelError, match="chat template is not valid"):
        dflash_gguf.load(broken, dense.draft, **QUICK)


def test_a_stopped_load_is_no_fault_of_the_file(dense: Pair) -> None:
    seen: list[float] = []

    def stop(fraction: float) -> bool:
        seen.append(fraction)
        return False

    with pytest.raises(DflashError, match="the load was stopped") as caught:
        dflash_gguf.load(dense.target, progress=stop)
    assert type(caught.value) is DflashError
    assert len(seen) == 1


def test_errors_and_interrupts_of_progress_come_through(dense: Pair) -> None:
    for error in (KeyboardInterrupt(), ZeroDivisionError("mine")):

        def fail(_fraction: float, error: BaseException = error) -> bool:
            raise error

        with pytest.raises(type(error)):
            dflash_gguf.load(dense.target, progress=fail)


def test_progress_goes_from_0_to_1_and_may_return_nothing(dense: Pair) -> None:
    seen: list[float] = []
    dflash_gguf.load(dense.target, progress=seen.append, **QUICK).close()  # type: ignore[arg-type]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_limit_beyond_all_memory_is_none(dense: Pair) -> None:
    with dflash_gguf.load(dense.target, threads=1, context=256, memory_limit="9" * 400) as engine:
        assert engine.generate([1], max_tokens=1).tokens


def test_a_user_without_a_home_can_load(dense: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        text = "Could not determine home directory."
        raise RuntimeError(text)

    for name in ("DFLASH_GGUF_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    with dflash_gguf.load(dense.target, dense.draft, threads=1, context=256) as engine:
        assert engine.generate([1], max_tokens=1).tokens
    with pytest.raises(ResourceError, match="set DFLASH_GGUF_CACHE to a folder"):
        dflash_gguf.load(dense.target, dense.target.parent / "draft" / "model.safetensors")

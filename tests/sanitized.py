"""A short tour of the whole extension, for a build whose sanitizers end the process at the first fault.

`make sanitize` runs it. Random pairs of all families, dense and hybrid: drafting, many sequences that come and go,
cancels at any node, kept, saved and restored prefixes, sampling, grammars, stop strings, workers, simulated
memory, conversions, and handles closed in many orders.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(
    str(Path(__file__).parent.parent)
)  # last: the sanitized package comes before this folder's

import dflash_gguf
from dflash_gguf import DflashError, Sampling, Simulation, Worker
from dflash_gguf._native import core
from tests.support.family_pairs import VARIANTS, make_family_pair
from tests.support.family_rig import FamilyRig
from tests.support.random_pairs import VOCAB, Pair, make_pair
from tests.support.sessions import ENDLESS, open_session

PROMPT = [(7 * i + i // 5) % 256 for i in range(70)]
SMALL: dict[str, Any] = {"threads": 1, "context": 256}


def rounds(pair: Pair, folder: Path) -> None:
    """Sequences that come, go and are cancelled, by both ways of going back."""
    del folder
    choose = random.Random(0)
    for replay, memory in itertools.product((False, True), (0, 10**5, 10**9)):
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(
            pair.target,
            block=5,
            sequences=3,
            drafter=drafter,
            n_ctx=256,
            n_batch=24,
            replay=replay,
            prefix_memory=memory,
        )
        running: set[int] = set()
        for _ in range(90):
            if len(running) < 3 and choose.random() < 0.4:
                prompt = [*PROMPT[: choose.randrange(1, 70)], choose.randrange(256)]
                number = session.add(
                    prompt,
                    max_tokens=choose.choice([1, 5, 200]),
                    block=choose.choice([1, 2, 5]),
                    stops=ENDLESS,
                    stop_strings=choose.choice([[], [b"a"], [b"ab", "é"]]),
                    logprobs=choose.choice([-1, 0, 3]),
                )
                drafter.script(number, prompt + PROMPT, [choose.randrange(5), 1])
                running.add(number)
            if running and choose.random() < 0.1:
                number = choose.choice(sorted(running))
                if choose.random() < 0.5:
                    session.interrupt(number).set_after(choose.randrange(1, 300))
                else:
                    session.remove(number)
                    running.discard(number)
            for output in session.step():
                if output.finish != core().Finish.none:
                    session.remove(output.id)
                    running.discard(output.id)
        session.forget_prefixes()


def engines(pair: Pair, folder: Path) -> None:
    """What users call: sampling, grammars, prefixes on disk, widths that are chosen and contexts remade."""
    path = folder / "prefix"
    samplings = [
        None,
        Sampling(temperature=0.8, top_k=9, top_p=0.9, min_p=0.01, typical=0.9, seed=1),
        Sampling(temperature=1.1, repeat_penalty=1.2, logit_bias={7: -1.0}, seed=2),
        Sampling(temperature=1.0, seed=3, draft_sampling="rejection"),
    ]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for sequences in (1, 3):
        with dflash_gguf.load(pair.target, pair.draft, sequences=sequences, **SMALL) as engine:
            for sampling in samplings:
                for block in ("auto", 3):
                    engine.generate(
                        PROMPT, max_tokens=30, sampling=sampling, block=block, logprobs=2
                    )
            engine.generate("one", max_tokens=30, json_schema=schema)
            engine.generate(
                "two", max_tokens=30, grammar='root ::= "a"+ | [0-9]{2,5}', stop=["aa", "7"]
            )
            answers = [engine.start([*PROMPT, i], max_tokens=60) for i in range(sequences)]
            for _ in range(9):
                engine.step()
            answers[0].interrupt()
            engine.step()
            for answer in answers:
                engine.cancel(answer)
            engine.save_prefix(path, PROMPT)
            engine.forget_prefixes()
            engine.restore_prefix(path)
            engine.generate([*PROMPT, 1, 2], max_tokens=5)
    for options in (
        {"draft_window": 16},
        {"simulate": Simulation([0.9, 0.5, 0.2], 1)},
        {"kv_type": "q8_0"},
    ):
        with dflash_gguf.load(pair.target, pair.draft, **SMALL, **options) as engine:
            engine.generate(PROMPT, max_tokens=90, ignore_end=True)


def workers(pair: Pair, folder: Path) -> None:
    """Requests from another thread, cancelled and left behind."""
    del folder
    with Worker(lambda: dflash_gguf.load(pair.target, pair.draft, sequences=2, **SMALL)) as worker:
        for turn in range(12):
            tickets = [worker.submit([*PROMPT, turn, i], ignore_end=True) for i in range(3)]
            next(iter(tickets[0]))
            for ticket in tickets[turn % 3 :]:
                ticket.cancel()
                assert list(ticket)
            for ticket in tickets[: turn % 3]:
                ticket.cancel()


def orders(pair: Pair, folder: Path) -> None:
    """Handles closed in many orders, with a step between."""
    del folder
    native = core()
    names = ("model", "context", "drafter", "target", "session")
    for order in list(itertools.permutations(names))[::7]:
        model, draft = native.Model(str(pair.target)), native.Model(str(pair.draft))
        params = native.ContextParams()
        params.n_ctx, params.n_outputs, params.n_threads = 256, 8, 1
        params.n_threads_batch, params.n_rollback = 1, 7 if model.has_state else 0
        held = {"model": model, "context": native.Context(model, params)}
        params.n_batch = params.n_ubatch = params.n_outputs = 64
        params.n_rollback, params.unified = 0, True
        held["drafter"] = native.ModelDrafter(
            draft, params, held["context"], 259, [False] * draft.n_layer
        )
        held["target"] = native.Target(held["context"], draft.taps)
        held["session"] = native.Session(held["target"], held["drafter"], 8)
        held["session"].add([1, 2, 3], max_tokens=50, block=8, stops=ENDLESS)
        del model, draft
        for name in order:
            if "session" in held:
                held["session"].step()
            del held[name]
            gc.collect()


def families(folder: Path) -> None:
    """Drafts of every other family, greedy and sampled."""
    for variant in VARIANTS:
        made = make_family_pair(folder / variant, variant, hybrid=variant == "dspark")
        rig = FamilyRig(made, sequences=2)
        texts = [PROMPT, PROMPT[:9]]
        numbers = [rig.read(text)[0] for text in texts]
        for temperature in (0.0, 0.9):
            sampling = core().Sampling()
            sampling.temperature, sampling.seed = temperature, 5
            turns = [
                (n, len(t), 7, made.most - i)
                for i, (n, t) in enumerate(zip(numbers, texts, strict=True))
            ]
            assert rig.draft(*turns, sampling=sampling)
        with dflash_gguf.load(made.pair.target, made.pair.draft, sequences=2, **SMALL) as engine:
            engine.generate(PROMPT, max_tokens=20, ignore_end=True)


def refusals(pair: Pair, folder: Path) -> None:
    """Requests and files that are refused leave everything as it was."""
    broken = folder / "broken.gguf"
    broken.write_bytes(pair.draft.read_bytes()[:-64])
    tries: list[Callable[[], object]] = [
        lambda: dflash_gguf.load(pair.target, broken),
        lambda: dflash_gguf.load(pair.target, pair.draft, **SMALL).generate([999]),
        lambda: dflash_gguf.load(pair.target, pair.draft, **SMALL).generate(
            "x", grammar="root ::= ("
        ),
        lambda: dflash_gguf.load(pair.target, pair.draft, **SMALL).restore_prefix(broken),
    ]
    for action in tries:
        try:
            action()
        except DflashError:
            continue
        message = "nothing was refused"
        raise AssertionError(message)


def main() -> None:
    """Take the tour, saying where it is."""
    print(core().__file__, flush=True)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for hybrid in (False, True):
            pair = make_pair(root / str(hybrid), hybrid=hybrid)
            for part in (rounds, engines, workers, orders, refusals):
                print(f"{'hybrid' if hybrid else 'dense'}: {part.__name__}", flush=True)
                part(pair, root)
        print("families", flush=True)
        families(root)
    print("clean", flush=True)


if __name__ == "__main__":
    main()

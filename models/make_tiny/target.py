"""Trains the target on generated dialogues, two processes of one thread each.

Two single-thread processes with summed gradients use two cores better than one process of two
threads: most of the time goes into small operations that do not split well. Weights are
kept in f32 and used in bf16.
"""

from __future__ import annotations

import copy
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

from .chat import END
from .fast import CHUNK, forward
from .muon import Muon
from .shape import target_config
from .start import new_target
from .text import DRILL_SEED, LATE_MIXTURE, LATE_SEED, Dialogue, training_stream
from .tokenizer import load_tokenizer

RANKS = 2
RANK_TOKENS = 3072  # padded tokens of one process and step
FIRST, SECOND, THIRD, STEPS = 240, 400, 760, 980  # the last step of each cycle
DIGIT_WEIGHT = 4.0  # of a digit token from step SECOND on: sums are few among many tokens
POOL = 4000  # dialogues sorted by length together
RATE, ADAM_RATE = 0.02, 0.0015
PART = "target-part.pt"

Batch = tuple[Tensor, Tensor]  # ids (B, N) and which of them are replies, right-padded


def encode(tokenizer: Tokenizer, dialogue: Dialogue) -> tuple[list[int], int]:
    """Token ids of the whole text, and how many of them are the prompt's."""
    prompt = tokenizer.encode(dialogue.prompt).ids
    return prompt + tokenizer.encode(dialogue.reply + END).ids, len(prompt)


def make_batch(texts: list[tuple[list[int], int]]) -> Batch:
    """Pads texts to one length, a multiple of the delta rule's chunk."""
    longest = max(len(ids) for ids, _ in texts)
    width = -(-longest // CHUNK) * CHUNK
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    reply = torch.zeros(len(texts), width, dtype=torch.bool)
    for row, (tokens, prompt) in enumerate(texts):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        reply[row, prompt : len(tokens)] = True
    return ids, reply


def batches(tokenizer: Tokenizer, stream: Iterator[Dialogue], seed: int) -> Iterator[list[Batch]]:
    """Endless steps, each with one batch of similar length for every process."""
    rng = random.Random(seed)
    while True:
        texts = sorted(
            (encode(tokenizer, next(stream)) for _ in range(POOL)), key=lambda t: len(t[0])
        )
        groups: list[list[tuple[list[int], int]]] = [[]]
        for text in texts:
            width = -(-len(text[0]) // CHUNK) * CHUNK
            if (len(groups[-1]) + 1) * width > RANK_TOKENS:
                groups.append([])
            groups[-1].append(text)
        pairs = [groups[i : i + RANKS] for i in range(0, len(groups) - RANKS + 1, RANKS)]
        rng.shuffle(pairs)
        for pair in pairs:
            yield [make_batch(group) for group in pair]


def loss_sum(model: Qwen3_5ForCausalLM, batch: Batch, weight: Tensor) -> Tensor:
    """Summed cross-entropy of the reply tokens; weight: (V,) of each token id."""
    ids, reply = batch
    hidden = forward(model, ids)[0]
    rows = reply[:, 1:]
    logits = model.lm_head(hidden[:, :-1][rows])
    return F.cross_entropy(logits.float(), ids[:, 1:][rows], weight, reduction="sum")


def schedule(step: int, steps: int) -> float:
    """Warm-up, then constant, then linear to zero over the second half."""
    return min(1.0, (step + 1) / 20, 2 * (steps - step) / steps)


def rate_scale(step: int) -> float:
    """A short cycle, a part of a second, and two long ones; each falls from less far up."""
    if step < FIRST:
        return schedule(step, FIRST)
    if step < SECOND:
        return 0.75 * (540 - step) / 300
    if step < THIRD:
        return 0.6 * (THIRD - step) / (THIRD - SECOND)
    return 0.5 * min(1.0, (step + 1 - THIRD) / 10) * (STEPS - step) / (STEPS - THIRD)


def all_batches(tokenizer: Tokenizer, seed: int) -> Iterator[list[Batch]]:
    """Dialogues up to step SECOND, then with drills of bare sums, from THIRD on late ones."""
    yield from itertools.islice(batches(tokenizer, training_stream(seed), seed), SECOND)
    drills = training_stream(seed + DRILL_SEED, drills=True)
    yield from itertools.islice(batches(tokenizer, drills, seed), THIRD - SECOND)
    late = training_stream(seed + LATE_SEED, late=True, mixture=LATE_MIXTURE)
    yield from itertools.islice(batches(tokenizer, late, seed), STEPS - THIRD)


def _worker(rank: int, folder: str, seed: int) -> None:
    work = Path(folder)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{work / 'meeting'}", rank=rank, world_size=RANKS
    )
    torch.manual_seed(seed)
    master = new_target()
    model = copy.deepcopy(master).bfloat16()
    names = [(n, p) for n, p in master.named_parameters()]
    optimizer = Muon(names, RATE, adam_rate=ADAM_RATE)
    pairs = list(zip(master.parameters(), model.parameters(), strict=True))
    first = _resume(work, master, model, optimizer)
    tokenizer = load_tokenizer(work / "tokenizer.json")
    digits = torch.tensor([tokenizer.token_to_id(d) for d in "0123456789"])
    steps_left = itertools.islice(all_batches(tokenizer, seed), first, None)
    began, tokens = time.monotonic(), 0
    for step, step_batches in enumerate(steps_left, first):
        weight = torch.ones(model.config.vocab_size)
        weight[digits] = DIGIT_WEIGHT if step >= SECOND else 1.0
        count = sum(float(weight[ids[reply]].sum()) for ids, reply in step_batches)
        tokens += sum(ids.numel() for ids, _ in step_batches)
        loss = loss_sum(model, step_batches[rank], weight) / count
        loss.backward()
        flat = torch.cat([w.grad.float().flatten() for _, w in pairs] + [loss.detach()[None]])
        dist.all_reduce(flat)
        parts = flat[:-1].split([p.numel() for p, _ in pairs])
        for (parameter, shadow), part in zip(pairs, parts, strict=True):
            parameter.grad, shadow.grad = part.view_as(parameter), None
        torch.nn.utils.clip_grad_norm_(master.parameters(), 1.0)
        optimizer.step(rate_scale(step))
        with torch.no_grad():
            for parameter, shadow in pairs:
                shadow.copy_(parameter)
        if rank == 0 and (step % 10 == 9 or step == STEPS - 1):
            seconds = time.monotonic() - began
            print(
                f"target step {step + 1}/{STEPS} loss {flat[-1]:.4f} "
                f"{tokens / seconds:.0f} tokens/s {seconds:.0f} s",
                flush=True,
            )
            if step % 40 == 39:
                state = {"step": step + 1, "model": master.state_dict()}
                torch.save(state | optimizer.state(), work / "new-part.pt")
                (work / "new-part.pt").replace(work / PART)
    if rank == 0:
        torch.save(master.state_dict(), work / "target.pt")
    dist.destroy_process_group()


def _resume(
    work: Path, master: Qwen3_5ForCausalLM, model: Qwen3_5ForCausalLM, optimizer: Muon
) -> int:
    """Loads the last checkpoint of an interrupted run, if any; returns the next step."""
    if not (work / PART).exists():
        return 0
    state = torch.load(work / PART)
    master.load_state_dict(state["model"])
    model.load_state_dict(state["model"])
    optimizer.load(state)
    return int(state["step"])


def train_target(work: Path, seed: int) -> None:
    """Trains from the seed and leaves work/target.pt; needs work/tokenizer.json."""
    (work / "meeting").unlink(missing_ok=True)
    mp.spawn(_worker, args=(str(work), seed), nprocs=RANKS)


def load_target(path: Path) -> Qwen3_5ForCausalLM:
    """The target in f32 with its matrices rounded to bf16, as they are shipped."""
    model = Qwen3_5ForCausalLM(target_config())
    model.load_state_dict(torch.load(path))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:  # the convolution and all vectors are shipped in f32
                parameter.copy_(parameter.bfloat16())
    return model.eval().requires_grad_(False)

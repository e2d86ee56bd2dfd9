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
from .text import Dialogue, training_stream
from .tokenizer import load_tokenizer

RANKS = 2
RANK_TOKENS = 3072  # padded tokens of one process and step
STEPS = 240
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


def batches(tokenizer: Tokenizer, seed: int) -> Iterator[list[Batch]]:
    """Endless steps, each with one batch of similar length for every process."""
    stream, rng = training_stream(seed), random.Random(seed)
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


def loss_sum(model: Qwen3_5ForCausalLM, batch: Batch) -> Tensor:
    """Summed cross-entropy of the reply tokens."""
    ids, reply = batch
    hidden = forward(model, ids)[0]
    rows = reply[:, 1:]
    logits = model.lm_head(hidden[:, :-1][rows])
    return F.cross_entropy(logits.float(), ids[:, 1:][rows], reduction="sum")


def schedule(step: int, steps: int) -> float:
    """Warm-up, then constant, then linear to zero over the second half."""
    return min(1.0, (step + 1) / 20, 2 * (steps - step) / steps)


def _worker(rank: int, folder: str, seed: int, steps: int) -> None:
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
    steps_left = itertools.islice(
        batches(load_tokenizer(work / "tokenizer.json"), seed), first, steps
    )
    began, tokens = time.monotonic(), 0
    for step, step_batches in enumerate(steps_left, first):
        count = sum(int(reply.sum()) for _, reply in step_batches)
        tokens += sum(ids.numel() for ids, _ in step_batches)
        loss = loss_sum(model, step_batches[rank]) / count
        loss.backward()
        flat = torch.cat([w.grad.float().flatten() for _, w in pairs] + [loss.detach()[None]])
        dist.all_reduce(flat)
        parts = flat[:-1].split([p.numel() for p, _ in pairs])
        for (parameter, weight), part in zip(pairs, parts, strict=True):
            parameter.grad, weight.grad = part.view_as(parameter), None
        torch.nn.utils.clip_grad_norm_(master.parameters(), 1.0)
        optimizer.step(schedule(step, steps))
        with torch.no_grad():
            for parameter, weight in pairs:
                weight.copy_(parameter)
        if rank == 0 and (step % 10 == 9 or step == steps - 1):
            seconds = time.monotonic() - began
            print(
                f"target step {step + 1}/{steps} loss {flat[-1]:.4f} "
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


def train_target(work: Path, seed: int, steps: int = STEPS) -> None:
    """Trains from the seed and leaves work/target.pt; needs work/tokenizer.json."""
    (work / "meeting").unlink(missing_ok=True)
    mp.spawn(_worker, args=(str(work), seed, steps), nprocs=RANKS)


def load_target(path: Path) -> Qwen3_5ForCausalLM:
    """The target in f32 with its matrices rounded to bf16, as they are shipped."""
    model = Qwen3_5ForCausalLM(target_config())
    model.load_state_dict(torch.load(path))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:  # the convolution and all vectors are shipped in f32
                parameter.copy_(parameter.bfloat16())
    return model.eval().requires_grad_(False)

"""Trains the drafter on the target's own texts, many anchors of a text in one pass."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn

from .drafter import Drafter, noise_ids
from .generate import Text
from .muon import Muon
from .sampling import load_texts
from .shape import BLOCK, draft_config
from .target import load_target, schedule
from .tokenizer import MASK, load_tokenizer

RANKS = 2
STEPS = 700
TEXTS_PER_STEP = 16  # of one process
ANCHORS = 16  # of one text
FADE = 7.0  # the weight of draft position k is exp(-(k - 1) / FADE)
RATE, ADAM_RATE = 0.02, 0.002


def groups(texts: list[Text], seed: int) -> Iterator[list[list[Text]]]:
    """Endless steps, each with one group of texts of similar length for every process."""
    rng = random.Random(seed)
    size = TEXTS_PER_STEP * RANKS
    if len(texts) < size:
        msg = f"{len(texts)} finished texts, fewer than the {size} of one step"
        raise ValueError(msg)
    while True:
        order = sorted(texts, key=lambda t: len(t.ids) + rng.random() * 16)
        starts = list(range(0, len(order) - size + 1, size))
        rng.shuffle(starts)
        for start in starts:
            step = order[start : start + size]
            yield [step[rank::RANKS] for rank in range(RANKS)]


def make_batch(texts: list[Text], rng: random.Random) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pads texts and picks anchors.

    Returns ids (B, N + BLOCK), tapped states (B, N, T*D), anchors (B, A) sorted, and how many
    draft positions each anchor has before its text ends, (B, A).
    """
    width = max(len(t.ids) for t in texts)
    ids = torch.zeros(len(texts), width + BLOCK, dtype=torch.long)
    taps = torch.zeros(len(texts), width, texts[0].taps.shape[1])
    anchors = torch.zeros(len(texts), ANCHORS, dtype=torch.long)
    left = torch.zeros(len(texts), ANCHORS, dtype=torch.long)
    for row, text in enumerate(texts):
        n = len(text.ids)
        ids[row, :n] = text.ids
        taps[row, : n - 1] = text.taps.float()
        places = range(text.prompt, n - 1)
        draw = rng.sample if len(places) >= ANCHORS else rng.choices
        chosen = draw(places, k=ANCHORS)
        anchors[row] = torch.tensor(sorted(chosen))
        left[row] = (n - 1 - anchors[row]).clamp(max=BLOCK - 1)
    return ids, taps, anchors, left


def loss_sums(
    drafter: Drafter, embed: Tensor, head: Tensor, batch: tuple[Tensor, ...], mask_id: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted summed cross-entropy, sum of weights, and mean accept length of the anchors."""
    ids, taps, anchors, left = batch
    noise = F.embedding(noise_ids(ids, anchors, BLOCK, mask_id), embed)
    hidden = drafter(taps.to(embed.dtype), noise, anchors)[:, :, 1:]  # (B, A, S - 1, D)
    steps = torch.arange(1, BLOCK)
    goal = ids[:, None].expand(-1, ANCHORS, -1).gather(2, anchors[..., None] + steps)
    real = steps <= left[..., None]
    weight = torch.exp(-(steps - 1) / FADE).expand_as(goal)[real]
    logits = (hidden[real] @ head.T).float()
    losses = F.cross_entropy(logits, goal[real], reduction="none")
    right = torch.zeros_like(real)
    right[real] = logits.argmax(-1) == goal[real]
    accepted = right.long().cumprod(-1).sum(-1)
    return (losses * weight).sum(), weight.sum(), 1 + accepted.float().mean()


def _worker(rank: int, folder: str, seed: int, steps: int) -> None:
    work = Path(folder)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{work / 'meeting'}", rank=rank, world_size=RANKS
    )
    target = load_target(work / "target.pt").bfloat16()
    embed, head = target.model.embed_tokens.weight, target.lm_head.weight
    mask_id = load_tokenizer(work / "tokenizer.json").token_to_id(MASK)
    torch.manual_seed(seed)
    master = Drafter(draft_config(mask_id))
    for module in master.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
    model = copy.deepcopy(master).bfloat16()
    optimizer = Muon(list(master.named_parameters()), RATE, adam_rate=ADAM_RATE)
    pairs = list(zip(master.parameters(), model.parameters(), strict=True))
    rng = random.Random(seed + rank)
    began, seen = time.monotonic(), torch.zeros(2)
    for step, group in zip(range(steps), groups(load_texts(work), seed), strict=False):
        losses, weights, accepted = loss_sums(
            model, embed, head, make_batch(group[rank], rng), mask_id
        )
        losses.backward()
        flat = [w.grad.float().flatten() for _, w in pairs]
        flat = torch.cat([*flat, torch.stack([losses.detach(), weights, accepted])])
        dist.all_reduce(flat)
        total, weight, accept = flat[-3:].tolist()
        parts = (flat[:-3] / weight).split([p.numel() for p, _ in pairs])
        for (parameter, shadow), part in zip(pairs, parts, strict=True):
            parameter.grad, shadow.grad = part.view_as(parameter), None
        torch.nn.utils.clip_grad_norm_(master.parameters(), 1.0)
        optimizer.step(schedule(step, steps))
        with torch.no_grad():
            for parameter, shadow in pairs:
                shadow.copy_(parameter)
        seen += torch.tensor([total / weight, accept / RANKS])
        if rank == 0 and (step % 20 == 19 or step == steps - 1):
            mean = seen / (step % 20 + 1)
            seen.zero_()
            seconds = time.monotonic() - began
            print(
                f"drafter step {step + 1}/{steps} loss {mean[0]:.4f} "
                f"accept length {mean[1]:.2f} {seconds:.0f} s",
                flush=True,
            )
            torch.save(master.state_dict(), work / "drafter-part.pt")
    if rank == 0:
        torch.save(master.state_dict(), work / "drafter.pt")
    dist.destroy_process_group()


def train_drafter(work: Path, seed: int, steps: int = STEPS) -> None:
    """Trains from the seed and leaves work/drafter.pt; needs the target and its texts."""
    (work / "meeting").unlink(missing_ok=True)
    mp.spawn(_worker, args=(str(work), seed, steps), nprocs=RANKS)


def load_drafter(path: Path, mask_id: int) -> Drafter:
    """The drafter in f32 with all its weights rounded to bf16, as they are shipped."""
    drafter = Drafter(draft_config(mask_id))
    drafter.load_state_dict(torch.load(path))
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.copy_(parameter.bfloat16())
    return drafter.eval().requires_grad_(False)

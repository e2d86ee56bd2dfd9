"""This engine as an arm: all questions through continuous batching, so many at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import sequence as answers
from ..engine import Engine
from ..errors import DflashError, UsageError
from ..gguf_file import GgufFile
from ..loading import load
from ..options import Options
from ..params import AUTO, Params
from ..prompt import Prompt
from ..sampling import Sampling
from ..simulation import Simulation
from .peak_memory import forget_peak, peak_memory
from .records import STAGES, ArmFacts, Ask, Cell, Question, Turn, check_asked, drawn_from


class EngineArm:
    """This engine without a drafter, with blocks of fixed width, or with those it chooses ("auto").

    It is loaded when it is first asked, for as many sequences as are asked at a time, and again when that
    number changes. That is no part of a cell.

    Args:
        target, draft: GGUF files; without a draft, the arm decodes plainly (mode "ar").
        block: rows of a block, or "auto"; of no matter without a draft.
        options: how the pair is opened; `block`, `max_block`, `sequences`, `simulate` and `prefix_memory` are
            this class's.
        simulate: draw how many drafted tokens are accepted.
        prefix_memory: bytes for states that later prompts may begin with, which are forgotten with each cell; 0:
            every prompt is read from its start, as every turn of a conversation is.

    Raises ModelError if the target is no GGUF file, UsageError for a block that drafts nothing.
    """

    def __init__(
        self,
        target: Path | str,
        draft: Path | str | None = None,
        *,
        block: int | str = AUTO,
        options: Options | None = None,
        simulate: Simulation | None = None,
        prefix_memory: int = 0,
    ) -> None:
        self._target, self._draft = Path(target), draft
        chosen = replace(options or Options(), prefix_memory=prefix_memory, simulate=None)
        if draft is not None:
            if isinstance(block, int) and block < 2:
                text = f"block is {block}; expected at least 2 with a drafter, or none of them"
                raise UsageError(text)
            # a fixed block is loaded for, as the snapshots that wider ones need take time
            most = block if isinstance(block, int) else chosen.max_block
            chosen = replace(chosen, block=block, max_block=most, simulate=simulate)
        else:
            chosen = replace(chosen, block=AUTO, max_block=None)
        self._options = chosen
        self._engine: Engine | None = None
        with GgufFile(self._target) as file:
            templated = bool(file.string("tokenizer.chat_template", ""))
        self.facts = ArmFacts(
            name="ar" if draft is None else f"dflash {block}",
            mode="ar" if draft is None else "dflash",
            width=None if draft is None else block,
            speaks_for="dflash-gguf",
            details={
                "template": "chat" if templated else "none",
                "asked": "in its process",
                **drawn_from(simulate.label if simulate is not None and draft is not None else ""),
            },
        )

    def run(self, questions: tuple[Question, ...], ask: Ask, concurrency: int) -> Cell:
        """Answer all questions; a conversation keeps its place among the `concurrency` until it ends.

        Raises DflashError, of the kind that `load` and `Engine.start` tell, if the pair cannot be opened so or
        an answer or its drafter fails.
        """
        check_asked(questions, concurrency)
        engine = self._opened(concurrency)
        engine.forget_prefixes()
        before = engine.times()
        asking = _Asking(engine, ask, time.perf_counter())
        try:
            turns, seconds = asking.all(questions, concurrency)
        finally:
            asking.end()
        after = engine.times()
        shares = {stage: after[stage] - before[stage] for stage in STAGES if stage != "host"}
        shares["host"] = seconds - sum(shares.values())
        return Cell(
            arm=self.facts.name,
            workload=questions[0].workload,
            concurrency=concurrency,
            run=0,
            turns=turns,
            seconds=seconds,
            shares=shares,
            peak_memory=peak_memory(),
        )

    def close(self) -> None:
        """Free the models."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _opened(self, sequences: int) -> Engine:
        if self._engine is None or self._options.sequences != sequences:
            self.close()
            forget_peak()
            self._options = replace(self._options, sequences=sequences)
            self._engine = load(self._target, self._draft, options=self._options)
        return self._engine


@dataclass(slots=True)
class _Talk:
    """A question in progress: what was said so far, and the answer that grows; times since the cell's start."""

    question: Question
    turn: int
    messages: list[dict[str, str]]
    answer: answers.Sequence
    start: float
    first: float | None = None


@dataclass(slots=True)
class _Asking:
    """A cell in the making."""

    engine: Engine
    ask: Ask
    began: float
    talks: dict[int, _Talk] = field(default_factory=dict)  # by the number of the engine's sequence
    done: list[Turn] = field(default_factory=list)

    def all(
        self, questions: Sequence[Question], concurrency: int
    ) -> tuple[tuple[Turn, ...], float]:
        """Return all answers, in the questions' order, and the seconds they took."""
        waiting = deque(questions)
        while waiting or self.talks:
            while waiting and len(self.talks) < concurrency:
                question = waiting.popleft()
                self.begin(question, 0, question.opening())
            news = self.engine.step()
            now = self.now()
            for answer, chunk in news:
                self.hear(answer, chunk, now)
        seconds = self.now()
        places = {question.number: place for place, question in enumerate(questions)}
        self.done.sort(key=lambda turn: (places[turn.question], turn.turn))
        return tuple(self.done), seconds

    def begin(self, question: Question, turn: int, said: list[dict[str, str]]) -> None:
        start = self.now()
        messages = [*said, {"role": "user", "content": question.turns[turn]}]
        answer = self.engine.start(self.prompt(messages), self.params(question))
        self.talks[answer.id] = _Talk(question, turn, messages, answer, start)

    def hear(self, answer: answers.Sequence, chunk: answers.Chunk, now: float) -> None:
        talk = self.talks[answer.id]
        if talk.first is None and chunk.tokens:
            talk.first = now
        if chunk.finish_reason is None:
            return
        del self.talks[answer.id]
        self.done.append(_turn(talk, now))
        if talk.turn + 1 < len(talk.question.turns):
            said = [*talk.messages, {"role": "assistant", "content": answer.text}]
            self.begin(talk.question, talk.turn + 1, said)

    def prompt(self, messages: list[dict[str, str]]) -> Prompt:
        if self.engine.has_chat_template:
            return messages
        return "\n".join(message["content"] for message in messages)

    def params(self, question: Question) -> Params:
        ask = self.ask
        sampling = None
        if ask.temperature > 0:
            sampling = Sampling(
                temperature=ask.temperature,
                top_p=ask.top_p,
                top_k=ask.top_k,
                seed=ask.seed_of(question),
            )
        template = None if ask.think is None else {"enable_thinking": ask.think}
        return Params(
            max_tokens=ask.max_tokens,
            sampling=sampling,
            template=template,
            ignore_end=ask.ignore_end,
        )

    def now(self) -> float:
        return time.perf_counter() - self.began

    def end(self) -> None:
        """Cancel what is unfinished, after a failure."""
        for talk in self.talks.values():
            self.engine.cancel(talk.answer)


def _turn(talk: _Talk, now: float) -> Turn:
    answer, stats = talk.answer, talk.answer.stats
    if stats is None or answer.error is not None or stats.draft_failure is not None:
        why = answer.error or (stats and stats.draft_failure) or "it has no statistics"
        text = f"the answer to question {talk.question.number} failed: {why}"
        raise DflashError(text)
    return Turn(
        workload=talk.question.workload,
        question=talk.question.number,
        turn=talk.turn,
        prompt_tokens=stats.prompt_tokens,
        completion_tokens=stats.emitted,
        text=answer.text,
        finish_reason=str(answer.finish_reason),
        start=talk.start,
        first=now if talk.first is None else talk.first,
        last=now,
        rounds=stats.rounds,
        drafted=stats.drafted,
        accepted=stats.accepted,
        drafted_at=stats.drafted_at,
        accepted_at=stats.accepted_at,
        prefill_seconds=stats.prefill_seconds,
        decode_seconds=stats.decode_seconds,
    )

"""Any OpenAI-compatible server as an arm: all questions over HTTP, so many at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from .http_client import Answer, HttpClient, PeerError
from .peer_figures import counts_between, figures
from .peer_process import PeerProcess
from .records import ArmFacts, Ask, Cell, Mode, Question, Turn, check_asked

# whose server it is, by what /v1/models says
_ENGINES = {
    "llamacpp": "llama-server",
    "sglang": "sglang",
    "vllm": "vllm",
    "dflash-gguf": "dflash-gguf",
}
_COUNTERS = ("llama-server", "vllm")  # those with speculation's counters in /metrics


class HttpArm:
    """A server, which may be a process of ours.

    Prompts are read from their start each time where the server can be told so (llama-server), as this engine's arm
    does. SGLang is asked for whole answers, since it tells its accept figures only with them: their `first` is None.

    Args:
        client: is closed with the arm.
        name: of the column.
        mode, width: as in ArmFacts.
        process: is ended with the arm.
        steps: tokens in each draft, if the server drafts so many every time (llama-server with `--spec-draft-p-min 0`,
            its default); accept figures of llama-server's answers that ended by themselves follow from it.
        streams: ask for answers piece by piece. Else their `first` is None, and no time goes into pieces, which is much
            where a token takes a millisecond.

    Raises:
        PeerError: it does not tell its model.
    """

    def __init__(
        self,
        client: HttpClient,
        *,
        name: str,
        mode: Mode = "ar",
        width: int | str | None = None,
        process: PeerProcess | None = None,
        steps: int | None = None,
        streams: bool = True,
    ) -> None:
        self._client, self._process, self._steps = client, process, steps
        self._engine = _ENGINES.get(client.owner, "openai")
        self._streams = streams and self._engine != "sglang"
        how = "streams" if self._streams else "whole answers"
        details = {"template": "chat", "asked": f"over HTTP, {how}", "model": client.model}
        details["url"] = client.base_url
        if process is not None:
            details["command"] = " ".join(process.command)
        self.facts = ArmFacts(name, mode, width, self._engine, details)

    def run(self, questions: tuple[Question, ...], ask: Ask, concurrency: int) -> Cell:
        """Answer all questions; a conversation keeps its place among the `concurrency` until it ends.

        Raises:
            UsageError: no questions, or none at a time.
            PeerError: an answer failed, with the end of the server's log if it is ours and has ended; the others are
                given up.
        """
        check_asked(questions, concurrency)
        self._client.open()
        try:
            before = self._metrics()
            asking = _Asking(
                *(self._client, self._engine, ask, self._steps, self._streams),
                began=time.perf_counter(),
            )
            turns = asking.all(questions, concurrency)
            counts = counts_between(before, self._metrics())
        except PeerError as error:
            raise self._explained(error) from None
        return Cell(
            arm=self.facts.name,
            workload=questions[0].workload,
            concurrency=concurrency,
            run=0,
            turns=turns,
            seconds=max(turn.last for turn in turns),
            peak_memory=None if self._process is None else self._process.peak_memory(),
            counts=counts,
        )

    def close(self) -> None:
        """End the connections, and the process if it is ours."""
        self._client.close()
        if self._process is not None:
            self._process.close()

    def _metrics(self) -> str | None:
        return self._client.metrics() if self._engine in _COUNTERS else None

    def _explained(self, error: PeerError) -> PeerError:
        if self._process is None or self._process.running:
            return error
        return PeerError(f"{error}; the server has ended: {self._process.log_tail()}")


@dataclass(frozen=True, slots=True)
class _Asking:
    """A cell in the making; `began` by time.perf_counter."""

    client: HttpClient
    engine: str
    ask: Ask
    steps: int | None
    streams: bool
    began: float

    def all(self, questions: tuple[Question, ...], concurrency: int) -> tuple[Turn, ...]:
        """Return all answers, in the questions' order."""
        waiting = deque(enumerate(questions))
        ended: SimpleQueue[tuple[int, list[Turn] | BaseException]] = SimpleQueue()

        def work() -> None:
            with suppress(IndexError):
                while True:
                    place, question = waiting.popleft()
                    try:
                        ended.put((place, self.talk(question)))
                    except BaseException as error:  # noqa: BLE001 (raised where it is awaited)
                        ended.put((place, error))

        for _ in range(min(concurrency, len(questions))):
            # no pool: its threads, which may wait for a server that says nothing, would hold up the end of Python
            threading.Thread(target=work, daemon=True).start()
        turns: dict[int, list[Turn]] = {}
        try:
            while len(turns) < len(questions):
                place, found = ended.get()
                if isinstance(found, BaseException):
                    raise found
                turns[place] = found
        except BaseException:
            waiting.clear()
            self.client.close()  # the others notice at their next piece
            raise
        return tuple(turn for place in sorted(turns) for turn in turns[place])

    def talk(self, question: Question) -> list[Turn]:
        said = question.opening()
        turns = []
        settings = self.settings(question)
        ask = self.client.stream if self.streams else self.client.whole
        for number, text in enumerate(question.turns):
            said.append({"role": "user", "content": text})
            answer = ask(said, settings)
            if self.engine == "llama-server":
                answer = replace(answer, content=without_opening(answer.content))
            turns.append(self.turn(question, number, answer))
            reply = {"role": "assistant", "content": answer.content}
            if answer.reasoning:
                reply["reasoning_content"] = answer.reasoning
            said.append(reply)
        return turns

    def turn(self, question: Question, number: int, answer: Answer) -> Turn:
        told = figures(answer.told, answer.finish_reason, self.steps)
        return Turn(
            workload=question.workload,
            question=question.number,
            turn=number,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            text=answer.text,
            finish_reason=answer.finish_reason,
            start=answer.asked - self.began,
            first=None if answer.first is None else answer.first - self.began,
            last=answer.last - self.began,
            rounds=told.rounds,
            drafted=told.drafted,
            accepted=told.accepted,
            accepted_at=told.accepted_at,
            prefill_seconds=told.prefill_seconds,
            decode_seconds=told.decode_seconds,
        )

    def settings(self, question: Question) -> Mapping[str, Any]:
        """Return the request but for its messages; what the engines' defaults would add is turned off."""
        ask = self.ask
        settings: dict[str, Any] = {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
        if ask.temperature > 0:
            settings |= {"top_p": ask.top_p, "seed": ask.seed_of(question)}
        if ask.think is not None:
            settings["chat_template_kwargs"] = {"enable_thinking": ask.think}
        if ask.ignore_end:
            settings["ignore_eos"] = True
            # of what it draws: each question its own, else all would have one luck
            settings.setdefault("seed", ask.seed_of(question))
        if self.engine == "openai":
            return settings
        if ask.temperature > 0:
            off = 0 if self.engine == "llama-server" else -1
            settings |= {"top_k": ask.top_k or off, "min_p": 0.0}
        if self.engine == "llama-server":
            # reasoning stays in the text, as the model wrote it
            settings |= {"cache_prompt": False, "reasoning_format": "none"}
        if self.engine in {"sglang", "dflash-gguf"}:
            settings["return_meta_info"] = True
        return settings


def without_opening(text: str) -> str:
    """Return llama-server's text without the beginning that its template wrote, not the model.

    Templates open the thinking of an answer, or close it at once; with `reasoning_format` "none" the server repeats
    that.
    """
    for opening in ("<think>\n\n</think>\n\n", "<think>\n"):
        if text.startswith(opening):
            return text.removeprefix(opening)
    return text

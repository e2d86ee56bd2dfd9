"""What a server has done so far, for Prometheus: llama-server's names where the meaning is the same, our own beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..stats import Stats


@dataclass(slots=True)
class Now:
    """What is going on at this moment.

    Attributes:
        processing, deferred: answers in the engine, and waiting for it.
        streams: requests whose answers have not been written to their end.
        kept_bytes: host memory that states of earlier texts take.
        draft_failed: whether the drafter gave up.
    """

    processing: int = 0
    deferred: int = 0
    streams: int = 0
    kept_bytes: int = 0
    draft_failed: bool = False


@dataclass(slots=True)
class Totals:
    """Counts since the start, of answers that have ended. For one thread."""

    answers: Counter[str] = field(default_factory=Counter)  # by finish reason
    statuses: Counter[int] = field(default_factory=Counter)
    read: int = 0
    cached: int = 0
    prompt_seconds: float = 0.0
    written: int = 0
    steps: int = 0
    decode_seconds: float = 0.0
    most: int = 0
    rounds: int = 0
    drafting_rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_at: Counter[int] = field(default_factory=Counter)
    accepted_at: Counter[int] = field(default_factory=Counter)
    events: int = 0

    def add(self, stats: Stats) -> None:
        """Count an answer."""
        self.read += stats.prompt_tokens - stats.reused_tokens
        self.cached += stats.reused_tokens
        self.prompt_seconds += stats.prefill_seconds
        self.written += stats.emitted
        self.steps += max(stats.emitted - 1, 0)
        self.decode_seconds += max(stats.decode_seconds, 0.0)
        self.most = max(self.most, stats.prompt_tokens + stats.emitted)
        self.rounds += stats.rounds
        self.drafting_rounds += stats.drafting_rounds
        self.drafted += stats.drafted
        self.accepted += stats.accepted
        self.drafted_at.update(dict(enumerate(stats.drafted_at)))
        self.accepted_at.update(dict(enumerate(stats.accepted_at)))


class Metrics(Collector):
    """Writes them.

    Args:
        totals: what has been.
        now: asks what is.
    """

    def __init__(self, totals: Totals, now: Callable[[], Now]) -> None:
        self._totals, self._now = totals, now
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return nothing: what there is depends on nothing but `collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every figure."""
        yield from self._of_llama()
        yield from self._own()

    def _of_llama(self) -> Iterator[Metric]:
        done, now = self._totals, self._now()
        yield _count("llamacpp:prompt_tokens", "Prompt tokens read, without cached ones", done.read)
        yield _count("llamacpp:prompt_tokens_cached", "Prompt tokens not read again", done.cached)
        yield _count("llamacpp:prompt_seconds", "Time spent reading prompts", done.prompt_seconds)
        yield _count("llamacpp:tokens_predicted", "Tokens written", done.written)
        yield _count(
            "llamacpp:tokens_predicted_seconds", "Time spent writing them", done.decode_seconds
        )
        yield _gauge("llamacpp:n_tokens_max", "Longest prompt with its answer", done.most)
        yield _count(
            "llamacpp:spec_decode_num_drafts", "Verifies with a draft", done.drafting_rounds
        )
        yield _count("llamacpp:spec_decode_num_draft_tokens", "Tokens drafted", done.drafted)
        yield _count("llamacpp:spec_decode_num_accepted_tokens", "Of them accepted", done.accepted)
        yield _places(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos",
            "Tokens accepted by place in the draft",
            done.accepted_at,
        )
        yield _gauge(
            "llamacpp:prompt_tokens_seconds",
            "Mean speed of reading prompts, tokens/s",
            _over(done.read, done.prompt_seconds),
        )
        yield _gauge(
            "llamacpp:predicted_tokens_seconds",
            "Mean speed of an answer, tokens/s",
            _over(done.steps, done.decode_seconds),
        )
        yield _gauge("llamacpp:requests_processing", "Answers in the engine", now.processing)
        yield _gauge("llamacpp:requests_deferred", "Answers waiting for it", now.deferred)

    def _own(self) -> Iterator[Metric]:
        done, now = self._totals, self._now()
        yield _count("dflash:verifies", "Decodes of answers by the target", done.rounds)
        yield _places(
            "dflash:draft_tokens_per_pos", "Tokens drafted by place in the draft", done.drafted_at
        )
        length = 1 + done.accepted / done.drafting_rounds if done.drafting_rounds else 0.0
        yield _gauge(
            "dflash:accept_length", "1 + accepted tokens / verifies with a draft; 0: none", length
        )
        yield _gauge(
            "dflash:acceptance_rate",
            "Accepted of drafted tokens",
            _over(done.accepted, done.drafted),
        )
        yield _gauge("dflash:draft_failed", "1 once the drafter has given up", now.draft_failed)
        yield _gauge("dflash:kept_bytes", "Host memory of states of earlier texts", now.kept_bytes)
        yield _gauge("dflash:responses_open", "Answers not written to their end", now.streams)
        yield _count("dflash:events", "Events of streams", done.events)
        ends = CounterMetricFamily("dflash:answers", "Answers by their end", labels=["finish"])
        for reason, number in sorted(done.answers.items()):
            ends.add_metric([reason], number)
        yield ends
        statuses = CounterMetricFamily("dflash:responses", "Responses by status", labels=["status"])
        for status, number in sorted(done.statuses.items()):
            statuses.add_metric([str(status)], number)
        yield statuses


def _count(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _places(name: str, text: str, counts: Counter[int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["position"])
    for place, number in sorted(counts.items()):
        family.add_metric([str(place)], number)
    return family


def _over(amount: float, parts: float) -> float:
    return amount / parts if parts > 0 else 0.0

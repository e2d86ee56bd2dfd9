"""What an answer cost and how its drafts fared."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from .params import AUTO

if TYPE_CHECKING:
    from . import _core

_NS = 1e-9
_TELLING = 16  # rounds; in fewer it has not been found out what pays


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of one answer. emitted = 1 + rounds + accepted: the 1 is the token the prompt itself gives.

    Attributes:
        prompt_tokens: tokens of the prompt.
        reused_tokens: those of the prompt whose state was kept from before; only the others were read.
        injected: context rows whose features the drafter was given.
        emitted: tokens written, an end token included.
        rounds: verifies by the target.
        drafting_rounds: those with at least one drafted token.
        drafted: tokens proposed.
        accepted: proposed tokens that became text.
        drafted_at: proposals by position in the block, from the first.
        accepted_at: acceptances by position.
        block: widest verify asked for, the anchor included; "auto": what was fastest.
        prefill_seconds: time spent reading the prompt.
        decode_seconds: first written token to last.
        simulated: how many tokens were accepted was drawn, and the text is not the target's.
        draft_failure: why the drafter gave up, in this answer or before it; None if it did not, or was not to
            draft.
    """

    prompt_tokens: int
    reused_tokens: int
    injected: int
    emitted: int
    rounds: int
    drafting_rounds: int
    drafted: int
    accepted: int
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    block: int | str
    prefill_seconds: float
    decode_seconds: float
    simulated: bool = False
    draft_failure: str | None = None

    @classmethod
    def read(
        cls,
        counters: _core.Counters,
        block: int | str,
        simulated: bool = False,
        draft_failure: str = "",
    ) -> Stats:
        """Copy the extension's counters; draft_failure: its words, if there are any."""
        return cls(
            prompt_tokens=counters.prompt_tokens,
            reused_tokens=counters.reused_tokens,
            injected=counters.injected,
            emitted=counters.emitted,
            rounds=counters.rounds,
            drafting_rounds=counters.drafting_rounds,
            drafted=counters.drafted,
            accepted=counters.accepted,
            drafted_at=tuple(counters.drafted_at),
            accepted_at=tuple(counters.accepted_at),
            block=block,
            prefill_seconds=counters.prefill_ns * _NS,
            decode_seconds=(counters.last_token_ns - counters.first_token_ns) * _NS,
            simulated=simulated,
            draft_failure=None if block == 1 else draft_failure or None,
        )

    @property
    def accept_length(self) -> float | None:
        """Tokens per drafting round: 1 + accepted / drafting rounds; None if nothing was drafted."""
        return 1 + self.accepted / self.drafting_rounds if self.drafting_rounds else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens per verify, over all rounds, with drafts or without; None if there was none.

        The prompt's own token is left out.
        """
        return (self.emitted - 1) / self.rounds if self.rounds else None

    @property
    def card_accept_length(self) -> float | None:
        """Tokens of the answer per verify, the prompt's own among them; None if there was no verify.

        The rule of the drafters' model cards, which give the mean of it over turns (completion tokens divided by
        verifications; `spec_accept_length` in SGLang).
        """
        return self.emitted / self.rounds if self.rounds else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted of drafted tokens; None if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decode speed, first token to last; None for a single token."""
        if self.emitted < 2 or self.decode_seconds <= 0:
            return None
        return (self.emitted - 1) / self.decode_seconds

    @property
    def prompt_tokens_per_second(self) -> float | None:
        """Prefill speed, of the tokens that were read."""
        read = self.prompt_tokens - self.reused_tokens
        return read / self.prefill_seconds if self.prefill_seconds > 0 else None

    def line(self) -> str:
        """Return the statistics line."""
        parts = [f"{self.emitted} tok"]
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:,.1f} tok/s")
        if self.reused_tokens > 0:
            parts.append(f"reused {self.reused_tokens:,} of {self.prompt_tokens:,}")
        if self.prompt_tokens_per_second is not None:
            parts.append(f"prompt {self.prompt_tokens_per_second:,.0f} tok/s")
        if self.accept_length is None or self.acceptance_rate is None:
            parts.append("no drafts")
        else:
            parts.append(
                f"accept {self.accept_length:.1f}/{self.block} ({self.acceptance_rate:.2f})"
            )
        if self.draft_failure is not None:
            after = f" after {self.drafting_rounds} of {self.rounds} rounds"
            parts.append(f"drafting failed{after if self.drafting_rounds else ''}")
        elif (
            self.block == AUTO
            and self.rounds >= _TELLING
            and 2 * self.drafting_rounds < self.rounds
        ):
            paid = f"in {self.drafting_rounds} of {self.rounds} rounds"
            parts.append(
                f"drafting paid {paid}" if self.drafting_rounds else "drafting did not pay"
            )
        if self.simulated:
            parts.append("simulated")
        return " · ".join(parts)


def finish_reason(core: ModuleType, finish: _core.Finish) -> str | None:
    """Return why an answer ended, as Sequence.finish_reason names it; None while it goes on."""
    ends = {
        core.Finish.stop: "stop",
        core.Finish.length: "length",
        core.Finish.failed: "error",
        core.Finish.cancelled: "cancelled",
    }
    return ends.get(finish)

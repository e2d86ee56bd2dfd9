"""A server's state: its engine and how far that is, the answers under way, and what has been counted."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import __version__
from . import errors
from .events import PING
from .metrics import Metrics, Now, Totals
from .places import Places
from .post import Post
from .requests import USUAL, Rules

if TYPE_CHECKING:
    from ..engine import Engine
    from ..stats import Stats
    from ..worker import Item, Worker
    from .answering import Answering
    from .responses import Response

_LOG = logging.getLogger(__name__)
_PATIENCE = 0.5  # seconds in which an engine may end its round before /metrics goes out


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may take.

    Attributes:
        queue: answers that may wait for a place.
        body: bytes of a request's body.
        unread: bytes of a stream that are kept for a client that does not read.
        stall: seconds in which a client must have read some of what waits for it.
        quiet: seconds without an event after which a stream shows that it lives.
    """

    queue: int = 64
    body: int = 4 * 2**20
    unread: int = 4 * 2**20
    stall: float = 60.0
    quiet: float = 15.0


@dataclass(frozen=True, slots=True)
class About:
    """What is told of the model.

    Attributes:
        context: positions of an answer with its prompt.
        warnings: the engine's, which may become more.
        notes: what the model's file suggests and is not followed.
    """

    context: int
    vocabulary: int
    trained: int
    width: int
    template: str
    bos: str
    eos: str
    drafts: bool
    block: int | str
    warnings: list[str]
    notes: list[str]


class Service:
    """Belongs to the event loop it is made in.

    Args:
        rules: what is added to requests.
        limits: what clients may take.

    Attributes:
        about: the model, once it is loaded.
        answering: requests under way. responses: those that are being written.
        stopping: whether nothing new is taken.
    """

    def __init__(self, rules: Rules, limits: Limits) -> None:
        self.rules, self.limits = rules, limits
        self.created = int(time.time())
        self.places = Places(rules.parallel, limits.queue)
        self.totals = Totals()
        self.metrics = Metrics(self.totals, self._now)
        self.post = Post(asyncio.get_running_loop())
        self.answering: set[Answering] = set()
        self.responses: set[Response] = set()
        self.about: About | None = None
        self.stopping = False
        self._worker: Worker | None = None
        self._engine: Engine | None = None
        self._kept_bytes = self._warned = 0
        self._draft_failed = False

    async def use(self, worker: Worker) -> About:
        """Serve with this worker from now on; return what its engine is."""
        engine, about, suggested = await asyncio.wrap_future(worker.call(_described))
        self._engine, self.about, self._warned = engine, about, len(about.warnings)
        sampling = USUAL | suggested | dict(self.rules.sampling)
        self.rules = replace(self.rules, sampling=sampling)
        self._worker = worker
        return about

    def worker(self) -> Worker:
        """Return the worker. Raises ServeError, 503, before it is there and once the server is to end."""
        if self.stopping:
            raise errors.stopping()
        if self._worker is None:
            raise errors.loading()
        if self._worker.closed:
            raise errors.ended()
        return self._worker

    def engine(self) -> Engine:
        """Return the engine, for its own thread."""
        if self._engine is None:
            raise errors.loading()
        return self._engine

    async def call(self, action: Any) -> Any:
        """Return `action(engine)`, done in the engine's thread. Raises ServeError for what it raises."""
        try:
            return await asyncio.wrap_future(self.worker().call(action))
        except Exception as error:
            raise errors.of(error) from error

    def card(self) -> dict[str, Any]:
        """Return the model's entry in /v1/models."""
        about = self._about()
        meta = {
            "n_vocab": about.vocabulary,
            "n_ctx": about.context,
            "n_ctx_train": about.trained,
            "n_embd": about.width,
        }
        return {
            "id": self.rules.model,
            "object": "model",
            "created": self.created,
            "owned_by": "dflash-gguf",
            "meta": meta,
        }

    def props(self) -> dict[str, Any]:
        """Return llama-server's /props, as far as it means something here, and how drafts are made.

        Instead of the path of the model its id: paths of this machine are nobody's business.
        """
        about = self._about()
        sampled = {"n_predict": self.rules.max_output or -1, **self.rules.sampling}
        return {
            "default_generation_settings": {"params": sampled, "n_ctx": about.context},
            "total_slots": self.rules.parallel,
            "model_alias": self.rules.model,
            "model_path": self.rules.model,
            "modalities": {"vision": False, "video": False, "audio": False},
            "chat_template": about.template,
            "bos_token": about.bos,
            "eos_token": about.eos,
            "build_info": f"dflash-gguf {__version__}",
            "is_sleeping": False,
            "speculative": {
                "drafter": about.drafts,
                "block": about.block,
                "failed": self._draft_failed,
                "warnings": list(about.warnings),
            },
        }

    def left(self, seconds: float, stats: Stats | None, item: Item) -> None:
        """Count a choice that ended after so long."""
        self.places.leave(seconds)
        reason = "error" if isinstance(item, BaseException) else item.finish_reason or "error"
        self.totals.answers[reason] += 1
        for text in self._about().warnings[self._warned :]:  # the engine's own list
            self._warned += 1
            _LOG.warning("warning: %s", text)
        if stats is not None:
            self.totals.add(stats)
            self._draft_failed = self._draft_failed or stats.draft_failure is not None
            _LOG.debug("answer: %s, %s, %.2f s", reason, stats.line(), seconds)
        if isinstance(item, BaseException) and errors.of(item).status >= 500:
            _LOG.error("an answer failed: %s", errors.where(item))

    def cut(self) -> None:
        """End all that is under way, as the server does."""
        for answering in list(self.answering):
            answering.fail(errors.stopping())

    async def watch(self) -> None:
        """Have streams that are quiet show that they live, for ever."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.quiet / 4))
            before = time.monotonic() - self.limits.quiet
            for response in self.responses:
                if response.since is not None and response.since < before:
                    response.poke(PING)

    async def look(self) -> None:
        """Ask the engine for what only it knows, for /metrics."""
        if self._worker is None or self.stopping or self._worker.closed:
            return
        with suppress(TimeoutError):  # then what it said last is good enough
            async with asyncio.timeout(_PATIENCE):
                self._kept_bytes = await self.call(lambda engine: engine.kept_bytes)

    def _about(self) -> About:
        if self.about is None:
            raise errors.loading()
        return self.about

    def _now(self) -> Now:
        return Now(
            processing=sum(each.begun for each in self.answering),
            deferred=sum(each.waiting for each in self.answering),
            streams=len(self.responses),
            kept_bytes=self._kept_bytes,
            draft_failed=self._draft_failed,
        )


def _described(engine: Engine) -> tuple[Engine, About, dict[str, Any]]:
    model = engine._open().model
    template = engine._open().prompter.template
    bos, eos = (
        model.piece(token, True).decode("utf-8", "replace") if token >= 0 else ""
        for token in (model.bos, model.eos)
    )
    about = About(
        context=engine.n_ctx,
        vocabulary=model.n_vocab,
        trained=model.n_ctx_train,
        width=model.n_embd,
        template="" if template is None else template.source,
        bos=bos,
        eos=eos,
        drafts=engine.has_draft,
        block=engine.block,
        warnings=engine.warnings,
        notes=engine.suggested.notes,
    )
    return engine, about, engine.suggested.values

"""The paths of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse

from .. import __version__
from ..errors import DflashError
from . import errors, replies, requests
from .answering import Answering
from .errors import ServeError
from .guard import Guard, Keys
from .pages import page_routes
from .responses import Response, Streamed, Whole
from .schema import (
    ChatRequest,
    DetokenizeRequest,
    Message,
    Part,
    StreamOptions,
    TemplateRequest,
    TextRequest,
    TokenizeRequest,
)
from .tokens import apply_template, detokenize, tokenize

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from .requests import Asked
    from .service import Service

_LOG = logging.getLogger(__name__)
_BODIES = (
    ChatRequest,
    TextRequest,
    TokenizeRequest,
    DetokenizeRequest,
    TemplateRequest,
    Message,
    Part,
    StreamOptions,
)
_FIELDS = {name for body in _BODIES for name in body.model_fields}
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def make_app(service: Service, keys: Keys, *, loopback: bool, names: Iterable[str] = ()) -> ASGIApp:
    """Return the server's application.

    Args:
        service: what answers.
        keys: of clients; none: no key is asked for.
        loopback: whether it listens on this machine alone.
        names: see Guard.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        watching = asyncio.create_task(service.watch())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    app = FastAPI(
        title="dflash-gguf",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # their pages come from elsewhere
        redoc_url=None,
    )
    _refuse_well(app)
    _add_answers(app, service)
    _add_tokens(app, service)
    _add_facts(app, service)
    app.router.routes.extend(page_routes())
    return Guard(app, service, keys, loopback=loopback, names=names)


def _add_answers(app: FastAPI, service: Service) -> None:
    def answer(asked: Asked) -> Response:
        answering = Answering(service, asked)
        return (Streamed if asked.stream else Whole)(service, answering)

    @app.post("/chat/completions", include_in_schema=False, response_model=None)
    @app.post(
        "/v1/chat/completions", responses=replies.streamed(replies.ChatReply), response_model=None
    )
    async def chat_completions(body: ChatRequest) -> Response:
        """Answer a conversation."""
        service.worker()
        return answer(requests.chat(body, service.rules))

    @app.post("/v1/completions", responses=replies.streamed(replies.TextReply), response_model=None)
    async def completions(body: TextRequest) -> Response:
        """Continue a text, taken as it is, special tokens included."""
        service.worker()
        return answer(requests.text(body, service.rules))


def _add_tokens(app: FastAPI, service: Service) -> None:
    @app.post("/tokenize", responses=replies.told(replies.TokensReply))
    async def tokenize_(body: TokenizeRequest) -> JSONResponse:
        """Return the tokens of a text."""
        return JSONResponse(await service.call(lambda engine: tokenize(engine, body)))

    @app.post("/detokenize", responses=replies.told(replies.ContentReply))
    async def detokenize_(body: DetokenizeRequest) -> JSONResponse:
        """Return the text of tokens."""
        return JSONResponse(await service.call(lambda engine: detokenize(engine, body)))

    @app.post("/apply-template", responses=replies.told(replies.PromptReply))
    async def apply_template_(body: TemplateRequest) -> JSONResponse:
        """Return what the chat template makes of a conversation."""
        rules = service.rules
        return JSONResponse(await service.call(lambda engine: apply_template(engine, body, rules)))


def _add_facts(app: FastAPI, service: Service) -> None:
    @app.get("/v1/health", include_in_schema=False)
    @app.get("/health", responses=replies.told(replies.HealthReply))
    async def health() -> JSONResponse:
        """Return whether answers can be had."""
        service.worker()
        return JSONResponse({"status": "ok"})

    @app.get("/models", include_in_schema=False)
    @app.get("/v1/models", responses=replies.told(replies.ModelsReply))
    async def models() -> JSONResponse:
        """List the model."""
        service.worker()
        return JSONResponse({"object": "list", "data": [service.card()]})

    @app.get(
        "/v1/models/{model:path}",
        responses=replies.told(replies.ModelReply) | {404: {"model": replies.ErrorReply}},
    )
    async def model(model: str) -> JSONResponse:
        """Return what is told of the model."""
        service.worker()
        if model != service.rules.model:
            text = f"there is no model {model!r}; expected {service.rules.model!r}"
            raise ServeError(404, text, code="model_not_found", param="model")
        return JSONResponse(service.card())

    @app.get("/props", responses=replies.told(replies.PropsReply))
    async def props() -> JSONResponse:
        """Return what the server was started with."""
        service.worker()
        return JSONResponse(service.props())

    @app.get("/metrics", response_class=PlainTextResponse, responses=replies.told())
    async def metrics() -> PlainTextResponse:
        """Return counts for Prometheus."""
        await service.look()
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(service.metrics.text(), media_type=kind)


def _refuse_well(app: FastAPI) -> None:
    """Give every error OpenAI's form."""

    def said(error: ServeError) -> JSONResponse:
        return JSONResponse(error.body(), error.status, error.headers())

    @app.exception_handler(RecursionError)
    @app.exception_handler(DflashError)
    async def known(_: Request, error: Exception) -> JSONResponse:
        return said(errors.of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return said(_invalid(error))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(error.status_code)
        made = said(ServeError(error.status_code, str(error.detail), code=code))
        made.headers.update(error.headers or {})
        return made

    @app.exception_handler(Exception)
    async def unknown(_: Request, error: Exception) -> JSONResponse:
        _LOG.error("a request failed: %s", errors.where(error))
        return said(errors.of(error))


def _invalid(error: RequestValidationError) -> ServeError:
    """Return what to say of a body: where, and what was expected; nothing of what was in it."""
    first = error.errors()[0]
    # where several kinds are taken, pydantic puts the one that fitted best behind the field's name
    place = [str(part) for part in first["loc"][1:] if isinstance(part, int) or part in _FIELDS]
    if first["type"] == "json_invalid":
        return ServeError(400, "the body is not valid JSON", code="invalid_json")
    if not place:
        text = "expected a JSON object and the header 'Content-Type: application/json'"
        return ServeError(400, text, code="invalid_json")
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return ServeError(400, f"{'.'.join(place)}: {first['msg']}", code=code, param=place[0])

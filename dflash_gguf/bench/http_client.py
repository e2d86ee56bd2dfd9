"""Chat completions from any OpenAI-compatible server, with the times at which they came.

A thread for each stream, and nothing is done with a piece but to note when it came; an answer is read when it is whole:
what the client computes, a server on the same machine cannot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

from ..errors import DflashError, UsageError
from .sse import events

Message = Mapping[str, str]

_CONNECT = 10.0  # seconds
_TOLD = ("usage", "timings", "meta_info", "speculative")
_DONE = "[DONE]"


class PeerError(DflashError):
    """A server that is measured did not answer as it should; exit code 1."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    Attributes:
        reasoning, content: as the server parted them.
        prompt_tokens, completion_tokens: by the server's usage.
        asked, first, last: by time.perf_counter; `first` is None if the answer was not streamed.
        told: what else came with it: usage, timings, meta_info, speculative.
    """

    reasoning: str
    content: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    asked: float
    first: float | None
    last: float
    told: Mapping[str, Any]

    @property
    def text(self) -> str:
        """Reasoning and content; the tag between them, which the server took away, is put back."""
        if not self.reasoning:
            return self.content
        return f"{self.reasoning}</think>{self.content}" if self.content else self.reasoning


@dataclass(slots=True)
class _Reading:
    """What the pieces of a stream add up to."""

    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    first: float | None = None
    last: float = 0.0
    told: dict[str, Any] = field(default_factory=dict)

    def add(self, moment: float, piece: Mapping[str, Any]) -> None:
        """Take in one event's object: a piece, the usage, or both."""
        self.told |= {name: piece[name] for name in _TOLD if piece.get(name)}
        for choice in piece.get("choices") or []:
            delta = choice.get("delta") or choice.get("message") or {}
            reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
            content = delta.get("content") or ""
            self.reasoning.append(reasoning)
            self.content.append(content)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            if choice.get("meta_info"):
                self.told["meta_info"] = choice["meta_info"]
            if reasoning or content or choice.get("finish_reason"):
                self.first = moment if self.first is None else self.first
                self.last = moment


class HttpClient:
    """Asks one server; threads may share it.

    Args:
        base_url: with or without `/v1` at its end.
        api_key: for servers that want one.
        model: a name to ask for; None: the one that /v1/models lists.
        timeout: seconds without a single byte after which an answer has failed; the first token of many at once may
            take long.

    Raises:
        UsageError: no http or https URL, or httpx2 is not installed.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        self.base_url = base_url.strip().rstrip("/").removesuffix("/v1")
        if not self.base_url.startswith(("http://", "https://")):
            text = f"a base URL begins with http:// or https://, found '{base_url}'"
            raise UsageError(text)
        self.timeout = timeout
        self._model = model
        self._owner: str | None = None
        self._headers = {"Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._httpx = _httpx()
        self._client: Any = None
        self.open()

    def open(self) -> None:
        """Make connections possible again after `close`."""
        if self._client is None:
            # a connection for each answer: llama-server ends some after a stream without saying so before
            limits = self._httpx.Limits(max_connections=None, max_keepalive_connections=0)
            timeout = self._httpx.Timeout(self.timeout, connect=min(_CONNECT, self.timeout))
            # not through a proxy that the environment names: its time would count as the server's
            self._client = self._httpx.Client(
                headers=self._headers, limits=limits, timeout=timeout, trust_env=False
            )

    def close(self) -> None:
        """End all connections; answers under way fail."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> str:
        """The name that is asked for.

        Raises:
            PeerError: the server lists none, or several.
        """
        if self._model is None:
            names = [str(entry.get("id", "")) for entry in self._models()]
            if len(names) != 1:
                listed = ", ".join(names) or "none"
                text = f"{self.base_url}/v1/models: expected one model, found {listed}; name one"
                raise PeerError(text)
            self._model = names[0]
        return self._model

    @property
    def owner(self) -> str:
        """Whose server it says it is ("llamacpp", "vllm", "sglang", ...); empty: it does not say."""
        if self._owner is None:
            self._owner = next((str(entry.get("owned_by", "")) for entry in self._models()), "")
        return self._owner

    def stream(self, messages: Sequence[Message], settings: Mapping[str, Any]) -> Answer:
        """Ask for an answer piece by piece.

        Args:
            messages: of the conversation so far.
            settings: the rest of the request, max_tokens and so on.

        Raises:
            PeerError: no connection, a status that is not 200, a stream that says nothing for too long, breaks off, is
                not as agreed, or does not tell its usage.
        """
        url = f"{self.base_url}/v1/chat/completions"
        body = self._body(messages, settings)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        reads: list[tuple[float, bytes]] = []
        asked = time.perf_counter()
        try:
            with self._told(url), self._client.stream("POST", url, json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refused(url, response.status_code, response.text)
                for piece in response.iter_raw():
                    reads.append((time.perf_counter(), piece))
                    if self._client is None:
                        raise PeerError(_given_up(url))
        except PeerError:
            _read(url, reads)  # what the server said before, if it said why
            raise
        reading = _read(url, reads)
        if not reading.content and reading.finish_reason is None:
            said = b"".join(data for _, data in reads).decode("utf-8", "replace")
            raise _refused(url, 200, said)
        return _answer(url, asked, reading, streamed=True)

    def whole(self, messages: Sequence[Message], settings: Mapping[str, Any]) -> Answer:
        """Ask for an answer at once; its `first` is None. Otherwise as `stream`."""
        url = f"{self.base_url}/v1/chat/completions"
        asked = time.perf_counter()
        with self._told(url):
            response = self._client.post(url, json=self._body(messages, settings))
        reading = _Reading()
        _take(url, reading, time.perf_counter(), _checked(url, response))
        return _answer(url, asked, reading, streamed=False)

    def metrics(self) -> str | None:
        """Return the text of /metrics; None if the server has none to show."""
        url = f"{self.base_url}/metrics"
        with self._told(url):
            response = self._client.get(url)
        return str(response.text) if response.status_code == 200 else None

    def _models(self) -> list[Mapping[str, Any]]:
        url = f"{self.base_url}/v1/models"
        with self._told(url):
            response = self._client.get(url)
        listed = _object(url, _checked(url, response)).get("data")
        return [entry for entry in listed or [] if isinstance(entry, dict)]

    def _body(self, messages: Sequence[Message], settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            **settings,
        }

    @contextmanager
    def _told(self, url: str) -> Iterator[None]:
        """Turn what httpx raises into one line."""
        try:
            yield
        except self._httpx.ConnectTimeout:
            text = f"{url}: no connection within {min(_CONNECT, self.timeout):g} s"
        except self._httpx.TimeoutException:
            text = f"{url}: not a byte came within {self.timeout:g} s"
        except self._httpx.ConnectError as error:
            text = f"{url}: nobody answers there ({error}); is the server running?"
        except self._httpx.HTTPError as error:
            text = f"{url}: {error or type(error).__name__}"
        except (AttributeError, RuntimeError, OSError):
            # the client was closed meanwhile, by another thread
            if self._client is not None:
                raise
            text = _given_up(url)
        else:
            return
        raise PeerError(text) from None


def _httpx() -> ModuleType:
    try:
        import httpx2
    except ImportError:
        text = "measuring a server needs httpx2; install it with: pip install 'dflash-gguf[bench]'"
        raise UsageError(text) from None
    return httpx2


def _given_up(url: str) -> str:
    return f"{url}: given up, as another answer failed or the measurement ends"


def _checked(url: str, response: Any) -> str:
    text = str(response.text)
    if response.status_code != 200:
        raise _refused(url, response.status_code, text)
    return text


def _refused(url: str, status: int, body: str) -> PeerError:
    try:
        said = _message(json.loads(body))
    except ValueError:
        said = None
    shown = " ".join((said or body).split())[:300]
    return PeerError(f"{url}: status {status}: {shown or 'without a word'}")


def _message(found: Any) -> str | None:
    """Return an error's own words: OpenAI's, SGLang's and FastAPI's form of it."""
    if isinstance(found, dict):
        error = found.get("error")
        inner = error.get("message") if isinstance(error, dict) else error
        said = inner or found.get("message") or found.get("detail")
        return str(said) if said else None
    return None


def _object(url: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        shown = " ".join(text.split())[:100]
        said = f"{url}: status 200: expected a JSON object, found: {shown}"
        raise PeerError(said)
    return found


def _take(url: str, reading: _Reading, moment: float, data: str) -> None:
    found = _object(url, data)
    if found.get("error") or found.get("object") == "error":
        raise _refused(url, 200, data)
    try:
        reading.add(moment, found)
    except (AttributeError, TypeError, KeyError):
        shown = " ".join(data.split())[:100]
        text = f"{url}: status 200: not a chat completion: {shown}"
        raise PeerError(text) from None


def _read(url: str, reads: Sequence[tuple[float, bytes]]) -> _Reading:
    reading = _Reading()
    for moment, data in events(reads):
        if data == _DONE:
            break
        if data.strip():
            _take(url, reading, moment, data)
    return reading


def _answer(url: str, asked: float, reading: _Reading, *, streamed: bool) -> Answer:
    if reading.finish_reason is None:
        text = f"{url}: status 200: the answer broke off after {len(reading.content)} pieces"
        raise PeerError(text)
    usage = reading.told.get("usage") or {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    if not all(isinstance(count, int) for count in counts):
        text = f"{url}: the server does not tell its usage, without which nothing can be counted"
        raise PeerError(text)
    return Answer(
        reasoning="".join(reading.reasoning),
        content="".join(reading.content),
        finish_reason=reading.finish_reason,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        asked=asked,
        first=reading.first if streamed else None,
        last=reading.last,
        told=reading.told,
    )

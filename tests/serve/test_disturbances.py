"""Clients that leave, that do not read, and more of them than there are places.

About 8 seconds.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from dflash_gguf.serve.answering import Answering
from dflash_gguf.serve.service import Limits

from ..support.random_pairs import Pair
from ..support.served import Client, Served, content, said, serving, until

CHAT = "/v1/chat/completions"
CONTEXT = 12_288
LONG = "word " * 2200  # 11,000 tokens, which take seconds to read
UNREAD = 100_000


@pytest.fixture(scope="module")
def patient(unending: Pair) -> Iterator[Served]:
    """A server whose model never ends an answer: 2 places, 2 more to wait, little patience with clients."""
    limits = Limits(queue=2, unread=UNREAD, stall=0.5, quiet=0.2)
    with serving(
        unending, limits=limits, sequences=2, context=CONTEXT, send_buffer=4096, prefix_memory=0
    ) as found:
        yield found


def settled(served: Served) -> None:
    """Wait for everything that has been left to be over, and see that the server still answers."""
    until(served.idle, "places given back")
    assert served.chat("well?", max_tokens=3)["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_is_not_written_for(patient: Served, stream: bool) -> None:
    """V2: twenty times, in prefill and in decode, alone and with two choices."""
    before = patient.metrics()["llamacpp:tokens_predicted_total"]
    kinds = cycle(
        [
            {"messages": said("hi")},
            {"messages": said(LONG)},
            {"messages": said("hi"), "n": 2},
            {"messages": said(LONG), "n": 2},
        ]
    )
    for index, kind in zip(range(10), kinds, strict=False):
        body: dict[str, Any] = {**kind, "stream": stream}
        with Client(patient.url) as client:
            client.ask(**body)
            if stream and kind["messages"] != said(LONG) and index % 2:
                assert b"data: " in client.read_until(b"data: ")
            else:
                until(lambda: patient.service.places.taken > 0, "the request is there")
                time.sleep(0.02)
        settled(patient)
    written = patient.metrics()["llamacpp:tokens_predicted_total"] - before
    assert written < CONTEXT / 2  # of each that had gone on there would be as many as fit
    assert patient.metrics()['dflash:answers_total{finish="cancelled"}'] >= 10


def test_a_full_queue_is_said_and_moves_on(patient: Served) -> None:
    clients = [Client(patient.url) for _ in range(4)]
    for count, client in enumerate(clients, 1):
        client.ask(messages=said("hi"), stream=True)
        until(lambda count=count: patient.service.places.taken == count, "a place is taken")  # type: ignore[misc]
    until(lambda: patient.metrics()["llamacpp:requests_processing"] == 2, "two run")
    assert patient.metrics()["llamacpp:requests_deferred"] == 2
    for body in ({"messages": said("no")}, {"messages": said("no"), "stream": True, "n": 2}):
        reply = patient.post(CHAT, **body)
        assert reply.status_code == 429
        assert reply.json()["error"]["code"] == "queue_full"
        assert 1 <= int(reply.headers["retry-after"]) <= 600
    assert patient.http.get("/health").status_code == 200
    clients[3].close()  # one that waits
    until(lambda: patient.service.places.taken == 3, "a place in the queue is free")
    clients[0].close()  # one that runs
    assert b"data: " in clients[2].read_until(b"data: ")  # the other that waited
    for client in clients:
        client.close()
    settled(patient)


def test_a_stream_that_waits_shows_that_it_lives(patient: Served) -> None:
    running = [Client(patient.url) for _ in range(2)]
    for client in running:
        client.ask(messages=said("hi"), stream=True)
    until(lambda: patient.metrics()["llamacpp:requests_processing"] == 2, "two run")
    with Client(patient.url) as waiting:
        waiting.ask(messages=said("hi"), stream=True)
        data = waiting.read_until(b": ping\n\n")
        assert data.startswith(b"HTTP/1.1 200 ")
        assert data.endswith(b": ping\n\n\r\n")
    for client in running:
        client.close()
    settled(patient)


def test_who_does_not_read_holds_nobody_back(patient: Served) -> None:
    """V: one that never reads and one that reads a byte now and then; both are dropped, others answered."""
    connections = patient.process._server.server_state.connections  # type: ignore[union-attr]
    with (
        Client(patient.url, receive_buffer=2048) as never,
        Client(patient.url, receive_buffer=2048) as slow,
    ):
        slow.ask(messages=said("slow"), stream=True)
        stop = threading.Event()
        seen: list[bytes] = []

        def read() -> None:
            while not stop.is_set() and (data := slow.read(1)):
                seen.append(data)
                stop.wait(0.05)

        reader = threading.Thread(target=read)
        reader.start()
        own = patient.chat("others", max_tokens=40)  # beside the slow one
        never.ask(messages=said("never"), stream=True)
        until(lambda: b"HTTP" in b"".join(seen), "the slow one reads")
        until(patient.idle, "what nobody read was given up")
        again = patient.chat("others", max_tokens=40)
        assert again["choices"][0]["message"] == own["choices"][0]["message"]
        # the test's own client keeps one open
        until(lambda: len(connections) <= 1, "connections that are not read from were dropped")
        stop.set()
        reader.join()
    until(lambda: not patient.service.responses, "the end of all responses")
    settled(patient)


def test_what_is_unread_is_kept_up_to_a_limit(unending: Pair) -> None:
    limits = Limits(unread=20_000, stall=600)
    with (
        serving(unending, limits=limits, context=CONTEXT, send_buffer=4096) as served,
        Client(served.url, receive_buffer=2048) as never,
    ):
        never.ask(messages=said("never"), stream=True)
        until(lambda: served.service.places.taken == 1, "it has begun")
        until(served.idle, "the answer was given up")
        assert served.chat("others", max_tokens=2)["usage"]["completion_tokens"] == 2
        data = never.read_until(b"\r\n0\r\n\r\n")
        assert data.rpartition(b"data: ")[2].startswith(b'{"error":')
        assert b'"code":"not_read"' in data


def test_an_answer_waits_for_a_slow_reader(unending: Pair) -> None:
    """What fits the buffer is kept: the engine is done long before a client that takes its time."""
    with (
        serving(unending, send_buffer=4096) as served,
        Client(served.url, receive_buffer=2048) as slow,
    ):
        own = served.streamed("slow", max_tokens=150)
        slow.ask(messages=said("slow"), max_tokens=150, stream=True)
        until(lambda: served.service.places.taken == 1, "it has begun")
        until(served.idle, "it has ended")
        data = slow.read_until(b"data: [DONE]\n\n")
    body = data.partition(b"\r\n\r\n")[2]
    assert body.count(b"data: ") == len(own) + 1
    assert b'"finish_reason":"length"' in body


def test_events_leave_at_once(served: Served) -> None:
    """Nagle's algorithm would hold them back for 40 ms."""
    with Client(served.url) as client:
        client.ask(messages=said("hi"), max_tokens=2)
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        server = served.process._server
        assert server is not None
        for connection in server.server_state.connections:
            own = connection.transport.get_extra_info("socket")
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_many_streams_are_their_solo_runs_and_none_starves(
    unending: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V1, with 32 streams: each text is its own, health answers meanwhile, all get on at the same pace."""
    count, tokens = 32, 60  # prompts are read one a round: the last begins when the first has 32
    written: Counter[Answering] = Counter()
    at_first_end: list[dict[Answering, int]] = []
    hear = Answering._hear

    def counted(self: Answering, index: int, item: Any) -> None:
        written[self] += len(item.tokens)
        if item.finish_reason is not None and len(written) == count:
            at_first_end.append(dict(written))
        hear(self, index, item)

    with serving(unending, sequences=count, context=256) as served:
        solo = [content(served.streamed(f"say {i}", max_tokens=tokens)) for i in range(count)]
        monkeypatch.setattr(Answering, "_hear", counted)
        texts = [""] * count
        go = threading.Event()
        worker = served.service.worker()
        held = worker.call(lambda _: go.wait(30))  # so that all begin at the same time

        def follow(index: int) -> None:
            texts[index] = content(served.streamed(f"say {index}", max_tokens=tokens))

        threads = [threading.Thread(target=follow, args=(index,)) for index in range(count)]
        for thread in threads:
            thread.start()
        until(lambda: served.service.places.taken == count, "all have been asked")
        health = [served.http.get("/health").status_code]
        go.set()
        while any(thread.is_alive() for thread in threads):
            health.append(served.http.get("/health").status_code)
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        assert held.result()
    assert texts == solo
    assert set(health) == {200}
    counts = sorted(at_first_end[0].values())
    assert counts[0] >= counts[count // 2] / 2, counts

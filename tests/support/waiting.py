"""Waiting for a ticket's chunks, so that a hang fails a test instead of stopping it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from dflash_gguf import Chunk

WAIT = 30  # seconds before a hanging test is called one


def collect(ticket: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks of a ticket, read in a thread of their own. Raises what the ticket raises."""
    chunks: list[Chunk] = []
    errors: list[BaseException] = []

    def read() -> None:
        try:
            chunks.extend(ticket)
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(WAIT)
    assert not thread.is_alive(), "the ticket never ended"
    if errors:
        raise errors[0]
    return chunks

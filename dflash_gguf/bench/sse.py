"""Server-sent events, read as the HTML standard says, each with the time at which it was complete."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_ENDS = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"


def events(reads: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """Yield the data of each event that was completed.

    Comments and fields other than `data` are passed over; an event without its empty line at the end is lost, as the
    standard has it, so that a stream that broke off does not give half a piece.

    Args:
        reads: what came, cut anywhere, and when.

    Yields:
        The time of the read that completed the event, and its data; several lines are joined by a line break.
    """
    held, data, after_return, begun = b"", list[str](), False, False
    for time, read in reads:
        piece = read[1:] if after_return and read[:1] == b"\n" else read
        if read:
            after_return = read.endswith(b"\r")
        *lines, held = _ENDS.split(held + piece)
        for line in lines:
            text = line if begun else line.removeprefix(_MARK)
            begun = True
            if text:
                name, _, value = text.partition(b":")
                if name == b"data":
                    data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
            elif data:
                yield time, "\n".join(data)
                data = []

"""Texts that say the same thing over and over, which any drafter gets right: no success of a drafter's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_SAME_WORDS = 12  # at the end, in a row
_SHORT = 8  # characters of a piece that may stand for a token
_SAME_PIECES = 24
_TAIL = 4096  # characters of the end that are looked at
_GRAM = 12  # words of the longest phrase that is looked for
_ENOUGH = 48  # words, in fewer a phrase comes twice by chance
_MOST = 0.6  # of a text that one phrase may not cover


def loop(text: str) -> str | None:
    """Return in what way a text is one piece over and over, or None.

    It is if it ends in one word or one piece of a few characters many times in a row, or if one phrase covers
    most of it.
    """
    words = text.split()
    same = _run(words)
    if same >= _SAME_WORDS:
        return f"ends in {words[-1][:40]!r} {same} times in a row"
    tail = text.rstrip()[-_TAIL:]
    for size in range(1, _SHORT + 1):
        times = _repeats(tail, size)
        if times >= _SAME_PIECES:
            return f"ends in {tail[-size:]!r} {times} times in a row"
    words = [word for word in words if any(map(str.isalnum, word))]  # no bars of tables
    if len(words) >= _ENOUGH:
        phrase, share = _commonest(words)
        if share > _MOST:
            return f"is to {share:.0%} {' '.join(phrase)[:60]!r}"
    return None


def _run(words: Sequence[str]) -> int:
    """How many words at the end are the same."""
    count = 0
    while count < len(words) and words[-1 - count] == words[-1]:
        count += 1
    return count


def _repeats(text: str, size: int) -> int:
    """How often the last `size` characters stand in a row at the end; 0 if they are nothing but blank."""
    piece = text[-size:]
    if len(piece) < size or not piece.strip():
        return 0
    count, end = 0, len(text)
    while end >= size and text[end - size : end] == piece:
        count, end = count + 1, end - size
    return count


def _commonest(words: Sequence[str]) -> tuple[tuple[str, ...], float]:
    """Return the phrase that covers most of a text, and how much."""
    best: tuple[tuple[str, ...], float] = ((), 0.0)
    for size in range(1, _GRAM + 1):
        grams = list(zip(*(words[first:] for first in range(size)), strict=False))
        phrase, _ = Counter(grams).most_common(1)[0]
        share = size * _apart(grams, phrase) / len(words)
        if share > best[1]:
            best = phrase, share
    return best


def _apart(grams: Sequence[tuple[str, ...]], phrase: tuple[str, ...]) -> int:
    """How often a phrase is found, without those that overlap the one before."""
    count = at = 0
    while at < len(grams):
        found = grams[at] == phrase
        count += found
        at += len(phrase) if found else 1
    return count

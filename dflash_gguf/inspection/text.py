"""A report as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..draft_layers import Layer
from ..faults import one_line
from ..gguf_file import Value
from .report import Report

_LONGEST = 100


def render(report: Report) -> str:
    """Return the report for people, ending with a line break."""
    return "".join(f"{one_line(line)}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield report.path
    yield f"  {report.family}, architecture {report.architecture}, GGUF version {report.gguf_version}"
    yield (
        f"  {report.parameters:,} parameters, {report.bytes / 1e6:,.1f} MB, "
        f"{report.bits_per_weight:g} bits per weight"
    )
    shares = (
        f"{share.tensors} {share.type} ({share.bytes / 1e6:,.1f} MB)" for share in report.types
    )
    yield f"  tensors: {', '.join(shares) or 'none'}"
    mask = "none" if report.mask_token_id is None else str(report.mask_token_id)
    yield f"  vocabulary of {report.tokens:,} tokens, mask token {mask}"
    if report.head:
        yield f"  head: {report.head}"
    yield from _section("keys", (_key(key.key, key.value, key.meaning) for key in report.keys))
    yield from _section("layers", _layers(report))
    yield from _section("origin", (f"{key} = {_short(v)}" for key, v in report.origin.items()))
    yield from _section("to know", report.oddities)
    if report.fit is not None:
        yield from _section(
            "with the target",
            [f"{report.fit.target}: they fit" if report.fit.fits else report.fit.reason],
        )


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    listed = list(lines)
    if listed:
        yield f"  {title}:"
        yield from (f"    {line}" for line in listed)


def _key(key: str, value: Value, meaning: str) -> str:
    return f"{key} = {_short(value)}  ({meaning or 'llama.cpp does not know this key'})"


def _layers(report: Report) -> Iterator[str]:
    source = "" if report.trained_known else " (by the reference's rule: the file does not tell)"
    for layer in report.layers:
        trained, run = _mask(layer.trained_causal), _mask(layer.llama_cpp_causal)
        yield f"{layer.index}: {_window(layer)}, trained {trained}{source}, in llama.cpp {run}"


def _window(layer: Layer) -> str:
    return "sees all tokens" if layer.window is None else f"sees the last {layer.window:,} tokens"


def _mask(causal: bool) -> str:
    return "causal" if causal else "bidirectional"


def _short(value: Value) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."

"""`dflash-gguf models`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..local_models import LocalModel, LocalModels


def models(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List what can be run without a download, which pairs fit, and the pairs known by name.

    Looks through the Hugging Face cache and the cache of converted drafters; reads headers only.

    Examples:
        dflash-gguf models --json
    """
    from ..local_models import find_local_models
    from ..terminal import write

    found = find_local_models()
    if json:
        import json as encoder

        write(encoder.dumps(found.as_dict(), indent=2) + "\n")
    else:
        write("".join(f"{line}\n" for line in _lines(found)))


def _lines(found: LocalModels) -> Iterator[str]:
    from ..convert.hub_cache import cache_folder
    from ..faults import one_line
    from ..plan import size_text

    fitting: dict[str, list[str]] = {}
    for target, draft in found.pairs:
        fitting.setdefault(target, []).append(draft)
        fitting.setdefault(draft, []).append(target)
    if not found.targets and not found.drafters:
        yield f"no models in {cache_folder()}; -m user/repo:QUANT fetches one"
    yield from _table("targets", found.targets, fitting)
    yield from _table("drafters", found.drafters, fitting)
    if found.unusable:
        yield "not to be run"
        yield from (one_line(f"  {path}: {fault}") for path, fault in found.unusable)
    if found.unfinished:
        yield "unfinished downloads; the same command goes on with them"
        yield from (f"  {name}  {size_text(size)} so far" for name, size in found.unfinished)
    yield "pairs known by name"
    for pair in found.known:
        yield f"  {pair.target} with {' or '.join(pair.drafters)}"
        if not pair.targets_here:
            yield f"    USER/REPO:QUANT: a GGUF of {pair.target}"
        yield f"    {pair.command}"


def _table(title: str, rows: Sequence[LocalModel], fitting: dict[str, list[str]]) -> Iterator[str]:
    from ..faults import one_line
    from ..plan import size_text

    if rows:
        yield title
    names = [one_line(row.name) for row in rows]
    widest = max(map(len, names), default=0)
    for name, row in zip(names, rows, strict=True):
        fits = ", ".join(fitting.get(row.name, [])) or "nothing here"
        facts = f"{row.quant:<10}  {size_text(row.bytes):>9}  {row.family:<8}"
        yield one_line(f"  {name:<{widest}}  {facts}  fits {fits}")

"""The page at `/` and what belongs to it: the files of the folder `page`, read once, and no others.

index.html is the page itself; its scripts and styles are asked for as `page/NAME`.
"""

from __future__ import annotations

import mimetypes
from importlib import resources

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

_INDEX = "index.html"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[BaseRoute]:
    """Return a route for each file."""
    folder = resources.files(__package__) / "page"
    if not folder.is_dir():
        return []
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    return [
        _route("/" if name == _INDEX else f"/page/{name}", name, data)
        for name, data in files.items()
        if not name.endswith((".py", ".md"))
    ]


def _route(path: str, name: str, data: bytes) -> Route:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"

    async def give(_: object) -> Response:
        return Response(data, media_type=kind, headers=_HEADERS)

    return Route(path, give, methods=["GET"], include_in_schema=False)

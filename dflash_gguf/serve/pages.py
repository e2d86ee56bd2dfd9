"""The page at `/` and what belongs to it: the files of the folder `page`, read once, and no others.

index.html is the page itself; its scripts and styles are asked for as `page/NAME`.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

_INDEX = "index.html"
# what the system thinks of these names differs from one to another
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
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
    kind = _KINDS.get(Path(name).suffix, "application/octet-stream")
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = _HEADERS | {"ETag": tag}

    async def give(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if tag in {each.strip().removeprefix("W/") for each in known.split(",")}:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=kind, headers=headers)

    return Route(path, give, methods=["GET"], include_in_schema=False)

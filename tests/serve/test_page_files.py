"""The page's files, and no others, come with the right types, and only anew if they have changed. A second."""

from __future__ import annotations

from importlib import resources

import pytest

from ..support.served import Served

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
FILES = sorted(file.name for file in (resources.files("dflash_gguf.serve") / "page").iterdir())


def test_every_file_is_there(served: Served) -> None:
    assert {"index.html", "style.css", "app.js"} <= set(FILES)
    for name in FILES:
        path = "/" if name == "index.html" else f"/page/{name}"
        reply = served.http.get(path)
        assert reply.status_code == 200, path
        kind = KINDS[name.rpartition(".")[2]]
        assert reply.headers["content-type"] == f"{kind}; charset=utf-8"
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["x-content-type-options"] == "nosniff"
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        tag = reply.headers["etag"]
        again = served.http.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
        assert (again.status_code, again.content) == (304, b"")
        assert served.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/index.html",
        "/page/../pages.py",
        "/page/%2e%2e/pages.py",
        "/page//etc/passwd",
    ],
)
def test_nothing_else_is(served: Served, path: str) -> None:
    assert served.http.get(path).status_code == 404

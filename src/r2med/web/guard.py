"""Who may ask, and what a browser may do with an answer: loopback names only, nothing from elsewhere, no framing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
"""The names under which the server may be asked: anything else is a page elsewhere that points its name here."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Nothing is told to other sites; with `no-referrer` a browser would send its own forms as `Origin: null`.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def local(host: str) -> bool:
    """Whether a Host header names this machine by its loopback, and says nothing else.

    >>> local("127.0.0.1:8421"), local("[::1]:80"), local("evil.example"), local("localhost/evil")
    (True, True, False, False)
    """
    return _HOST.fullmatch(host) is not None


class Guard:
    """Refuses foreign hosts and foreign posts, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, page: Callable[[str], str]) -> None:
        self.app = app
        self.page = page
        """Makes the page that gives the reason for a refusal."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refused = _refused(scope["method"], headers)
        app = HTMLResponse(self.page(refused), 403) if refused else self.app
        await app(scope, receive, guarded)


def _refused(method: str, headers: dict[bytes, str]) -> str:
    host = headers.get(b"host", "")
    if not local(host):
        return "this server answers only to this machine's own loopback name"
    if method in ("GET", "HEAD"):
        return ""
    origin = headers.get(b"origin", "")
    site = headers.get(b"sec-fetch-site", "same-origin")
    if origin != f"http://{host}" or site != "same-origin":
        return "a change must come from a page of this server; open the page again and repeat it there"
    return ""

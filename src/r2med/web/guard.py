"""Who may ask, and what a browser may do with an answer: loopback names only, nothing from elsewhere, no framing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""The hosts under which the server may be asked: anything else is a page elsewhere that points its name here."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def local(host: str) -> bool:
    """Whether a Host header, or what follows `//` in an origin, names this machine by its loopback.

    >>> local("127.0.0.1:8421"), local("[::1]:80"), local("evil.example"), local("localhost.evil.example")
    (True, True, False, False)
    """
    try:
        return urlsplit(f"//{host}").hostname in NAMES and "@" not in host
    except ValueError:
        return False


class Guard:
    """Refuses foreign hosts and foreign posts, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from starlette.responses import PlainTextResponse

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refused = _refused(scope["method"], headers)
        app = PlainTextResponse(refused, 403) if refused else self.app
        await app(scope, receive, guarded)


def _refused(method: str, headers: dict[bytes, str]) -> str:
    host = headers.get(b"host", "")
    if not local(host):
        return "this server answers only to this machine's own loopback name"
    if method in ("GET", "HEAD"):
        return ""
    origin = headers.get(b"origin", "")
    site = headers.get(b"sec-fetch-site", "same-origin")
    if origin.partition("//")[2] != host or site != "same-origin":
        return "a change must come from a page of this server"
    return ""

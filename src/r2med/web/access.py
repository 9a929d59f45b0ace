"""Access to the pages: the one place where a request is admitted or refused.

Of every request, for a page, a file or a form alike, it is checked in this order: is its Host a name that the server
goes by, so that no page elsewhere points its own name here; is it the owner's, by token or cookie, or a user's with
another entrance (`Entrance`); and does a change come from a page of this server, which a browser says in Origin?
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?)(?::([0-9]{1,5}))?", re.IGNORECASE)
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MONTH = 30 * 24 * 3600  # seconds that a browser keeps the cookie
_STATIC = "/static"  # style and script, which every admitted request may need
_ASK = "open the address that r2med serve printed when it was started, which ends in a token"
_FOREIGN = "this server does not answer to this host name; start it with --allow-host NAME to use another"
_ELSEWHERE = "a change must come from a page of this server; open the page again and repeat it there"


@dataclass(frozen=True)
class Visit:
    """A request, as far as it matters who makes it."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # by names in small letters
    scheme: str = "http"
    client: str = ""  # the address that it came from

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """Parse the cookies that came with it."""
        return cookie_parser(self.headers.get("cookie", ""))

    @cached_property
    def parameters(self) -> list[tuple[str, str]]:
        """Parse the query of its address."""
        return parse_qsl(self.query, keep_blank_values=True, errors="replace")

    @property
    def host(self) -> str:
        """Return the name under which the server is addressed, with the port."""
        return self.headers.get("host", "")

    @property
    def looks(self) -> bool:
        """Return whether nothing is to be changed."""
        return self.method in ("GET", "HEAD")

    def below(self, path: str) -> bool:
        """Return whether it asks for a path or something below it."""
        return self.path == path or self.path.startswith(path + "/")


@dataclass(frozen=True)
class Admitted:
    """The request is answered."""

    by: str  # on what grounds: `token`, `entrance`, or `open` if the server has no token


@dataclass(frozen=True)
class Welcomed:
    """The token was in the address: the browser gets a cookie and goes on to the address without it."""

    place: str
    cookie: str


@dataclass(frozen=True)
class Refused:
    """The request is not answered."""

    why: str
    stranger: bool = True  # whether it is unknown who asks; a page for strangers leads nowhere


@dataclass(frozen=True)
class Entrance:
    """Access without the token, to some pages alone: by a personal link, for instance."""

    path: str  # the pages that it leads to: this path and everything below it
    opens: Callable[[Visit], bool]  # whether a request may go there; it also decides over style and script
    why_not: Callable[[Visit], str] = lambda visit: ""
    """The message for a refused request of its pages; empty for the usual one."""

    def leads(self, visit: Visit) -> bool:
        """Return whether a request may be answered by right of this entrance."""
        return (visit.below(self.path) or (visit.looks and visit.below(_STATIC))) and self.opens(visit)


@dataclass(frozen=True)
class Access:
    """The rules of a server."""

    token: str | None  # the token of the owner; with None every request that reaches the server is admitted
    hosts: tuple[str, ...] = ()  # names besides the loopback's, as of a proxy; without a port, under every port
    bound: str = "127.0.0.1"  # the address that the server listens on
    entrances: tuple[Entrance, ...] = ()

    def decide(self, visit: Visit) -> Admitted | Welcomed | Refused:
        """Decide if a request is answered, and on what grounds."""
        if not self.goes_by(visit.host):
            return Refused(_FOREIGN)
        decision = self._admit(visit)
        if not isinstance(decision, Admitted) or visit.looks:
            return decision
        scheme, _, place = visit.headers.get("origin", "").partition("://")
        here = scheme == "http" and place == visit.host
        # A proxy may speak TLS to the browser, and may ask here under the loopback's name.
        here = scheme in ("http", "https") if self._named(place) else here
        if not here or visit.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return Refused(_ELSEWHERE, stranger=decision.by == "entrance")
        return decision

    def goes_by(self, host: str) -> bool:
        """Return whether the server is known under a name.

        >>> access = Access("...", hosts=("hub.example",))
        >>> [access.goes_by(host) for host in ("127.0.0.1:8421", "hub.example", "evil.example", "localhost/evil")]
        [True, True, False, False]
        """
        match = _HOST.fullmatch(host)
        if not match:
            return False
        name = match[1].lower()
        if name in _LOOPBACK or self._named(host):
            return True
        if is_loopback(self.bound):
            return False
        # No other site can point an address here.
        name = name.strip("[]")
        try:
            number, bound = ipaddress.ip_address(name), ipaddress.ip_address(self.bound)
        except ValueError:
            return name == self.bound.lower()
        return bound.is_unspecified or number == bound

    def _named(self, host: str) -> bool:
        """Return whether the owner has allowed a name."""
        names = {name.lower() for name in self.hosts}
        return host.lower() in names or host.lower().rpartition(":")[0] in names

    def _admit(self, visit: Visit) -> Admitted | Welcomed | Refused:
        token = next((value for name, value in visit.parameters if name == "token"), None)
        if self.token is None:
            return Welcomed(without_token(visit), "") if visit.looks and token is not None else Admitted("open")
        if visit.looks and token is not None and (_same(token, self.token) or self._holds_cookie(visit)):
            # Lax, not Strict: a link in a message must open, and looking changes nothing.
            secure = "; Secure" if visit.scheme == "https" else ""
            rules = f"Max-Age={_MONTH}; Path=/; HttpOnly; SameSite=Lax{secure}"
            return Welcomed(without_token(visit), f"{_cookie_name(visit)}={self._pledge()}; {rules}")
        if self.knows_owner(visit):
            return Admitted("token")
        if any(entrance.leads(visit) for entrance in self.entrances):
            return Admitted("entrance")
        reasons = [entrance.why_not(visit) for entrance in self.entrances if visit.below(entrance.path)]
        usual = f"this token is not the server's; {_ASK}" if token else f"this page needs a token; {_ASK}"
        return Refused(next(filter(None, reasons), usual))

    def knows_owner(self, visit: Visit) -> bool:
        """Return whether a request is known to be the owner's, without a lookup of reviewers."""
        kind, _, token = visit.headers.get("authorization", "").partition(" ")
        bears_token = kind.lower() == "bearer" and _same(token.strip(), self.token or "")
        return self.token is None or self._holds_cookie(visit) or bears_token

    def _holds_cookie(self, visit: Visit) -> bool:
        return _same(visit.cookies.get(_cookie_name(visit), ""), self._pledge())

    def _pledge(self) -> str:
        """Return the cookie's content: it can be computed from the token, but not the token from it."""
        return hmac.new((self.token or "").encode("utf-8"), b"r2med pages", hashlib.sha256).hexdigest()


def is_loopback(address: str) -> bool:
    """Return whether an address can be reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_host_name(text: str) -> bool:
    """Return whether a text can stand in a Host header.

    >>> is_host_name("hub.example:443"), is_host_name("https://hub.example"), is_host_name("")
    (True, False, False)
    """
    return _HOST.fullmatch(text) is not None


def without_token(visit: Visit) -> str:
    """Return the address of a request without its token, on this server whatever the path looks like.

    >>> without_token(Visit("GET", "//evil.example/x", "token=abc&q=1"))
    '/evil.example/x?q=1'
    """
    rest = urlencode([(name, value) for name, value in visit.parameters if name != "token"], errors="replace")
    return "/" + quote(visit.path, errors="replace").lstrip("/") + (f"?{rest}" if rest else "")


def _cookie_name(visit: Visit) -> str:
    """Return the cookie's name, with the port: browsers do not separate the cookies of two ports."""
    match = _HOST.fullmatch(visit.host)
    return "r2med" + (f"_{match[2]}" if match and match[2] else "")


def _same(one: str, other: str) -> bool:
    """Return whether two secrets are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Other sites learn nothing; with `no-referrer` a browser would send its own forms as `Origin: null`.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """Answers those who are admitted, and puts the headers on every answer.

    Pages find what let a request in as `request.state.admitted_by`.
    """

    def __init__(self, app: ASGIApp, access: Access, page: Callable[[Refused], Response]) -> None:
        self.app, self.access = app, access
        self.page = page  # makes the page that gives the reason for a refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                names = {name for name, _ in headers}
                message["headers"] = headers + [header for header in _HEADERS if header[0] not in names]
            await send(message)

        visit = visit_of(scope)
        # The owner of a personal link is looked up in a file.
        decide, is_owner = self.access.decide, self.access.knows_owner(visit)
        decision = decide(visit) if is_owner else await run_in_threadpool(decide, visit)
        answer = self.app
        if isinstance(decision, Refused):
            # The page is rendered, which takes a while.
            answer = await run_in_threadpool(self.page, decision)
        elif isinstance(decision, Welcomed):
            headers = {"cache-control": "no-store"} | ({"set-cookie": decision.cookie} if decision.cookie else {})
            answer = RedirectResponse(decision.place, 303, headers=headers)
        else:
            scope.setdefault("state", {})["admitted_by"] = decision.by
        await answer(scope, receive, guarded)


def visit_of(scope: Scope) -> Visit:
    """Convert a request to the form in which access is decided."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query, client = scope.get("query_string", b"").decode("latin-1"), (scope.get("client") or ("",))[0]
    return Visit(scope["method"], scope["path"], query, headers, scope.get("scheme", "http"), client)

"""Stands before every page: asks who may come in, and tells a browser what it may do with an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from r2med.web.access import Access, Admitted, Refused, Visit, Welcomed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
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


class Guard:
    """Answers those who are admitted, and puts the headers on every answer.

    Pages find what let a request in as `request.state.admitted_by`.
    """

    def __init__(self, app: ASGIApp, access: Access, page: Callable[[Refused], Response]) -> None:
        self.app = app
        self.access = access
        self.page = page
        """Makes the page that gives the reason for a refusal."""

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
                own = list(message.get("headers", []))
                names = {name for name, _ in own}
                message["headers"] = [*own, *(each for each in _HEADERS if each[0] not in names)]
            await send(message)

        visit = visit_of(scope)
        if self.access.knows_keeper(visit):
            answer = self._answer(scope, visit)
        else:
            # Whoever has a link of their own is looked up in a file.
            answer = await run_in_threadpool(self._answer, scope, visit)
        await answer(scope, receive, guarded)

    def _answer(self, scope: Scope, visit: Visit) -> ASGIApp:
        decision = self.access.decide(visit)
        if isinstance(decision, Refused):
            return self.page(decision)
        if isinstance(decision, Welcomed):
            headers = {"cache-control": "no-store"} | ({"set-cookie": decision.cookie} if decision.cookie else {})
            return RedirectResponse(decision.place, 303, headers=headers)
        return self._admit(scope, decision)

    def _admit(self, scope: Scope, decision: Admitted) -> ASGIApp:
        scope.setdefault("state", {})["admitted_by"] = decision.by
        return self.app


def visit_of(scope: Scope) -> Visit:
    """A request as the rules of access see it."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query = scope.get("query_string", b"").decode("latin-1")
    client = (scope.get("client") or ("",))[0]
    return Visit(scope["method"], scope["path"], query, headers, scope.get("scheme", "http"), client)

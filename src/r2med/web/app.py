"""The server over the live ledger: every page rendered here, nothing changed by looking."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial, wraps
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from r2med.errors import R2medError
from r2med.pipeline.registry import named
from r2med.render.html import Frame, environment, inlined, render, static
from r2med.store.jobs import running_work
from r2med.web.access import Access, Guard, Refused
from r2med.web.addresses import TooLong, read_form
from r2med.web.library import Library
from r2med.web.live import LiveFeed
from r2med.web.server import SharedPages, page_server

MENU = {
    "Board": "/",
    "Compare": "/compare",
    "Queries": "/query",
    "Answers": "/rag",
    "Search": "/search",
    "Runs": "/runs",
    "Review": "/review",
    "In progress": "/progress",
}
_FILES = {
    "render/style.css": "text/css",
    "web/app.js": "text/javascript",
    "workbench/workbench.css": "text/css",
    "workbench/workbench.js": "text/javascript",
    "workbench/slopes.js": "text/javascript",
    "reviews/desk.css": "text/css",
    "reviews/desk.js": "text/javascript",
    "render/icon.svg": "image/svg+xml",
}
_PAGES = (
    ("/", "r2med.leaderboard.page:board_page", "Board"),
    ("/published", "r2med.leaderboard.published_page:published_page", "Board"),
    ("/sources", "r2med.leaderboard.published_page:sources_page", "Board"),
    ("/system", "r2med.workbench.run_page:system_page", "Board"),
    ("/compare", "r2med.comparison.page:compare_page", "Compare"),
    ("/correct", "r2med.audit.page:correct_page", "Compare"),
    ("/rag", "r2med.answers.page:rag_page", "Answers"),
    ("/query", "r2med.workbench.query_page:query_page", "Queries"),
    ("/document", "r2med.workbench.search_page:document_page", "Queries"),
    ("/search", "r2med.workbench.search_page:search_page", "Search"),
    ("/search/results", "r2med.workbench.search_page:search_results", "Search"),
    ("/runs", "r2med.workbench.run_page:runs_page", "Runs"),
    ("/run/{id}", "r2med.workbench.run_page:run_page", "Runs"),
    ("/progress", "r2med.web.live:progress_page", "In progress"),
)
"""Addresses of pages, the functions that make them, and their entries of the menu."""
_CHANGES = (
    ("/rag/judge", "r2med.answers.page:judge_study", "Answers"),
    ("/search/index", "r2med.workbench.search_page:build_index", "Search"),
    ("/system/causes", "r2med.workbench.run_page:find_causes", "Board"),
)
"""Addresses of forms, the functions that carry them out, and their entries of the menu."""
_DOWNLOADS = {
    "/board.csv": "r2med.leaderboard.page:board_file",
    "/board.json": "r2med.leaderboard.page:board_file",
    "/board.tex": "r2med.leaderboard.page:board_file",
    "/report": "r2med.leaderboard.page:report_file",
}
_DOOR, _DESK = "r2med.reviews.access:ReviewDoor", "r2med.reviews.page:review_routes"
"""What lets reviewers in, and the routes of their desks."""
_WORKBENCH = ("query", "search", "system", "run")
_AHEAD = "r2med.leaderboard.page:read_ahead"
_HEADINGS = {400: "That cannot be done", 403: "Refused", 413: "That is too much"}
"""Headings of error pages by their status."""
Page = Callable[[Library, Request], tuple[str, dict[str, Any]]]
Download = Callable[[Library, Request], tuple[str, str]]
Change = Callable[[Library, Mapping[str, str]], str]
Endpoint = Callable[[Request], Awaitable[Response]]
_FILE_THREADS = 2  # files that are made at a time; they take long, and pages do not wait for them


def create_app(library: Library, access: Access, door: Any = None) -> Starlette:
    """Build the whole application, for the owner and for reviewers with a link."""
    door = door or named(_DOOR)()
    feed = LiveFeed(library, closes=[door.close])
    access = replace(access, entrances=(*access.entrances, door.entrance()))
    endpoints = _Endpoints(library)

    def cancel(library: Library, form: Mapping[str, str]) -> str:
        feed.cancel(form)
        return "/progress"

    def events(request: Request) -> Response:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(feed.events(), media_type="text/event-stream", headers=headers)

    routes = [
        *(Route(path, endpoints.page(named(view), current)) for path, view, current in _PAGES),
        *(Route(path, endpoints.change(named(act), current), methods=["POST"]) for path, act, current in _CHANGES),
        *(Route(path, endpoints.download(named(make))) for path, make in _DOWNLOADS.items()),
        Route("/progress/events", events),
        Route("/progress/cancel", endpoints.change(cancel, "In progress"), methods=["POST"]),
        *named(_DESK)(door, MENU),
        *(Route(f"/static/{name.partition('/')[2]}", _file(name, kind)) for name, kind in _FILES.items()),
    ]
    middleware = [
        Middleware(Guard, access=access, page=_refusal),
        Middleware(GZipMiddleware, minimum_size=2000, compresslevel=3),
    ]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers={404: _missing, 405: _not_allowed})
    app.state.feed = feed
    return app


class _Endpoints:
    """Views, downloads and changes as endpoints; a user's error becomes a page with its message."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._pages: SharedPages[tuple[str, int]] = SharedPages()
        self._files: SharedPages[tuple[str, str]] = SharedPages(_FILE_THREADS)

    def page(self, view: Page, current: str) -> Endpoint:
        """Return the endpoint of a page."""

        @wraps(view)
        async def endpoint(request: Request) -> Response:
            make = partial(render_page, self.library, view, current, request)
            try:
                page, status = await self._pages.get(_address(request), make)
            except R2medError as error:
                return _error_page(request, error, current)
            return HTMLResponse(page, status, {"cache-control": "no-store"})

        return endpoint

    def download(self, make: Download) -> Endpoint:
        """Return the endpoint of a text and its kind, which the browser saves instead of showing it."""

        def work(request: Request) -> tuple[str, str]:
            with self.library.snapshot():
                return make(self.library, request)

        async def endpoint(request: Request) -> Response:
            try:
                text, kind = await self._files.get(_address(request), partial(work, request))
            except R2medError as error:
                return _error_page(request, error, "Board")
            headers = {"cache-control": "no-store"}
            if kind == "text/html":
                headers["content-disposition"] = 'attachment; filename="report.html"'
            return Response(text, media_type=f"{kind}; charset=utf-8", headers=headers)

        return endpoint

    def change(self, act: Change, current: str) -> Endpoint:
        """Return the endpoint of a form; afterwards the browser goes where its result can be seen."""

        async def endpoint(request: Request) -> Response:
            try:
                place = await run_in_threadpool(act, self.library, await read_form(request))
            except R2medError as error:
                return _error_page(request, error, current, 413 if isinstance(error, TooLong) else 400)
            return RedirectResponse(place, 303)

        return endpoint


def _address(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}"


def render_page(library: Library, view: Page, current: str, request: Request) -> tuple[str, int]:
    """Render a page, and return it with its status."""
    with library.snapshot():
        template, values = view(library, request)
        status = values.pop("status", 200)
        return render(template, frame(current), **values), status


def frame(current: str) -> Frame:
    """Return the surroundings of a page of the server."""
    return Frame(MENU, current, root="/static/", live=True, busy=bool(running_work()))


def _error_page(request: Request, error: R2medError | str, current: str = "", status: int = 404) -> HTMLResponse:
    """Render a page with an error, a way back and the nearest known addresses."""
    came = urlsplit(request.headers.get("referer", ""))
    here = came.netloc == request.headers.get("host") and not came.path.startswith("//")
    back = came._replace(scheme="", netloc="").geturl() if here else ""
    if back == str(request.url.replace(scheme="", netloc="")):
        back = ""
    values = {"message": str(error), "back": back, "choices": getattr(error, "choices", ())}
    heading = _HEADINGS.get(status, "That cannot be shown")
    return HTMLResponse(render("web/error.html", frame(current), heading=heading, **values), status)


@cache
def _refusal(refused: Refused) -> HTMLResponse:
    """Respond to a refused request: to a stranger, with a page that needs no other file."""
    values = {"heading": _HEADINGS[403], "message": refused.why, "back": "", "choices": ()}
    if not refused.stranger:
        return HTMLResponse(render("web/error.html", frame(""), **values), 403)
    around = inlined({})
    headers = {"content-security-policy": f"{around.policy}; frame-ancestors 'none'", "cache-control": "no-store"}
    return HTMLResponse(render("web/error.html", around, **values), 403, headers)


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    content = static(name)
    return lambda request: Response(content, media_type=kind, headers={"cache-control": "no-cache"})


async def _not_allowed(request: Request, error: Exception) -> Response:
    message = "this address takes what a button of a page sends, and shows nothing itself"
    response = _error_page(request, message, status=405)
    response.headers["allow"] = "POST"
    return response


def _missing(request: Request, error: Exception) -> Response:
    if request.state.admitted_by == "entrance":
        # A reviewer may see the pages of one desk, and no board.
        desk = "/".join(request.url.path.split("/")[:3])
        around = Frame({"Desk": desk}, root="/static/", live=True)
        return HTMLResponse(render("reviews/error.html", around, message="there is no such page", back=desk), 404)
    return _error_page(request, "there is no such page")


def prepare(library: Library) -> None:
    """Render the first board once before the first request, which then need not wait for templates and intervals."""
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    render_page(library, named(_PAGES[0][1]), "Board", Request(scope))
    for name in ("comparison/compare", "reviews/item", *(f"workbench/{page}" for page in _WORKBENCH)):
        environment().get_template(f"{name}.html")


def serve(port: int, access: Access, tell: Callable[[], None], proxy: str = "") -> None:
    """Answer until it is stopped; `tell` is called once it listens.

    Only of a proxy at the given address it is believed whom it asks for.
    """
    host = access.bound
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place)
    except (OSError, UnicodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else "not a host name"
        if isinstance(error, UnicodeError | socket.gaierror) or getattr(error, "errno", 0) == errno.EADDRNOTAVAIL:
            message = f"{host} is not an address of this machine ({why}); choose another with --host"
            raise R2medError(message) from error
        raise R2medError(f"port {port} cannot be used ({why}); choose another with --port") from error
    library = Library()
    prepare(library)
    threading.Thread(target=named(_AHEAD), args=(library,), daemon=True).start()
    # The interrupt is raised once more when all is closed.
    with suppress(KeyboardInterrupt):
        page_server(create_app(library, access), host, port, proxy, tell).run()

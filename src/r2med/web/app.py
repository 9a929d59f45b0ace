"""The server over the live ledger: every page rendered here, nothing changed by looking."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from r2med.web.access import Access, Door, Guard, Refused
from r2med.web.addresses import NotThere, TooLong, read_form
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
_AHEAD = "r2med.leaderboard.page:read_ahead"
_HEADINGS = {
    400: "That cannot be done",
    403: "Refused",
    404: "That cannot be shown",
    405: "That cannot be shown",
    413: "That is too much",
}
"""What stands over an error page, by its status."""
Choices = Sequence[tuple[str, str]]
"""Names, and where they lead."""
Page = Callable[[Library, Request], tuple[str, dict[str, Any]]]
Download = Callable[[Library, Request], tuple[str, str]]
_FILE_THREADS = 2
"""Files that are made at a time; they take long, and pages do not wait for them."""


def create_app(chosen: Library, access: Access, door: Door | None = None) -> Starlette:
    """Build the whole application, for the owner and for reviewers with a link."""
    door = door or named(_DOOR)()
    feed = LiveFeed(chosen, closes=[door.close])
    access = replace(access, entrances=(*access.entrances, door.entrance()))
    shared: SharedPages[tuple[str, int]] = SharedPages()
    files: SharedPages[tuple[str, str]] = SharedPages(_FILE_THREADS)

    def page(view: Page, current: str) -> Callable[[Request], Awaitable[Response]]:
        return _page(chosen, view, current, shared)

    def download(make: Download) -> Callable[[Request], Awaitable[Response]]:
        return _download(chosen, make, files)

    routes = [
        *(Route(path, page(named(view), current)) for path, view, current in _PAGES),
        *(Route(path, _form(chosen, named(act), current), methods=["POST"]) for path, act, current in _CHANGES),
        *(Route(path, download(named(make))) for path, make in _DOWNLOADS.items()),
        Route("/progress/events", _events(feed)),
        Route("/progress/cancel", _form(chosen, _cancel(feed), "In progress"), methods=["POST"]),
        *named(_DESK)(door, MENU),
        *(Route(f"/static/{name.partition('/')[2]}", _file(name, kind)) for name, kind in _FILES.items()),
    ]
    middleware = [
        Middleware(Guard, access=access, page=_refusal),
        Middleware(GZipMiddleware, minimum_size=2000, compresslevel=3),
    ]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers={404: _missing, 405: _not_asked})
    app.state.feed = feed
    return app


def frame(current: str) -> Frame:
    """Return the surroundings of a page of the server."""
    return Frame(MENU, current, root="/static/", live=True, busy=bool(running_work()))


def _page(
    library: Library, view: Page, current: str, shared: SharedPages[tuple[str, int]]
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a view as an endpoint; a user's error becomes a page with its message."""

    @wraps(view)
    async def endpoint(request: Request) -> Response:
        address = f"{request.url.path}?{request.url.query}"
        try:
            page, status = await shared.get(address, partial(_made, library, view, current, request))
        except R2medError as error:
            choices = error.choices if isinstance(error, NotThere) else ()
            return HTMLResponse(_error(404, str(error), current, _before(request), choices), 404)
        return HTMLResponse(page, status, {"cache-control": "no-store"})

    return endpoint


def _made(library: Library, view: Page, current: str, request: Request) -> tuple[str, int]:
    """Render a page, and return it with its status."""
    with library.snapshot():
        template, values = view(library, request)
        status = values.pop("status", 200)
        return render(template, frame(current), **values), status


def _error(status: int, message: str, current: str = "", back: str = "", choices: Choices = ()) -> str:
    """Render a page with an error, a way back and the nearest known addresses."""
    values = {"heading": _HEADINGS[status], "message": message, "back": back, "choices": choices}
    return render("web/error.html", frame(current), **values)


@cache
def _refusal(refused: Refused) -> HTMLResponse:
    """Respond to a refused request: to a stranger, with a page that needs no other file."""
    if not refused.stranger:
        return HTMLResponse(_error(403, refused.why), 403)
    around = inlined({})
    page = render("web/error.html", around, heading=_HEADINGS[403], message=refused.why, back="", choices=())
    headers = {"content-security-policy": f"{around.policy}; frame-ancestors 'none'", "cache-control": "no-store"}
    return HTMLResponse(page, 403, headers)


def _before(request: Request) -> str:
    """Return the page of this server that led here; empty if that is unknown or the same."""
    came = urlsplit(request.headers.get("referer", ""))
    here = came.netloc == request.headers.get("host") and not came.path.startswith("//")
    place = came._replace(scheme="", netloc="").geturl() if here else ""
    return "" if place == str(request.url.replace(scheme="", netloc="")) else place


def _download(
    library: Library, make: Download, files: SharedPages[tuple[str, str]]
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a download as an endpoint: a text, and its kind. The browser saves it instead of showing it."""

    def made(request: Request) -> tuple[str, str]:
        with library.snapshot():
            return make(library, request)

    async def endpoint(request: Request) -> Response:
        address = f"{request.url.path}?{request.url.query}"
        try:
            text, kind = await files.get(address, partial(made, request))
        except R2medError as error:
            return HTMLResponse(_error(404, str(error), "Board", _before(request)), 404)
        headers = {"cache-control": "no-store"}
        if kind == "text/html":
            headers["content-disposition"] = 'attachment; filename="report.html"'
        return Response(text, media_type=f"{kind}; charset=utf-8", headers=headers)

    return endpoint


def _events(feed: LiveFeed) -> Callable[[Request], Response]:
    """Build the endpoint that streams events to a page."""

    def endpoint(request: Request) -> Response:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(feed.events(), media_type="text/event-stream", headers=headers)

    return endpoint


def _cancel(feed: LiveFeed) -> Callable[[Library, Mapping[str, str]], str]:
    def act(library: Library, form: Mapping[str, str]) -> str:
        feed.cancel(form)
        return "/progress"

    return act


def _form(library: Library, act: Callable[[Library, Mapping[str, str]], str], current: str) -> Callable[[Request], Any]:
    """Wrap what a form does as an endpoint; afterwards the browser goes where its result can be seen."""

    async def endpoint(request: Request) -> Response:
        try:
            place = await run_in_threadpool(act, library, await read_form(request))
        except TooLong as error:
            return HTMLResponse(_error(413, str(error), current), 413)
        except R2medError as error:
            return HTMLResponse(_error(400, str(error), current, _before(request)), 400)
        return RedirectResponse(place, 303)

    return endpoint


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    content = static(name)

    def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return endpoint


async def _not_asked(request: Request, error: Exception) -> Response:
    """Answer an address that only a form sends something to."""
    del error
    message = "this address takes what a button of a page sends, and shows nothing itself"
    return HTMLResponse(_error(405, message, back=_before(request)), 405, {"Allow": "POST"})


def _missing(request: Request, error: Exception) -> Response:
    if request.state.admitted_by == "entrance":
        # A reviewer may see the pages of one desk, and no board.
        desk = "/".join(request.url.path.split("/")[:3])
        around = Frame({"Desk": desk}, root="/static/", live=True)
        return HTMLResponse(render("reviews/error.html", around, message="there is no such page", back=desk), 404)
    return HTMLResponse(_error(404, "there is no such page", back=_before(request)), 404)


def prepare(library: Library) -> None:
    """Render the first board once before the first request, which then need not wait for templates and intervals."""
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    _made(library, named(_PAGES[0][1]), "Board", Request(scope))
    for name in (
        "workbench/query.html",
        "workbench/search.html",
        "comparison/compare.html",
        "workbench/system.html",
        "workbench/run.html",
        "reviews/item.html",
    ):
        environment().get_template(name)


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
        raise R2medError(_unusable(host, port, error)) from error
    library = Library()
    prepare(library)
    threading.Thread(target=named(_AHEAD), args=(library,), daemon=True).start()
    app = create_app(library, access)
    try:
        page_server(app, host, port, proxy, tell).run()
    except KeyboardInterrupt:
        # Raised once more when all is closed.
        return


def _unusable(host: str, port: int, error: OSError | UnicodeError) -> str:
    why = error.strerror or str(error) if isinstance(error, OSError) else "not a host name"
    if isinstance(error, UnicodeError | socket.gaierror) or getattr(error, "errno", 0) == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine ({why}); choose another with --host"
    return f"port {port} cannot be used ({why}); choose another with --port"

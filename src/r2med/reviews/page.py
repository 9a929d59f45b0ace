"""The pages of the review desk: one item per screen, adjudication, and the progress for the owner.

Every form works without a script. With it, the same addresses answer in JSON if the request accepts that, and with only
the changing part of a page for `part=1`, so that the next item is there before it is needed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from r2med.errors import R2medError
from r2med.llm.cards import find_model
from r2med.render.html import Frame, address, render
from r2med.reviews.access import ReviewDoor, cookie, cookie_name, named
from r2med.reviews.deciding import progress_of
from r2med.reviews.desk import Desk
from r2med.reviews.model import ModelReviewer
from r2med.reviews.progress import FILTERS, contested_items, every_progress, filter_items, item_rows
from r2med.reviews.rows import (
    ADJUDICATOR,
    CAUSES,
    GRADED,
    SKIPPED,
    UNSURE,
    DealtItem,
    Decision,
    DecisionConflict,
    DraftDecision,
    ProofSpan,
    Reviewer,
    Ruling,
    review_folder,
)
from r2med.reviews.tables import BREAKDOWNS
from r2med.store.jobs import running_work
from r2med.store.sqlite import StoreError
from r2med.web.access import visit_of
from r2med.web.addresses import Pages, TooLong, page_number, read_form, whole_number
from r2med.web.citation import citation
from r2med.web.jobs import Jobs, JudgingOffer, judging_limits
from r2med.web.live import LiveFeed
from r2med.web.server import SharedPages

_STATUS = {DecisionConflict: 409, StoreError: 507, TooLong: 413}
Page = tuple[str, dict[str, Any]]
Form = Mapping[str, str]


class NotAdmitted(R2medError):
    """Access to a desk without a link to it."""


def review_routes(door: ReviewDoor, menu: Mapping[str, str]) -> list[Route]:
    """Return all routes of the desk."""
    pages = _Pages(door, menu)
    place = "/review/{name}"
    return [
        Route("/review", pages.owner(pages.list_page)),
        Route(f"{place}/progress", pages.owner(pages.progress_page)),
        Route(f"{place}/items", pages.owner(pages.items_page)),
        Route(f"{place}/agreement", pages.owner(pages.agreement_page)),
        Route(f"{place}/judge", pages.judge, methods=["POST"]),
        Route(f"{place}/join/{{secret}}", pages.join, methods=["GET", "POST"]),
        Route(place, pages.show(pages.start)),
        Route(f"{place}/item/{{position:int}}", pages.show(pages.item_page)),
        Route(f"{place}/item/{{position:int}}", pages.change(pages.decide), methods=["POST"]),
        Route(f"{place}/item/{{position:int}}/reveal", pages.change(pages.reveal), methods=["POST"]),
        Route(f"{place}/undo", pages.change(pages.undo), methods=["POST"]),
        Route(f"{place}/guideline", pages.show(lambda *_: ("reviews/guideline.html", {}))),
        Route(f"{place}/done", pages.show(pages.done_page)),
        Route(f"{place}/rule/{{item:int}}", pages.show(pages.ruling_page)),
        Route(f"{place}/rule/{{item:int}}", pages.change(pages.rule), methods=["POST"]),
        Route(f"{place}/rule/{{item:int}}/reveal", pages.change(pages.reveal), methods=["POST"]),
    ]


class _Pages:
    """Views and changes as endpoints, for the owner or for the reviewers of the desk that they ask for."""

    def __init__(self, door: ReviewDoor, menu: Mapping[str, str]) -> None:
        self.door, self.menu = door, menu
        self._shared: SharedPages[Response] = SharedPages(2)  # threads that no desk waits for

    def owner(self, view: Callable[[Request], Page]) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page that needs the server's token."""

        def make(request: Request) -> Response:
            try:
                template, values = view(request)
            except R2medError as error:
                return self._error(request, 404, str(error), "/review")
            frame = Frame(self.menu, "Review", root="/static/", live=True, busy=bool(running_work()))
            return _html(render(template, frame, **values), **values.get("headers", {}))

        async def endpoint(request: Request) -> Response:
            if request.state.admitted_by == "entrance":
                return self._error(request, 403, "this page is for the owner of the review")
            return await self._shared.get(f"{request.url.path}?{request.url.query}", partial(make, request))

        return endpoint

    def show(self, view: Callable[[Desk, Reviewer, Request], Page | str]) -> Callable[[Request], Response]:
        """Return the endpoint of a page for a reviewer; a view may also return an address to redirect to."""

        def endpoint(request: Request) -> Response:
            try:
                desk, person = self._sitting(request)
                page = view(desk, person, request)
                if isinstance(page, str):
                    return RedirectResponse(page, 303)
                template, values = page
                saved = _confirm_earlier(desk, person, whole_number(request.query_params.get("saved")))
                facts = {"saved": saved, "desk": desk, "person": person}
                return _html(render(template, self._frame(desk, person), **facts | values))
            except R2medError as error:
                return self._error(request, 403 if isinstance(error, NotAdmitted) else 404, _without_folder(error))

        return endpoint

    def change(self, act: Callable[[Desk, Reviewer, Request, Form], dict[str, Any]]) -> Callable[[Request], Any]:
        """Return the endpoint of a reviewer's change: it answers JSON to a script, else it redirects to the page."""

        async def endpoint(request: Request) -> Response:
            script = "application/json" in request.headers.get("accept", "")
            try:
                form = await read_form(request)
                outcome = await run_in_threadpool(lambda: act(*self._sitting(request), request, form))
            except R2medError as error:
                status = 403 if isinstance(error, NotAdmitted) else _STATUS.get(type(error), 400)
                disk = " (not kept by this machine's disk)" if status == 507 else ""
                message = f"This was not saved: {_without_folder(error)}{disk}"
                return JSONResponse({"error": message}, status) if script else self._error(request, status, message)
            saved = f"?saved={outcome['saved']}" if "saved" in outcome else ""
            return JSONResponse(outcome) if script else RedirectResponse(outcome["next"] + saved, 303)

        return endpoint

    def join(self, request: Request) -> Response:
        """Return the page behind a link, which sets the cookie and shows the work that waits.

        A browser that another person judges in is asked first (by a form that posts here): opening a link must not
        make a user judge under a colleague's name.
        """
        visit = visit_of(request.scope)
        sitting = self.door.person(visit)
        if sitting is None:
            return self._error(request, 403, "open the link that you were sent")
        desk, person = sitting
        headers = {"set-cookie": cookie(visit, *named(visit))}
        if request.method == "POST":
            return RedirectResponse(_place(desk), 303, headers={"cache-control": "no-store"} | headers)
        before = desk.store.admitted(visit.cookies.get(cookie_name(visit, desk.store.project.name), ""))
        if before is not None and before.id != person.id:
            frame = self._frame(desk, before)
            return _html(render("reviews/switch.html", frame, desk=desk, person=person, before=before))
        waits = {"done": desk.dealer.done(person), "left": desk.dealer.waiting(person)}
        page = render("reviews/join.html", self._frame(desk, person), desk=desk, person=person, **waits)
        return _html(page, **headers)

    def start(self, desk: Desk, person: Reviewer, request: Request) -> str:
        """Return the address at which a reviewer continues."""
        if person.role == ADJUDICATOR:
            return _place(desk, "rule", desk.next_ruling() or next(iter(contested_items(desk.store)), None))
        return _item_place(desk, desk.dealer.next_open(person))

    def item_page(self, desk: Desk, person: Reviewer, request: Request) -> Page:
        return _card_page(desk, request, "item", card=desk.card(person, request.path_params["position"]))

    def decide(self, desk: Desk, person: Reviewer, request: Request, form: Form) -> dict[str, Any]:
        start, end, answer = whole_number(form.get("start")), whole_number(form.get("end")), form.get("say", "")
        verdict = {"unsure": UNSURE, "skip": SKIPPED}.get(answer, GRADED)
        grade = whole_number(answer) if verdict == GRADED else None
        span = ProofSpan(start, end) if start is not None and end is not None else None
        draft = DraftDecision(verdict, grade, span, _note(form), whole_number(form.get("sentence")), _seconds(form))
        position = request.path_params["position"]
        if names := desk.aspects(person, position):
            covered = tuple(name for number, name in enumerate(names) if f"aspect-{number}" in form)
            draft = replace(draft, aspects=covered)
        row = desk.store.record(person.id, position, draft, _token(form), whole_number(form.get("seen")))
        place = _item_place(desk, desk.dealer.next_open(person, position))
        counts = {"done": desk.dealer.done(person), "left": desk.dealer.waiting(person)}
        return {"saved": row.id, "said": _confirm(desk, row), "next": place, **counts}

    def undo(self, desk: Desk, person: Reviewer, request: Request, form: Form) -> dict[str, Any]:
        token = f"undo {_token(form)}"
        if person.role == ADJUDICATOR:
            ruling = desk.undo_ruling(person, token)
            place = _place(desk, "rule", ruling.item) if ruling else ""
        else:
            row = desk.store.undo(person.id, token)
            place = _item_place(desk, row) if row else ""
        return {"said": "Taken back" if place else "There is nothing to take back", "next": place or _place(desk)}

    def reveal(self, desk: Desk, person: Reviewer, request: Request, form: Form) -> dict[str, Any]:
        kind, name = ("rule", "item") if "item" in request.path_params else ("item", "position")
        number = request.path_params[name]
        desk.reveal(person, number, form.get("what", ""), ruling=kind == "rule")
        return {"said": "Shown, and recorded", "next": _place(desk, kind, number)}

    def done_page(self, desk: Desk, person: Reviewer, request: Request) -> Page:
        adjudicator = person.role == ADJUDICATOR
        values = {"place": _place(desk), "token": secrets.token_urlsafe(12), "done": desk.dealer.done(person)}
        skipped = [] if adjudicator else desk.dealer.skipped(person)[:500]
        return "reviews/done.html", {**values, "skipped": skipped, "adjudicator": adjudicator}

    def ruling_page(self, desk: Desk, person: Reviewer, request: Request) -> Page:
        card = desk.ruling_card(person, request.path_params["item"])
        return _card_page(desk, request, "rule", card=card, causes=CAUSES)

    def rule(self, desk: Desk, person: Reviewer, request: Request, form: Form) -> dict[str, Any]:
        item, grade = request.path_params["item"], whole_number(form.get("say"))
        if grade is None:
            raise R2medError("a ruling needs a grade")
        facts = (form.get("cause", ""), whole_number(form.get("sentence")), _note(form), _seconds(form))
        row = desk.rule(Ruling(0, person.id, item, grade, *facts, ""), _token(form))
        place = _place(desk, "rule", desk.next_ruling(item))
        return {"saved": row.id, "said": _confirm(desk, row), "next": place, "left": len(desk.open_rulings())}

    def list_page(self, request: Request) -> Page:
        reviews, broken = every_progress()
        cite = citation("Reviews", "review", "list")
        return "reviews/list.html", {"reviews": reviews, "broken": broken, "cite": cite}

    def progress_page(self, request: Request) -> Page:
        name, query = request.path_params["name"], request.query_params
        desk = self.door.desk(name)
        llm, called = query.get("llm", ""), query.get("as", "")
        offer = JudgingOffer.of(lambda: ModelReviewer(desk.store, find_model(llm), called).estimate(), llm, called)
        values = {"progress": progress_of(desk.store), "causes": CAUSES, "offer": offer}
        values |= {"job": _jobs(request).newest("judge", "review", name)}
        return "reviews/progress.html", {**values, "cite": citation(f"Review {name}", "review", "show", name)}

    async def judge(self, request: Request) -> Response:
        """Start a job in which a model judges the items of a review, and redirect to its page."""
        if request.state.admitted_by == "entrance":
            return self._error(request, 403, "this is for the owner of the review")
        form: dict[str, str] = {}
        try:
            form = await read_form(request)
            return RedirectResponse(await run_in_threadpool(self._start_judging, request, form), 303)
        except R2medError as error:
            place = f"/review/{request.path_params['name']}/progress"
            back = address(place, **{name: form.get(name, "") for name in ("llm", "as")})
            return self._error(request, _STATUS.get(type(error), 400), str(error), back)

    def _start_judging(self, request: Request, form: Form) -> str:
        review, llm, called = request.path_params["name"], form.get("llm", ""), form.get("as", "")
        ModelReviewer(self.door.desk(review).store, find_model(llm), called).refuse_another()
        options = [f"--llm={llm}", *([f"--as={called}"] if called else []), *judging_limits(form), "--json"]
        page = address(f"/review/{review}/progress", llm=llm, **{"as": called}) + "#judge"
        title = f"Judging of {review} by {called or llm}"
        command = ("r2med", "review", "judge", review, *options)
        return _jobs(request).submit(("judge", "review", review), title, page, command).page

    def items_page(self, request: Request) -> Page:
        store, query = self.door.desk(request.path_params["name"]).store, request.query_params
        show, reviewer = query.get("show", ""), query.get("reviewer", "")
        numbers = filter_items(store, show, reviewer)
        pages = Pages.of(len(numbers), page_number(query, "page"))
        rows = item_rows(store, numbers[pages.cut()])
        values = {"name": store.project.name, "scale": store.project.scale, "causes": CAUSES, "rows": rows}
        values |= {"pages": pages, "items": store.item_count, "filters": FILTERS, "show": show}
        return "reviews/items.html", {**values, "reviewer": reviewer, "reviewers": store.reviewers()}

    def agreement_page(self, request: Request) -> Page:
        """Return the page of `r2med review agreement`, with every breakdown.

        A page that waits loads itself again with `of`, the state that it waits for, whatever is decided meanwhile.
        """
        name = request.path_params["name"]
        store = self.door.desk(name).store
        state = store.state()
        needed = min(state, whole_number(request.query_params.get("of")) or state)
        computed = self.door.agreements.get(store, needed)
        if computed is None:
            refresh = {"refresh": f"2; url={address(request.url.path, of=needed)}"}
            return "reviews/agreement.html", {"name": name, "computed": None, "headers": refresh}
        if computed.error:
            raise R2medError(computed.error)
        cite = citation(f"Agreement in the review {name}", "review", "agreement", name, "--by", *BREAKDOWNS)
        values = {"name": name, "computed": computed, "older": computed.state < state, "cite": cite}
        return "reviews/agreement.html", values

    def _sitting(self, request: Request) -> tuple[Desk, Reviewer]:
        sitting = self.door.person(visit_of(request.scope))
        if sitting is None:
            name = request.path_params["name"]
            raise NotAdmitted(f"the desk of {name} opens with a link of one's own: r2med review invite {name} PERSON")
        if "item" in request.path_params and sitting[1].role != ADJUDICATOR:
            raise NotAdmitted("adjudication is for whoever was invited to it")
        return sitting

    def _frame(self, desk: Desk, person: Reviewer) -> Frame:
        """Return the frame of a reviewer's pages: its menu holds only the desk."""
        first = "Adjudication" if person.role == ADJUDICATOR else "Desk"
        menu = {first: _place(desk), "Guideline": _place(desk, "guideline")}
        return Frame(menu, root="/static/", live=True, person=person.name)

    def _error(self, request: Request, status: int, message: str, owner_back: str = "") -> Response:
        name = request.path_params.get("name", "")
        owner = request.state.admitted_by != "entrance"
        frame = Frame(self.menu if owner else {"Desk": f"/review/{name}"}, root="/static/", live=True)
        back = "" if status == 403 else owner_back or (f"/review/{name}" if name else "/review")
        return HTMLResponse(render("reviews/error.html", frame, message=message, back=back), status)


def _html(page: str, **headers: str) -> Response:
    return HTMLResponse(page, headers={"cache-control": "no-store"} | headers)


def _without_folder(error: R2medError) -> str:
    """Return the message of an error for reviewers, without the local folder of the review."""
    return str(error).replace(f"{review_folder()}{os.sep}", "")


def _place(desk: Desk, *parts: object) -> str:
    """Return an address of a desk; without a part that is known, that of its last page."""
    if parts and parts[-1] is None:
        parts = ("done",)
    return "/".join(map(str, ("/review", desk.store.project.name, *parts)))


def _item_place(desk: Desk, row: DealtItem | Decision | None) -> str:
    return _place(desk, "item", row.position if row else None)


def _card_page(desk: Desk, request: Request, name: str, **values: Any) -> Page:
    values |= {"scale": desk.store.project.scale, "place": _place(desk), "token": secrets.token_urlsafe(12)}
    part = "_" if request.query_params.get("part") else ""
    return f"reviews/{part}{name}.html", {**values, "shown": f"{time.time() - 0.001:.3f}"}


def _note(form: Form) -> str:
    return form.get("note", "").strip()[:4000]


def _seconds(form: Form) -> float | None:
    """Return how long an item was in view: by the browser's clock, or since the page was made; None if unknown."""
    try:
        seconds = float(form["seconds"]) if form.get("seconds") else time.time() - float(form["shown"])
    except (KeyError, ValueError):
        return None
    # A clock that was set meanwhile gives no time rather than a wrong one.
    return round(seconds, 2) if 0 <= seconds < 24 * 3600 else None


def _token(form: Form) -> str:
    token = form.get("token", "")
    if not 8 <= len(token) <= 200:
        raise R2medError("the form has no token; load the page again")
    return token


def _confirm(desk: Desk, row: Decision | Ruling) -> str:
    if isinstance(row, Ruling):
        return f"Saved: {row.grade}, {CAUSES[row.cause].lower()}"
    if row.verdict == SKIPPED:
        return "Skipped; it comes back at the end"
    if row.verdict == UNSURE:
        return "Saved: unsure"
    return f"Saved: {row.grade}, {desk.store.project.scale.grade(row.grade or 0).name}"


def _confirm_earlier(desk: Desk, person: Reviewer, number: int | None) -> str:
    """Return what a plain form sent before this page has saved; empty if there was none."""
    row: Decision | Ruling | None = None if number is None else desk.store.decision_of(person.id, number)
    if person.role == ADJUDICATOR:
        row = next((ruling for ruling in desk.store.rulings().values() if ruling.id == number), None)
    return _confirm(desk, row) if row else ""


def _jobs(request: Request) -> Jobs:
    feed: LiveFeed = request.app.state.feed
    return feed.library.jobs

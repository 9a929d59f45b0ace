"""The pages of the review desk: one item per screen, adjudication, and the progress for the owner.

Every form works without a script. With it, the same addresses answer in JSON if the request accepts that, and with only
the changing part of a page for `part=1`, so that the next item is there before it is needed.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from r2med.errors import R2medError
from r2med.llm.cards import find_model
from r2med.render.html import Frame, address, render
from r2med.reviews.access import ReviewDoor, cookie, named
from r2med.reviews.desk import Desk, RulingCard
from r2med.reviews.item_table import FILTERS, chosen_items, item_rows
from r2med.reviews.model import ModelReviewer
from r2med.reviews.progress import every_progress
from r2med.reviews.rows import (
    ADJUDICATOR,
    CAUSES,
    GRADED,
    SKIPPED,
    UNSURE,
    ChangedElsewhere,
    Decision,
    DraftDecision,
    ProofSpan,
    Reviewer,
    Ruling,
    review_folder,
)
from r2med.reviews.store import ReviewStore
from r2med.reviews.tables import BREAKDOWNS
from r2med.store.jobs import running_work
from r2med.store.sqlite import StoreError
from r2med.web.access import visit_of
from r2med.web.addresses import TooLong, read_form, whole_number
from r2med.web.citation import citation
from r2med.web.jobs import Job, Jobs, JudgingOffer, judging_limits
from r2med.web.live import LiveFeed
from r2med.web.server import SharedPages


def offer_review(store: ReviewStore, llm: str, name: str) -> JudgingOffer:
    """Return an offer with the estimated cost of having a model judge the items of a review."""
    if not llm:
        return JudgingOffer()
    try:
        return JudgingOffer(llm, name, ModelReviewer(store, find_model(llm), name).estimate())
    except R2medError as error:
        return JudgingOffer(llm, name, problem=str(error))


def start_review(jobs: Jobs, store: ReviewStore, form: Mapping[str, str]) -> Job:
    """Start a job in which a model judges the items of a review."""
    llm, name, review = form.get("llm", ""), form.get("as", ""), store.project.name
    ModelReviewer(store, find_model(llm), name).refuse_another()
    named = [f"--as={name}"] if name else []
    command = ("r2med", "review", "judge", review, f"--llm={llm}", *named, *judging_limits(form), "--json")
    page = address(f"/review/{review}/progress", llm=llm, **{"as": name}) + "#judge"
    return jobs.submit(("judge", "review", review), f"Judging of {review} by {name or llm}", page, command)


_LONGEST_NOTE = 4000
_DAY = 24 * 3600.0
_ITEMS = 50
"""Items on a page of the owner's table."""
_REFRESH = 2
"""Seconds after which a page that waits for figures is loaded again."""
_OWNER_THREADS = 2
"""Pages of owners that are made at a time, in threads that no desk waits for."""
_TOKEN = 200
"""Characters of a form's token, at the most."""
_STATUS = {ChangedElsewhere: 409, StoreError: 507, TooLong: 413}
Page = tuple[str, dict[str, Any]]
Sitting = tuple[Desk, Reviewer]


class NotAdmitted(R2medError):
    """Access to a desk without a link to it."""


def review_routes(door: ReviewDoor, menu: Mapping[str, str]) -> list[Route]:
    """Return all routes of the desk."""
    pages = _Pages(door, menu)
    place = "/review/{name}"
    return [
        Route("/review", pages.owner(_list_page)),
        Route(f"{place}/progress", pages.owner(_progress_page)),
        Route(f"{place}/items", pages.owner(_items_page)),
        Route(f"{place}/agreement", pages.owner(_agreement_page)),
        Route(f"{place}/judge", pages.owner_change(_judge), methods=["POST"]),
        Route(f"{place}/join/{{secret}}", pages.join),
        Route(f"{place}/join/{{secret}}", pages.join, methods=["POST"]),
        Route(place, pages.show(_start)),
        Route(f"{place}/item/{{position:int}}", pages.show(_item_page)),
        Route(f"{place}/item/{{position:int}}", pages.change(_decide), methods=["POST"]),
        Route(f"{place}/item/{{position:int}}/reveal", pages.change(_reveal), methods=["POST"]),
        Route(f"{place}/undo", pages.change(_undo), methods=["POST"]),
        Route(f"{place}/guideline", pages.show(_guideline_page)),
        Route(f"{place}/done", pages.show(_done_page)),
        Route(f"{place}/rule/{{item:int}}", pages.show(_ruling_page)),
        Route(f"{place}/rule/{{item:int}}", pages.change(_rule), methods=["POST"]),
        Route(f"{place}/rule/{{item:int}}/reveal", pages.change(_reveal_ruling), methods=["POST"]),
    ]


class _Pages:
    """Views and changes as endpoints, for the reviewers of the desk that they ask for."""

    def __init__(self, door: ReviewDoor, menu: Mapping[str, str]) -> None:
        self.door, self.menu = door, menu
        self._shared: SharedPages[Response] = SharedPages(_OWNER_THREADS)

    def owner(self, view: Callable[[ReviewDoor, Request], Page]) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page that needs the server's token."""

        def make(request: Request) -> Response:
            try:
                template, values = view(self.door, request)
            except R2medError as error:
                return self._error(request, 404, str(error), "/review")
            around = Frame(self.menu, "Review", root="/static/", live=True, busy=bool(running_work()))
            return _html(render(template, around, **values), values.get("headers", {}))

        @wraps(view)
        async def endpoint(request: Request) -> Response:
            if request.state.admitted_by == "entrance":
                return self._error(request, 403, "this page is for the owner of the review")
            return await self._shared.get(f"{request.url.path}?{request.url.query}", partial(make, request))

        return endpoint

    def owner_change(self, work: Callable[[ReviewDoor, Request, Mapping[str, str]], str]) -> Callable[[Request], Any]:
        """Return the endpoint of a change that needs the server's token; it redirects to the page that shows it."""

        @wraps(work)
        async def endpoint(request: Request) -> Response:
            if request.state.admitted_by == "entrance":
                return self._error(request, 403, "this is for the owner of the review")
            form: dict[str, str] = {}
            try:
                form = await read_form(request)
                place = await run_in_threadpool(work, self.door, request, form)
            except R2medError as error:
                place = f"/review/{request.path_params['name']}/progress"
                back = address(place, **{name: form.get(name, "") for name in ("llm", "as")})
                return self._error(request, _STATUS.get(type(error), 400), str(error), back)
            return RedirectResponse(place, 303)

        return endpoint

    def show(self, view: Callable[[Sitting, Request], Page | str]) -> Callable[[Request], Response]:
        """Return the endpoint of a page for a reviewer; a view may also return an address to redirect to."""

        @wraps(view)
        def endpoint(request: Request) -> Response:
            try:
                sitting = self._sitting(request)
                found = view(sitting, request)
                if isinstance(found, str):
                    return RedirectResponse(found, 303)
                template, values = found
                values = {"saved": _saved(sitting, request), **values}
                page = render(template, self._frame(sitting), desk=sitting[0], person=sitting[1], **values)
            except R2medError as error:
                return self._error(request, 403 if isinstance(error, NotAdmitted) else 404, _without_folder(error))
            return _html(page)

        return endpoint

    def change(self, act: Callable[[Sitting, Request, Mapping[str, str]], dict[str, Any]]) -> Callable[[Request], Any]:
        """Return the endpoint of a reviewer's change: it answers JSON to a script, else it redirects to the page."""

        def work(request: Request, form: Mapping[str, str]) -> dict[str, Any]:
            return act(self._sitting(request), request, form)

        @wraps(act)
        async def endpoint(request: Request) -> Response:
            script = "application/json" in request.headers.get("accept", "")
            try:
                done = await run_in_threadpool(work, request, await read_form(request))
            except R2medError as error:
                status = 403 if isinstance(error, NotAdmitted) else _STATUS.get(type(error), 400)
                said = _not_saved(error, status)
                return JSONResponse({"error": said}, status) if script else self._error(request, status, said)
            saved = f"?saved={done['saved']}" if "saved" in done else ""
            return JSONResponse(done) if script else RedirectResponse(done["next"] + saved, 303)

        return endpoint

    def join(self, request: Request) -> Response:
        """Return the page behind a link, which sets the cookie and shows the work that waits.

        A browser that another person judges in is asked first (by a form that posts here): nobody judges under a
        colleague's name by opening a link.
        """
        visit = visit_of(request.scope)
        found = self.door.person(visit)
        if found is None:
            return self._error(request, 403, "open the link that you were sent")
        desk, person = found
        name, secret = named(visit)
        known = {"set-cookie": cookie(visit, name, secret), "cache-control": "no-store"}
        if request.method == "POST":
            return RedirectResponse(_place(desk), 303, headers=known)
        before = self.door.known_person(visit, desk)
        if before is not None and before.id != person.id:
            return _html(
                render("reviews/switch.html", self._frame((desk, before)), desk=desk, person=person, before=before)
            )
        waits = {"done": desk.dealer.done(person), "left": desk.dealer.waiting(person)}
        page = render("reviews/join.html", self._frame(found), desk=desk, person=person, **waits)
        return HTMLResponse(page, headers=known)

    def _sitting(self, request: Request) -> Sitting:
        found = self.door.person(visit_of(request.scope))
        if found is None:
            name = request.path_params["name"]
            raise NotAdmitted(f"the desk of {name} opens with a link of one's own: r2med review invite {name} PERSON")
        return found

    def _frame(self, sitting: Sitting) -> Frame:
        """Return the frame of a reviewer's pages: its menu holds only the desk."""
        desk, person = sitting
        place = f"/review/{desk.store.project.name}"
        first = "Adjudication" if person.role == ADJUDICATOR else "Desk"
        links = {first: place, "Guideline": f"{place}/guideline"}
        return Frame(links, root="/static/", live=True, person=person.name)

    def _error(self, request: Request, status: int, message: str, owner_back: str = "") -> Response:
        name = request.path_params.get("name", "")
        owner = request.state.admitted_by != "entrance"
        around = Frame(self.menu if owner else {"Desk": f"/review/{name}"}, root="/static/", live=True)
        back = "" if status == 403 else owner_back or (f"/review/{name}" if name else "/review")
        return HTMLResponse(render("reviews/error.html", around, message=message, back=back), status)


def _html(page: str, headers: Mapping[str, str] | None = None) -> Response:
    return HTMLResponse(page, headers={"cache-control": "no-store", **(headers or {})})


def _not_saved(error: R2medError, status: int) -> str:
    """Return the message that a decision is not saved, with the reason."""
    text = _without_folder(error)
    why = f"{text} (not kept by this machine's disk)" if status == 507 else text
    return f"This was not saved: {why}"


def _without_folder(error: R2medError) -> str:
    """Return the message of an error for reviewers, without the local folder of the review."""
    return str(error).replace(f"{review_folder()}{os.sep}", "")


# ---------------------------------------------------------------------------------------------- the desk


def _place(desk: Desk) -> str:
    return f"/review/{desk.store.project.name}"


def _start(sitting: Sitting, request: Request) -> str:
    """Return the address at which a reviewer continues."""
    desk, person = sitting
    if person.role == ADJUDICATOR:
        item = desk.next_ruling() or next(iter(desk.contested()), None)
        return f"{_place(desk)}/rule/{item}" if item else f"{_place(desk)}/done"
    position = desk.start(person)
    return f"{_place(desk)}/item/{position}" if position else f"{_place(desk)}/done"


def _item_page(sitting: Sitting, request: Request) -> Page:
    desk, person = sitting
    card = desk.card(person, request.path_params["position"])
    values = {"card": card, "scale": desk.store.project.scale, "place": _place(desk)}
    values |= {"token": secrets.token_urlsafe(12), "shown": f"{time.time() - 0.001:.3f}"}
    return ("reviews/_item.html" if request.query_params.get("part") else "reviews/item.html"), values


def _decide(sitting: Sitting, request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    desk, person = sitting
    position = request.path_params["position"]
    seen = whole_number(form.get("seen"))
    row, following = desk.decide(person, position, _draft(form), _token(form), seen)
    said = _said(desk, row)
    place = f"{_place(desk)}/item/{following}" if following else f"{_place(desk)}/done"
    counts = {"done": desk.dealer.done(person), "left": desk.dealer.waiting(person)}
    return {"saved": row.id, "said": said, "next": place, **counts}


def _draft(form: Mapping[str, str]) -> DraftDecision:
    say = form.get("say", "")
    verdict = {"unsure": UNSURE, "skip": SKIPPED}.get(say, GRADED)
    start, end = whole_number(form.get("start")), whole_number(form.get("end"))
    return DraftDecision(
        verdict,
        whole_number(say) if verdict == GRADED else None,
        ProofSpan(start, end) if start is not None and end is not None else None,
        form.get("note", "").strip()[:_LONGEST_NOTE],
        whole_number(form.get("sentence")),
        _seconds(form),
    )


def _seconds(form: Mapping[str, str]) -> float | None:
    """Return how long an item was in view: by the browser's clock, or since the page was made; None if unknown.

    A clock that was set meanwhile gives no time rather than a wrong one.
    """
    try:
        taken = float(form["seconds"]) if form.get("seconds") else time.time() - float(form["shown"])
    except (KeyError, ValueError):
        return None
    return round(taken, 2) if math.isfinite(taken) and 0 <= taken < _DAY else None


def _token(form: Mapping[str, str]) -> str:
    token = form.get("token", "")
    if not 8 <= len(token) <= _TOKEN:
        raise R2medError("the form has no token; load the page again")
    return token


def _said(desk: Desk, row: Decision) -> str:
    if row.verdict == SKIPPED:
        return "Skipped; it comes back at the end"
    if row.verdict == UNSURE:
        return "Saved: unsure"
    return f"Saved: {row.grade}, {desk.store.project.scale.grade(row.grade or 0).name}"


def _saved(sitting: Sitting, request: Request) -> str:
    """Return what a plain form sent before this page has saved; empty if there was none."""
    desk, person = sitting
    number = whole_number(request.query_params.get("saved"))
    if number is None:
        return ""
    if person.role == ADJUDICATOR:
        return next((_said_ruling(row) for row in desk.store.rulings().values() if row.id == number), "")
    row = desk.store.kept(person.id, number)
    return _said(desk, row) if row else ""


def _said_ruling(row: Ruling) -> str:
    return f"Saved: {row.grade}, {CAUSES[row.cause].lower()}"


def _undo(sitting: Sitting, request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    desk, person = sitting
    if person.role == ADJUDICATOR:
        ruling = desk.undo_ruling(person, f"undo {_token(form)}")
        place = f"{_place(desk)}/rule/{ruling.item}" if ruling else _place(desk)
        return {"said": "Taken back" if ruling else "There is nothing to take back", "next": place}
    row = desk.undo(person, f"undo {_token(form)}")
    if row is None:
        return {"said": "There is nothing to take back", "next": _place(desk)}
    return {"said": "Taken back", "next": f"{_place(desk)}/item/{row.position}"}


def _reveal(sitting: Sitting, request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    desk, person = sitting
    position = request.path_params["position"]
    desk.reveal(person, position, form.get("what", ""))
    return {"said": "Shown, and recorded", "next": f"{_place(desk)}/item/{position}"}


def _guideline_page(sitting: Sitting, request: Request) -> Page:
    return "reviews/guideline.html", {"scale": sitting[0].store.project.scale}


def _done_page(sitting: Sitting, request: Request) -> Page:
    desk, person = sitting
    skipped = [] if person.role == ADJUDICATOR else desk.dealer.skipped(person)
    values = {"skipped": skipped[:500], "place": _place(desk), "token": secrets.token_urlsafe(12)}
    return "reviews/done.html", {**values, "done": desk.dealer.done(person), "adjudicator": person.role == ADJUDICATOR}


# ---------------------------------------------------------------------------------------------- adjudication


def _ruling_page(sitting: Sitting, request: Request) -> Page:
    desk, person = sitting
    _check_adjudicator(person)
    card: RulingCard = desk.ruling_card(person, request.path_params["item"])
    values = {"card": card, "scale": desk.store.project.scale, "place": _place(desk), "causes": CAUSES}
    values |= {"token": secrets.token_urlsafe(12), "shown": f"{time.time() - 0.001:.3f}"}
    return ("reviews/_rule.html" if request.query_params.get("part") else "reviews/rule.html"), values


def _check_adjudicator(person: Reviewer) -> None:
    if person.role != ADJUDICATOR:
        raise NotAdmitted("adjudication is for whoever was invited to it")


def _reveal_ruling(sitting: Sitting, request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    desk, person = sitting
    _check_adjudicator(person)
    item = request.path_params["item"]
    desk.reveal_ruling(person, item, form.get("what", ""))
    return {"said": "Shown, and recorded", "next": f"{_place(desk)}/rule/{item}"}


def _rule(sitting: Sitting, request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    desk, person = sitting
    _check_adjudicator(person)
    item, grade = request.path_params["item"], whole_number(form.get("say"))
    if grade is None:
        raise R2medError("a ruling needs a grade")
    note = form.get("note", "").strip()[:_LONGEST_NOTE]
    sentence = whole_number(form.get("sentence"))
    cause = form.get("cause", "")
    ruling = Ruling(0, person.id, item, grade, cause, sentence, note, _seconds(form), "")
    kept = desk.rule(ruling, _token(form))
    following = desk.next_ruling(item)
    place = f"{_place(desk)}/rule/{following}" if following else f"{_place(desk)}/done"
    return {"saved": kept.id, "said": _said_ruling(kept), "next": place, "left": desk.open_rulings()}


# ---------------------------------------------------------------------------------------------- the owner


def _list_page(door: ReviewDoor, request: Request) -> Page:
    found, broken = every_progress()
    return "reviews/list.html", {"reviews": found, "broken": broken, "cite": citation("Reviews", "review", "list")}


def _progress_page(door: ReviewDoor, request: Request) -> Page:
    desk, asked = door.desk(request.path_params["name"]), request.query_params
    offer = offer_review(desk.store, asked.get("llm", ""), asked.get("as", ""))
    job = _jobs(request).newest("judge", "review", desk.store.project.name)
    values = {"progress": desk.progress(), "causes": CAUSES, "offer": offer, "job": job}
    name = desk.store.project.name
    return "reviews/progress.html", {**values, "cite": citation(f"Review {name}", "review", "show", name)}


def _items_page(door: ReviewDoor, request: Request) -> Page:
    """Show the items with every grade, note and marked stretch."""
    desk, asked = door.desk(request.path_params["name"]), request.query_params
    store, show, reviewer = desk.store, asked.get("show", ""), asked.get("reviewer", "")
    held = desk.decisions()
    chosen = chosen_items(store, held, show, reviewer)
    last = max(1, math.ceil(len(chosen) / _ITEMS))
    page = min(max(1, whole_number(asked.get("page")) or 1), last)
    rows = item_rows(store, held, chosen[(page - 1) * _ITEMS : page * _ITEMS])
    values = {"name": store.project.name, "scale": store.project.scale, "causes": CAUSES, "rows": rows}
    values |= {"filters": FILTERS, "show": show, "reviewer": reviewer, "reviewers": store.reviewers()}
    return "reviews/items.html", {**values, "total": len(chosen), "items": store.item_count, "page": page, "last": last}


def _judge(door: ReviewDoor, request: Request, form: Mapping[str, str]) -> str:
    return start_review(_jobs(request), door.desk(request.path_params["name"]).store, form).page


def _jobs(request: Request) -> Jobs:
    feed: LiveFeed = request.app.state.feed
    return feed.library.jobs


def _agreement_page(door: ReviewDoor, request: Request) -> Page:
    """Return the page of `r2med review agreement`, with every breakdown.

    A page that waits loads itself again with `of`, the state that it waits for: reviewers who go on deciding meanwhile
    do not keep it waiting.
    """
    name = request.path_params["name"]
    store = door.desk(name).store
    state = store.state()
    wanted = min(state, whole_number(request.query_params.get("of")) or state)
    computed = door.agreements.get(store, wanted)
    if computed is None:
        refresh = {"refresh": f"{_REFRESH}; url={address(request.url.path, of=wanted)}"}
        return "reviews/agreement.html", {"name": name, "computed": None, "headers": refresh}
    if computed.error:
        raise R2medError(computed.error)
    cite = citation(f"Agreement in the review {name}", "review", "agreement", name, "--by", *BREAKDOWNS)
    return "reviews/agreement.html", {"name": name, "computed": computed, "older": computed.state < state, "cite": cite}

"""The live page: cards that change one by one, and the events that tell a browser of each change.

A browser opens one connection for all events; it does not poll. The table of jobs is read while a browser is connected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from r2med.errors import R2medError
from r2med.render.html import Frame, render
from r2med.store.jobs import Work, ended_work, running_work
from r2med.web.addresses import PageContent, whole_number
from r2med.web.citation import Citation
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.requests import Request

_LOOK = 0.5  # seconds between two reads of the table of jobs
_BEAT = 15.0  # seconds after which a heartbeat is sent
_LASTS = 60.0  # seconds after which a browser has to connect again, by itself: access is checked again then
_SHOWN = 10  # finished work, and finished runs, that are listed
_RETRY = 1000  # milliseconds after which a browser that lost its server connects again


@dataclass(frozen=True)
class LiveCard:
    """A part of the page that changes as a whole."""

    name: str
    html: str
    outcome: str = ""  # text for screen readers, read out when it appears


@dataclass
class LiveFeed:
    """The live page of one server."""

    library: Library
    closes: Sequence[Callable[[], None]] = ()  # what ends with the server
    closing: bool = False
    _known: tuple[object, list[LiveCard]] = field(default_factory=lambda: ((), []))

    def cards(self) -> list[LiveCard]:
        """Return all cards from the top to the bottom, rebuilt if something has changed."""
        running, ended = running_work(), ended_work()
        state = (running, ended, self.library.jobs.all(), self.library.version())
        if state != self._known[0]:
            self._known = state, list(_cards(self.library, running, ended))
        return self._known[1]

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the cards that have changed, as server-sent events, for as long as the browser is connected."""
        sent: dict[str, LiveCard] = {}

        def read() -> list[LiveCard]:
            with self.library.snapshot():
                return self.cards()

        yield f"retry: {_RETRY}\n\n".encode()
        last = began = time.monotonic()
        while not self.closing and time.monotonic() - began < _LASTS:
            cards = await run_in_threadpool(read)
            before = {card.name: sent.get(card.name, LiveCard("", "")) for card in cards}
            changed = {card.name: card.html for card in cards if before[card.name].html != card.html}
            if changed or len(sent) != len(cards):
                news = [c.outcome for c in cards if sent and c.outcome and before[c.name].outcome != c.outcome]
                content = {"order": [card.name for card in cards], "cards": changed, "said": " ".join(news)}
                content |= {"jobs": {str(job.number): job.state for job in self.library.jobs.all()}}
                yield b"data: " + orjson.dumps(content) + b"\n\n"
                sent, last = {card.name: card for card in cards}, time.monotonic()
            elif time.monotonic() - last > _BEAT:
                yield b": still here\n\n"
                last = time.monotonic()
            await asyncio.sleep(_LOOK)

    def cancel(self, form: Mapping[str, str]) -> None:
        """Stop a job of this server, or the work of another process."""
        number = whole_number(form.get("job"))
        if number is not None and self.library.jobs.cancel(number):
            return
        work = next((work for work in running_work() if work.name == form.get("work")), None)
        if work is None or not work.stop():
            raise R2medError("this has come to its end already, or is the work of another machine")

    def close(self) -> None:
        """End all connections, and stop all jobs."""
        self.closing = True
        self.library.jobs.close()
        for close in self.closes:
            close()


def _cards(library: Library, works: list[Work], ended: list[Work]) -> list[LiveCard]:
    jobs = [job for job in reversed(library.jobs.all()) if job.active or time.time() - job.ended < 3600]
    by_process = {work.process: work for work in works}
    active = {job.process for job in jobs if job.active}
    cards = []
    for job in jobs:
        outcome = "" if job.active else f"{job.title}: {job.state}."
        cards.append(_card(f"job-{job.number}", "job", outcome, job=job, work=by_process.get(job.process)))
    cards += [_card(f"work-{work.name}", "work", work=work) for work in works if work.process not in active]
    cards = cards or [_card("nothing", "nothing")]
    for work in [work for work in ended if not work.page][:_SHOWN]:
        cards.append(_card(f"ended-{work.name}", "ended", f"{work.command or 'Work'}: {work.summary}.", work=work))
    entries, means = library.entries()[:_SHOWN], library.means()
    scores = {entry.id: means.get(entry.id, {}).get("nDCG@10") for entry in entries}
    return [*cards, _card("runs", "runs", entries=entries, scores=scores)]


def _card(name: str, kind: str, outcome: str = "", **values: Any) -> LiveCard:
    facts = {"entries": [], "scores": {}, "work": None, "job": None, **values}
    tools = {"now": time.time(), "spell": spell_seconds}
    return LiveCard(name, render("web/_live.html", Frame({}), kind=kind, name=name, **tools, **facts), outcome)


def spell_seconds(seconds: float) -> str:
    """Format a time in words, as the page's script does too.

    >>> [spell_seconds(value) for value in (0.4, 59, 61, 3700, 90000)]
    ['0 s', '59 s', '1 min 1 s', '1 h 1 min', '25 h 0 min']
    """
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def progress_page(library: Library, request: Request) -> PageContent:
    """Show what runs right now, and what was finished last."""
    feed: LiveFeed = request.app.state.feed
    return "web/progress.html", {"cite": Citation("In progress"), "cards": [Markup(card.html) for card in feed.cards()]}

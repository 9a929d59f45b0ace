"""The queries of one task or several, by two systems: their scores and causes, which are listed, and in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.diagnosis.attribution import run_causes, run_query_causes
from r2med.diagnosis.causes import Cause, QueryCause
from r2med.runs.ledger import Entry
from r2med.web.addresses import Pages
from r2med.web.library import Library
from r2med.workbench.state import BenchState

LISTED = 40  # queries of a page of the list
_STEPS = 40  # into how many steps each side of the scatter of scores is divided


class BenchRow(NamedTuple):
    """One query of the list."""

    task: str
    query: str
    a: float | None = None
    b: float | None = None
    before: QueryCause | None = None  # its cause in A; None if not diagnosed yet
    after: QueryCause | None = None

    @property
    def gain(self) -> float:
        """Return B minus A; 0 if one of them is not known."""
        return 0.0 if self.a is None or self.b is None else self.b - self.a

    @property
    def winner(self) -> str:
        """Return the better of the two; empty if one is not known."""
        if self.a is None or self.b is None:
            return ""
        return "b" if self.gain > 0 else "a" if self.gain < 0 else "even"

    @property
    def place(self) -> str:
        """Return its place in the scatter of scores, where scores that a drawing would not distinguish share one.

        >>> BenchRow("", "", 0.5, 1.0).place, BenchRow("", "", 0.5001, 0.9999).place
        ('20,40', '20,40')
        """
        return "" if self.a is None or self.b is None else f"{round(_STEPS * self.a)},{round(_STEPS * self.b)}"


def place_scores(place: str) -> tuple[float, float]:
    """Return the scores of a place of the scatter.

    >>> place_scores("20,40")
    (0.5, 1.0)
    """
    a, _, b = place.partition(",")
    return int(a) / _STEPS, int(b) / _STEPS


@dataclass(frozen=True)
class QueryList:
    """Part of the queries that the list shows."""

    rows: Sequence[BenchRow]  # those of the page that is shown
    pages: Pages
    total: int  # how many there are without a filter
    texts: Mapping[tuple[str, str], str]  # the questions of the rows, if the data is local
    previous: BenchRow | None
    following: BenchRow | None
    place: int | None  # where the query that is shown stands, from 1; None where the filter leaves it out


def bench_rows(library: Library, sides: Sequence[tuple[Entry, Entry | None]], measure: str) -> list[BenchRow]:
    """Return all queries of some runs of A and of B beside them, in the order of the data."""
    rows: list[BenchRow] = []
    for one, other in sides:
        left, before = library.query_scores(one, measure), run_query_causes(library, one)
        right, after = (library.query_scores(other, measure), run_query_causes(library, other)) if other else ({}, {})
        rows += [
            BenchRow(one.task, query, left.get(query), right.get(query), before.get(query), after.get(query))
            for query in one.queries
        ]
    return rows


def occurring_causes(library: Library, entries: Sequence[Entry | None]) -> list[str]:
    """Return the causes that occur in some runs, for the choice of filters."""
    diagnoses = [run_causes(library, entry) for entry in entries if entry is not None]
    occurring = {cause for diagnosis in diagnoses if diagnosis is not None for cause in diagnosis.occurring}
    return [cause.value for cause in Cause if cause in occurring]


def query_list(library: Library, rows: Sequence[BenchRow], state: BenchState) -> QueryList:
    """Return the page of queries that an address names, and the neighbours of the query that is shown."""
    matching = [row for row in rows if _matches(library, row, state)]
    if state.sort in _KEYS:
        matching.sort(key=_KEYS[state.sort])
    place = next((n for n, row in enumerate(matching) if (row.task, row.query) == (state.task, state.query)), None)
    asked = int(state.page) if state.page.isascii() and state.page.isdigit() and len(state.page) < 7 else None
    number = asked or (0 if place is None else place) // LISTED + 1
    pages = Pages.of(len(matching), number, LISTED)
    listed = matching[pages.cut(LISTED)]
    texts = {(row.task, row.query): library.query_text(row.task, row.query) for row in listed}
    before = matching[place - 1] if place else None
    rank = None if place is None else place + 1
    after = next(iter(matching[rank or 0 :]), None)
    return QueryList(listed, pages, len(rows), texts, before, after, rank)


def _matches(library: Library, row: BenchRow, state: BenchState) -> bool:
    """Return whether a query passes the filters of an address."""
    if (state.won and row.winner != state.won) or (state.at and row.place != state.at):
        return False
    if (state.before or state.after) and not _moved(row, state.before, state.after):
        return False
    if not state.text:
        return True
    words = f"{row.task}\n{row.query}\n{library.query_text(row.task, row.query)}".casefold()
    return all(word in words for word in state.text.casefold().split())


def _moved(row: BenchRow, before: str, after: str) -> bool:
    """Return whether a relevant document had one cause in A and another in B, of which one may be left open."""
    if row.before is not None and row.after is not None:
        return any(before in ("", a.value) and after in ("", b.value) for a, b in row.before.moves(row.after))
    return has_cause(row.before, before) and has_cause(row.after, after)


def has_cause(causes: QueryCause | None, name: str) -> bool:
    """Return whether one of a query's relevant documents has a cause; without a cause, always."""
    return not name or (causes is not None and any(placed.cause.value == name for placed in causes.positives))


_KEYS: Mapping[str, Callable[[BenchRow], float]] = {
    "lowest": lambda row: 2.0 if row.a is None else row.a,
    "highest": lambda row: 2.0 if row.a is None else -row.a,
    "gained": lambda row: -row.gain,
    "lost": lambda row: row.gain,
}


def is_place(text: str) -> bool:
    """Return whether a text names a place of the scatter of scores.

    >>> is_place("12,30"), is_place("12"), is_place("a,b")
    (True, False, False)
    """
    return re.fullmatch(r"[0-9]{1,3},[0-9]{1,3}", text) is not None

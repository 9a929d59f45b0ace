"""The query workbench: its state, as its address holds it, and the queries of one task or several that it lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from r2med.diagnosis.attribution import run_query_causes
from r2med.diagnosis.causes import Cause, QueryCause
from r2med.pipeline.loaded_runs import HEADLINE
from r2med.render.html import address
from r2med.runs.ledger import Entry
from r2med.web.addresses import Pages, UnknownName, whole_number
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

SIDES = 6  # as many lists fit side by side
DEEP = 100  # as far as lists are shown when one asks for more
LETTERS = "ABCDEF"  # what the lists are called, from the first on
ORDERS: Mapping[str, str] = {
    "given": "as in the data",
    "lowest": "lowest A first",
    "highest": "highest A first",
    "gained": "most gained by B",
    "lost": "most lost by B",
}
WINNERS: Mapping[str, str] = {"b": "B", "a": "A", "even": "neither"}
MIDDLE_TABS: Mapping[str, str] = {"relevant": "Relevant", "written": "Written", "answers": "Answers"}
"""What the middle shows below the question."""
_TABS = ("queries", "question", *MIDDLE_TABS, *map(str, range(1, SIDES + 1)))
_NAMES = {"text": "q", "before": "from", "after": "to", "order": "sort", "hidden": "hide", "systems": ""}
"""Fields that have another name in the address."""
_CHOICES = {"order": "order", "won": "winner", "tab": "tab", "before": "cause", "after": "cause"}
"""Fields that can have a few values only, and what these are."""


@dataclass(frozen=True)
class BenchState:
    """Choices that can be made in the workbench."""

    group: str = ""
    task: str = ""
    query: str = ""
    over: str = ""  # `all` where the list of queries is over all tasks that the systems share; else it is over the task
    systems: tuple[str, ...] = ()  # whose lists are shown, A first: specs, or ids of runs
    measure: str = ""
    text: str = ""
    before: str = ""
    after: str = ""  # only queries with a relevant document of which this became in A, and that in B
    won: str = ""
    at: str = ""  # only queries at one place of the scatter of scores
    order: str = ""
    tab: str = ""
    depth: str = ""
    page: str = ""
    gold: str = ""
    hidden: str = ""  # the numbers of lists that are not shown, with commas

    @classmethod
    def read(cls, asked: QueryParams) -> tuple[BenchState, dict[str, UnknownName]]:
        """Read an address; return the state, and errors for unknown values by field, which are left out."""
        named = (asked.get("a", ""), asked.get("b", ""), *asked.getlist("also"))
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {name: asked.get(_NAMES.get(name, name), "") for name in names}
        values["systems"] = tuple(dict.fromkeys(name for name in named if name))[:SIDES]
        causes = [cause.value for cause in Cause]
        choices = {"order": ORDERS, "won": WINNERS, "tab": _TABS, "before": causes, "after": causes}
        wrong = {}
        for name, what in _CHOICES.items():
            if values[name] and values[name] not in choices[name]:
                wrong[name] = UnknownName(what, values[name], list(choices[name]))
                values[name] = ""
        return cls(**values), wrong

    @property
    def sort(self) -> str:
        """Return the order of the list of queries."""
        return self.order or "given"

    @property
    def deep(self) -> bool:
        """Return whether lists are shown at their full depth."""
        return self.depth == str(DEEP)

    def values(self) -> dict[str, object]:
        """Return the values by their names in the address; defaults are left out."""
        named = {_NAMES.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}
        first, second, *also = (*self.systems, "", "")
        named |= {"a": first, "b": second, "also": [name for name in also if name]}
        named["measure"] = "" if self.measure == str(HEADLINE) else self.measure
        return {name: value for name, value in named.items() if name and value}

    def link(self, **changes: Any) -> str:
        """Return the address of the same with changes, on that page of the list where the query is."""
        return replace(self, **{"page": "", **changes}).address()

    def address(self) -> str:
        """Return the address of just this."""
        return address("/query", **self.values())

    def fields_but(self, *names: str) -> list[tuple[str, str]]:
        """Return what a form has to send along so that only the named values change."""
        kept = {name: value for name, value in self.values().items() if name not in (*names, "page")}
        pairs = [(name, value) for name, value in kept.items() if isinstance(value, str)]
        return [*pairs, *(("also", name) for name in self.systems[2:] if name and "also" in kept)]


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
    queries = [cause for entry in entries if entry for cause in run_query_causes(library, entry).values()]
    occurring = {placed.cause for query in queries for placed in query.positives}
    return [cause.value for cause in Cause if cause in occurring]


def query_list(library: Library, rows: Sequence[BenchRow], state: BenchState) -> QueryList:
    """Return the page of queries that an address names, and the neighbours of the query that is shown."""
    matching = [row for row in rows if _matches(library, row, state)]
    if state.sort in _KEYS:
        matching.sort(key=_KEYS[state.sort])
    place = next((n for n, row in enumerate(matching) if (row.task, row.query) == (state.task, state.query)), None)
    number = whole_number(state.page) or (place or 0) // LISTED + 1
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

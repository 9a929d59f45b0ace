"""Two systems query by query: which won, by how much, and which documents moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from r2med.diagnose.compare import Comparison, compare
from r2med.diagnose.loaded_runs import TOP
from r2med.errors import R2medError
from r2med.render.chart_svg import responsive
from r2med.render.charts import difference_chart
from r2med.runs.ledger import Entry
from r2med.runs.selection import check_same_data
from r2med.web.addresses import PageContent, Pages, one_of, page_number, sort_links
from r2med.web.library import Library

if TYPE_CHECKING:
    from starlette.requests import Request

SORTS = ("b won", "a won", "moved", "task")


@dataclass(frozen=True)
class QueryPair:
    """One query in two runs."""

    task: str
    query: str
    a: float
    b: float
    entered: int
    """Documents that are among B's first 10 and not A's."""
    runs: tuple[str, str]

    @property
    def gain(self) -> float:
        """B minus A."""
        return self.b - self.a


@dataclass(frozen=True)
class Contest:
    """Two systems over the tasks that they share."""

    a: str
    b: str
    group: str
    measure: str
    found: Comparison
    pairs: Sequence[QueryPair]

    def ordered(self, sort: str, task: str = "") -> list[QueryPair]:
        """The queries of all tasks or one, in the order that was asked for."""
        chosen = [pair for pair in self.pairs if task in ("", pair.task)]
        if sort == "task":
            return chosen
        if sort == "moved":
            return sorted(chosen, key=lambda pair: -pair.entered)
        return sorted(chosen, key=lambda pair: pair.gain, reverse=sort != "a won")


def compare_page(library: Library, request: Request) -> PageContent:
    """Two systems: overall, by task, and query by query."""
    asked = request.query_params
    groups = library.groups()
    group = one_of(asked.get("group", "") or (groups[0] if groups else ""), groups or ("",), "group")
    systems, oracles = library.systems(group), library.oracles(group)
    # Whoever changed the group sees its systems, and is not told that those of another group are not there.
    elsewhere = {name for other in groups if other != group for name in library.systems(other)} - set(systems)
    # A board sends the systems that were ticked there, under one name.
    first, second, *_ = (*asked.getlist("system"), "", "")
    wanted = (asked.get("a", "") or first, asked.get("b", "") or second)
    a, b = ("" if name in elsewhere else name for name in wanted)
    values: dict[str, Any] = {
        "group": group, "groups_there": groups, "systems": [name for name in systems if name not in oracles],
        "oracles": oracles, "a": a, "b": b, "found": None,
    }  # fmt: skip
    if not (a and b):
        return "compare.html", values
    for name in (a, b):
        one_of(name, systems, "system")
    found = contest(library, a, b, group)
    links = sort_links(request, "b won")
    task = one_of(asked.get("task", ""), ("", *found.found.tasks), "task")
    pairs = found.ordered(one_of(links.sort, SORTS, "order"), task)
    pages = Pages.of(len(pairs), page_number(asked, "page"))
    shown = pairs[pages.cut()]
    values |= {
        "found": found, "lacking": sorted(library.newest(a, group).keys() ^ library.newest(b, group).keys()),
        "pairs": shown, "pages": pages, "links": links, "task": task, "sorts": SORTS,
        "texts": {(p.task, p.query): library.query_text(p.task, p.query) for p in shown},
        "chart": responsive(difference_chart(found.found, found.measure)),
    }  # fmt: skip
    return "compare.html", values


def contest(library: Library, a: str, b: str, group: str, measure: str = "nDCG@10") -> Contest:
    """Compare the newest runs of two systems."""
    left, right = library.newest(a, group), library.newest(b, group)
    shared = [task for task in left if task in right]
    if a == b or not shared:
        raise R2medError("choose two different systems that were run on the same tasks")
    for task in shared:
        check_same_data((left[task], right[task]))
    keys = tuple(sorted(found[task].key for found in (left, right) for task in shared))

    def make() -> Contest:
        found = compare(library.ledger, [a, b], measure, shared)[0]
        ordered = [task for task in found.tasks if task in shared]
        pairs = [pair for task in ordered for pair in _pairs(library, left[task], right[task], measure)]
        return Contest(a, b, group, measure, found, pairs)

    return library.keep("comparison", (keys, a, b, measure), make)


def _pairs(library: Library, a: Entry, b: Entry, measure: str) -> list[QueryPair]:
    one, other = library.run(a), library.run(b)
    left = dict(zip(a.queries, library.ledger.scores(a)[measure].tolist(), strict=True))
    right = dict(zip(b.queries, library.ledger.scores(b)[measure].tolist(), strict=True))
    pairs = []
    for query in a.queries:
        before = set(one[query].documents[:TOP]) if query in one else set()
        after = set(other[query].documents[:TOP]) if query in other else set()
        pairs.append(QueryPair(a.task, query, left[query], right[query], len(after - before), (a.id, b.id)))
    return pairs

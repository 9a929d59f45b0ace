"""Two systems: is one better, how sure is that, why, and query by query which won and which documents moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from r2med.comparison.charts import difference_chart, pair_scatter, transitions
from r2med.comparison.study import Comparison, compare
from r2med.data.published import published, sources
from r2med.errors import R2medError
from r2med.formatting import p_words
from r2med.measure.metrics import Measure
from r2med.measure.significance import PERMUTATIONS, Difference
from r2med.pipeline.loaded_runs import HEADLINE, TOP
from r2med.render.charts.chart import responsive, single
from r2med.render.scores.model import Board, BoardRow, View, line_labels
from r2med.runs.ledger import Entry
from r2med.runs.selection import check_same_data
from r2med.web.addresses import Correction, PageContent, Pages, UnknownName, one_of, page_number, sort_links
from r2med.web.citation import Citation, citation, options
from r2med.web.library import Library
from r2med.workbench.rows import bench_rows
from r2med.workbench.state import BenchState

if TYPE_CHECKING:
    from starlette.requests import Request

NOT_TESTED = (
    "Published figures come without their queries, so whether a difference is more than chance cannot be tested."
)


@dataclass(frozen=True)
class FigureRow:
    """The figures of two lines on a task, or their averages."""

    task: str
    a: float | None
    b: float | None

    @property
    def gain(self) -> float | None:
        """Return B minus A; None where one of them has no figure."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class FigurePair:
    """Two lines of a board with all their figures."""

    a: BoardRow
    b: BoardRow
    group: str
    measure: str
    rows: Sequence[FigureRow]
    """By task, with the averages last where there are several tasks."""
    cite: Citation

    @property
    def overall(self) -> FigureRow:
        """Return the averages, or the figures of the only task."""
        return self.rows[-1]


def published_lines(board: Board) -> dict[str, BoardRow]:
    """Return the published lines of a board by names of which no two are alike."""
    labels = zip(line_labels(board), board.lines, strict=True)
    return {label: line for label, line in labels if not line.own}


def find_published(lines: Mapping[str, BoardRow], name: str, *, other: str = "") -> str:
    """Return the label of a published line that is meant by a name; empty for none.

    A system that several sources list has one name and several lines: the second of a pair is not the first again.
    """
    if name in lines and name != other:
        return name
    for label, line in lines.items():
        if name in (line.name, f"{line.name} ({', '.join(line.sources)})") and label != other:
            return label
    return ""


def compare_figures(library: Library, group: str, measure: str, a: str, b: str) -> FigurePair:
    """Put two lines of a board side by side, each an own system or the label of a published line."""
    board = library.board(View(group=group, measure=measure))
    lines = published_lines(board)
    own = {line.name: line for line in reversed(board.lines) if line.own}
    one, other = (own.get(name) or lines.get(find_published(lines, name)) for name in (a, b))
    if one is None or other is None:
        raise R2medError(f"{a if one is None else b} has no figure by {measure} here")
    rows = [FigureRow(task, one.value(task), other.value(task)) for task in board.tasks]
    rows += [FigureRow("average", one.average, other.average)] * (len(rows) > 1)
    words = options(("--group", group), ("--measure", measure))
    cite = citation(f"{b} against {a}, {measure}", "board", *words)
    return FigurePair(one, other, group, measure, rows, cite)


_QUERIES = 20
"""Queries of a page: on a phone each takes a third of the screen."""
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

    @property
    def gain(self) -> float:
        """Return B minus A."""
        return self.b - self.a


@dataclass(frozen=True)
class Contest:
    """Two systems over the tasks that they share."""

    a: str
    b: str
    group: str
    measure: str
    found: Comparison
    runs: Sequence[tuple[Entry, Entry]]
    """A's and B's, a pair for each task."""
    pairs: Sequence[QueryPair]

    def ordered(self, sort: str, task: str = "") -> list[QueryPair]:
        """Return the queries of all tasks or one, in a sort order."""
        chosen = [pair for pair in self.pairs if task in ("", pair.task)]
        if sort == "task":
            return chosen
        if sort == "moved":
            return sorted(chosen, key=lambda pair: -pair.entered)
        return sorted(chosen, key=lambda pair: pair.gain, reverse=sort != "a won")

    def task_rows(self) -> list[TaskRow]:
        """Return every task's difference, and the one over all tasks if there are several."""
        corrected = self.found.corrected_tasks
        rows = [TaskRow(task, found, corrected[task]) for task, found in self.found.tasks.items()]
        every = TaskRow("all tasks", self.found.overall, self.found.corrected)
        return [*rows, every] if len(rows) > 1 else rows


@dataclass(frozen=True)
class TaskRow:
    """B minus A on a task."""

    task: str
    found: Difference
    corrected: float
    """The p-value after Holm over all tasks."""

    @property
    def p(self) -> str:
        """Return the p-value, as a bound if it is the smallest that the test can give."""
        return p_words(self.corrected, at_floor=self.found.at_floor).removeprefix("p ").removeprefix("= ")


def compare_page(library: Library, request: Request) -> PageContent:
    """Compare two systems: overall, by task, why, and query by query. Unknown names are reported in the form."""
    asked = request.query_params
    # Groups with something to compare: own runs, or published figures.
    groups = list(dict.fromkeys((*library.groups(), *(source.group for source in sources().values()))))
    wrong: list[Correction] = []
    group = asked.get("group", "") or next(iter(library.groups()), groups[0])
    if group not in groups:
        wrong.append(Correction.of(UnknownName("group", group, groups), "/compare", dict(asked), "group"))
        group = groups[0]
    systems, oracles = library.systems(group), library.oracles(group)
    measure = asked.get("measure", "") or asked.get("metric", "") or str(HEADLINE)
    lines = _published_labels(library, group, measure)
    # Whoever changed the group sees its systems, and is not told that those of another group are not there.
    elsewhere = {name for other in groups if other != group for name in library.systems(other)} - set(systems)
    # A board sends the systems that were ticked there, under one name.
    first, second, *_ = (*asked.getlist("system"), "", "")
    wanted = {"a": asked.get("a", "") or first, "b": asked.get("b", "") or second}
    for side, name in wanted.items():
        other = wanted["a"] if side == "b" else ""
        known = name if name in systems and name != other else find_published(lines, name, other=other) or name
        known = known if known in systems or known in lines else ""
        if name and not known and name not in elsewhere:
            every = [*systems, *lines]
            wrong.append(Correction.of(UnknownName("system", name, every), "/compare", dict(asked), side))
        wanted[side] = known
    values: dict[str, Any] = {
        "group": group, "groups_there": groups, "systems": [name for name in systems if name not in oracles],
        "oracles": oracles, "published": list(lines), **wanted, "found": None, "figures": None, "wrong": wrong,
        "measure": "", "measures": [], "cite": Citation("Compare two systems"), "not_tested": NOT_TESTED,
    }  # fmt: skip
    if wanted["a"] and wanted["b"] and not wrong:
        try:
            if wanted["a"] in systems and wanted["b"] in systems:
                values |= _contest_values(library, request, wanted["a"], wanted["b"], group)
            else:
                values |= _figure_values(library, wanted["a"], wanted["b"], group, measure)
        except UnknownName as error:
            names = {"measure": "measure", "order": "sort", "task": "task"}
            side = next((names[each] for each in names if str(error).startswith(f"no {each}")), "")
            wrong.append(Correction.of(error, "/compare", dict(asked), side))
        except R2medError as error:
            wrong.append(Correction(str(error)))
    return "comparison/compare.html", {**values, "status": 404 if wrong else 200}


def _published_labels(library: Library, group: str, measure: str) -> dict[str, BoardRow]:
    """Return the published lines by one measure, or by the headline where that is not a measure."""
    with suppress(R2medError):
        measure = str(Measure.parse(measure))
        if lines := published_lines(library.board(View(group=group, measure=measure))):
            return lines
    return published_lines(library.board(View(group=group)))


def _figure_values(library: Library, a: str, b: str, group: str, measure: str) -> dict[str, Any]:
    """Return what the page shows of a pair with a published line."""
    every = list(dict.fromkeys((*library.measures(), *(name for each in published() for name in each.figures))))
    measures = []
    for each in every:
        with suppress(R2medError):
            measures.append(compare_figures(library, group, each, a, b).measure)
    found = compare_figures(library, group, one_of(measure, measures, "measure of both systems"), a, b)
    return {"figures": found, "measure": measure, "measures": measures, "cite": found.cite}


def _contest_values(library: Library, request: Request, a: str, b: str, group: str) -> dict[str, Any]:
    asked = request.query_params
    measures = shared_measures(library, a, b, group)
    measure = one_of(
        asked.get("measure", "") or asked.get("metric", "") or str(HEADLINE),
        measures or [str(HEADLINE)],
        "measure of both systems",
    )
    found = contest(library, a, b, group, measure)
    links = sort_links(request, "b won")
    task = asked.get("task", "") and one_of(asked.get("task", ""), list(found.found.tasks), "task")
    pairs = found.ordered(one_of(links.sort, SORTS, "order"), task)
    pages = Pages.of(len(pairs), page_number(asked, "page"), _QUERIES)
    shown = pairs[pages.cut(_QUERIES)]
    runs = [pair for pair in found.runs if task in ("", pair[0].task)]
    bench = BenchState(group=group, task=task, systems=(a, b), measure=measure)
    return {
        "found": found, "lacking": sorted(library.newest(a, group).keys() ^ library.newest(b, group).keys()),
        "pairs": shown, "pages": pages, "links": links, "task": task, "sorts": SORTS, "flips": PERMUTATIONS,
        "texts": {(p.task, p.query): library.query_text(p.task, p.query) for p in shown},
        "chart": responsive(difference_chart(found.found, found.measure)),
        "why": transitions(library, runs), "bench": bench,
        "scatter": _scatter(library, runs, bench),
        "measure": measure, "measures": measures, "cite": _citation(found, task),
    }  # fmt: skip


def _citation(found: Contest, task: str) -> Citation:
    """Return the command that compares the same two systems on the same tasks."""
    tasks = [task] if task else list(found.found.tasks)
    metric = options(("--measure", "" if found.measure == str(HEADLINE) else found.measure))
    return citation(f"{found.b} against {found.a}", "compare", found.a, found.b, "--tasks", *tasks, *metric)


def _scatter(library: Library, runs: Sequence[tuple[Entry, Entry]], bench: BenchState) -> Markup:
    """Draw the scatter of all queries, once for the same runs."""

    def make() -> Markup:
        rows = bench_rows(library, runs, bench.measure)
        return single(pair_scatter(rows, bench.systems[0], bench.systems[1], bench.measure, bench.link))

    return library.keep("scatter", (tuple((a.key, a.created, b.key, b.created) for a, b in runs), bench), make)


def shared_measures(library: Library, a: str, b: str, group: str) -> list[str]:
    """Return the measures by which both systems were measured on every task that they share."""
    left, right, means = library.newest(a, group), library.newest(b, group), library.means()
    runs = [found[task].id for task in left if task in right for found in (left, right)]
    return [measure for measure in library.measures() if all(measure in means.get(run, {}) for run in runs)]


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
        runs = [(left[task], right[task]) for task in found.tasks if task in shared]
        pairs = [pair for one, other in runs for pair in _pairs(library, one, other, measure)]
        return Contest(a, b, group, measure, found, runs, pairs)

    return library.keep("comparison", (keys, a, b, measure), make)


def _pairs(library: Library, a: Entry, b: Entry, measure: str) -> list[QueryPair]:
    one, other = library.run(a), library.run(b)
    left, right = library.query_scores(a, measure), library.query_scores(b, measure)
    pairs = []
    for query in a.queries:
        before = set(one[query].documents[:TOP]) if query in one else set()
        after = set(other[query].documents[:TOP]) if query in other else set()
        pairs.append(QueryPair(a.task, query, left[query], right[query], len(after - before)))
    return pairs

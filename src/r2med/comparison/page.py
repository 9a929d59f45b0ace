"""Two systems: is one better, how sure is that, why, and query by query which won and which documents moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request

from r2med.comparison.charts import difference_chart, pair_scatter, transitions
from r2med.comparison.study import Comparison, compare, p_after_holm
from r2med.data.published import published, sources
from r2med.errors import R2medError
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
from r2med.workbench.bench import BenchRow, BenchState, bench_rows

NOT_TESTED = (
    "Published figures come without their queries, so whether a difference is more than chance cannot be tested."
)


class FigureRow(NamedTuple):
    """The figures of two lines on a task, or their averages."""

    task: str
    a: float | None
    b: float | None

    @property
    def gain(self) -> float | None:
        """Return B minus A; None where one of them has no figure."""
        return None if self.a is None or self.b is None else self.b - self.a


class FigurePair(NamedTuple):
    """Two lines of a board with all their figures."""

    a: BoardRow
    b: BoardRow
    rows: Sequence[FigureRow]  # by task, with the averages last where there are several tasks


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
    labels = (
        label
        for label, line in lines.items()
        if label != other and name in (line.name, f"{line.name} ({', '.join(line.sources)})")
    )
    return next(labels, "")


def compare_figures(library: Library, group: str, measure: str, a: str, b: str) -> FigurePair:
    """Put two lines of a board side by side, each an own system or the label of a published line."""
    board = library.board(View(group=group, measure=measure))
    lines = published_lines(board)
    local = {line.name: line for line in reversed(board.lines) if line.own}
    one, other = (local.get(name) or lines.get(find_published(lines, name)) for name in (a, b))
    if one is None or other is None:
        raise R2medError(f"{a if one is None else b} has no figure by {measure} here")
    rows = [FigureRow(task, one.value(task), other.value(task)) for task in board.tasks]
    rows += [FigureRow("average", one.average, other.average)] * (len(rows) > 1)
    return FigurePair(one, other, rows)


_QUERIES = 20  # queries of a page: on a phone each takes a third of the screen
SORTS = ("b won", "a won", "moved", "task")


class Contest(NamedTuple):
    """Two systems over the tasks that they share."""

    comparison: Comparison
    runs: Sequence[tuple[Entry, Entry]]  # A's and B's, a pair for each task
    queries: Sequence[BenchRow]
    entered: Mapping[tuple[str, str], int]
    """By task and query, how many documents are among B's first 10 and not A's."""

    def ordered(self, sort: str, task: str = "") -> list[BenchRow]:
        """Return the queries of all tasks or one, in a sort order."""
        rows = [row for row in self.queries if task in ("", row.task)]
        if sort == "task":
            return rows
        if sort == "moved":
            return sorted(rows, key=lambda row: -self.entered[row.task, row.query])
        return sorted(rows, key=lambda row: row.gain, reverse=sort != "a won")


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
    sides = {"a": asked.get("a", "") or first, "b": asked.get("b", "") or second}
    for side, name in sides.items():
        other = sides["a"] if side == "b" else ""
        label = name if name in systems and name != other else find_published(lines, name, other=other) or name
        sides[side] = label if label in systems or label in lines else ""
        if name and not sides[side] and name not in elsewhere:
            error = UnknownName("system", name, [*systems, *lines])
            wrong.append(Correction.of(error, "/compare", dict(asked), side))
    values: dict[str, Any] = {
        "group": group, "groups_there": groups, "systems": [name for name in systems if name not in oracles],
        "oracles": oracles, "published": list(lines), **sides, "found": None, "figures": None, "wrong": wrong,
        "measure": "", "measures": [], "cite": Citation("Compare two systems"), "not_tested": NOT_TESTED,
    }  # fmt: skip
    if sides["a"] and sides["b"] and not wrong:
        try:
            if sides["a"] in systems and sides["b"] in systems:
                values |= _contest_values(library, request, sides["a"], sides["b"], group)
            else:
                values |= _figure_values(library, sides["a"], sides["b"], group, measure)
        except UnknownName as error:
            names = {"measure": "measure", "order": "sort", "task": "task"}
            field = next((field for name, field in names.items() if str(error).startswith(f"no {name}")), "")
            wrong.append(Correction.of(error, "/compare", dict(asked), field))
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
    measures = []
    for name in dict.fromkeys((*library.measures(), *(name for system in published() for name in system.figures))):
        with suppress(R2medError):
            compare_figures(library, group, name, a, b)
            measures.append(name)
    figures = compare_figures(library, group, one_of(measure, measures, "measure of both systems"), a, b)
    words = options(("--group", group), ("--measure", measure))
    cite = citation(f"{b} against {a}, {measure}", "board", *words)
    return {"figures": figures, "measure": measure, "measures": measures, "cite": cite}


def _contest_values(library: Library, request: Request, a: str, b: str, group: str) -> dict[str, Any]:
    asked, headline = request.query_params, str(HEADLINE)
    measures = shared_measures(library, a, b, group)
    measure = asked.get("measure", "") or asked.get("metric", "") or headline
    measure = one_of(measure, measures or [headline], "measure of both systems")
    both = contest(library, a, b, group, measure)
    comparison, links = both.comparison, sort_links(request, "b won")
    task = asked.get("task", "") and one_of(asked.get("task", ""), list(comparison.tasks), "task")
    pairs = both.ordered(one_of(links.sort, SORTS, "order"), task)
    pages = Pages.of(len(pairs), page_number(asked, "page"), _QUERIES)
    pairs = pairs[pages.cut(_QUERIES)]
    runs = [pair for pair in both.runs if task in ("", pair[0].task)]
    bench = BenchState(group=group, task=task, systems=(a, b), measure=measure)

    def draw() -> Markup:
        return single(pair_scatter(both.ordered("task", task), a, b, measure, bench.link))

    scatter = library.keep("scatter", (tuple((a.key, a.created, b.key, b.created) for a, b in runs), bench), draw)
    tasks = [task] if task else list(comparison.tasks)
    metric = options(("--measure", "" if measure == headline else measure))
    return {
        "found": comparison, "task_rows": task_rows(comparison),
        "lacking": sorted(library.newest(a, group).keys() ^ library.newest(b, group).keys()),
        "pairs": pairs, "entered": both.entered, "pages": pages, "links": links, "task": task, "sorts": SORTS,
        "texts": {(p.task, p.query): library.query_text(p.task, p.query) for p in pairs}, "flips": PERMUTATIONS,
        "chart": responsive(difference_chart(comparison, measure)), "why": transitions(library, runs),
        "bench": bench, "scatter": scatter, "measure": measure, "measures": measures,
        "cite": citation(f"{b} against {a}", "compare", a, b, "--tasks", *tasks, *metric),
    }  # fmt: skip


def task_rows(comparison: Comparison) -> list[tuple[str, Difference, str]]:
    """Return every task's difference with its p-value, and those over all tasks if there are several."""
    p_values = comparison.corrected_tasks
    rows = [(task, change, p_after_holm(change, p_values[task])) for task, change in comparison.tasks.items()]
    overall = comparison.overall
    return rows + [("all tasks", overall, p_after_holm(overall, comparison.corrected))] * (len(rows) > 1)


def shared_measures(library: Library, a: str, b: str, group: str) -> list[str]:
    """Return the measures by which both systems were measured on every task that they share."""
    left, right, means = library.newest(a, group), library.newest(b, group), library.means()
    runs = [entries[task].id for task in left if task in right for entries in (left, right)]
    return [measure for measure in library.measures() if all(measure in means.get(run, {}) for run in runs)]


def contest(library: Library, a: str, b: str, group: str, measure: str) -> Contest:
    """Compare the newest runs of two systems."""
    left, right = library.newest(a, group), library.newest(b, group)
    shared = [task for task in left if task in right]
    if a == b or not shared:
        raise R2medError("choose two different systems that were run on the same tasks")
    for task in shared:
        check_same_data((left[task], right[task]))
    keys = tuple(sorted(runs[task].key for runs in (left, right) for task in shared))

    def make() -> Contest:
        comparison = compare(library.ledger, [a, b], measure, shared)[0]
        runs = [(left[task], right[task]) for task in comparison.tasks if task in shared]
        return Contest(comparison, runs, bench_rows(library, runs, measure), _entered(library, runs))

    return library.keep("comparison", (keys, a, b, measure), make)


def _entered(library: Library, runs: Sequence[tuple[Entry, Entry]]) -> dict[tuple[str, str], int]:
    """Count the documents of each query that are among B's first and not A's."""
    counts = {}
    for a, b in runs:
        one, other = library.run(a), library.run(b)
        for query in a.queries:
            before, after = (set(run[query].documents[:TOP]) if query in run else set() for run in (one, other))
            counts[a.task, query] = len(after - before)
    return counts

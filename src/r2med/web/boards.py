"""A board as a page shows it: sorted by a column, cut into pages, with intervals for what is shown.

Why systems fail, as pages show it: shares of causes by system or by task, and the cause of each query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from r2med.board.model import AVERAGE, Board, Line
from r2med.diagnose.attribution import diagnose
from r2med.diagnose.causes import Cause, Diagnosis, mean_shares
from r2med.diagnose.frontier import COSTS, Priced, bill, left_out
from r2med.errors import R2medError
from r2med.render.board_table import BoardTable, board_table
from r2med.render.chart_svg import responsive, small
from r2med.render.charts import DotChart, cause_chart, frontier_chart, heat_map, line_point

if TYPE_CHECKING:
    from markupsafe import Markup

    from r2med.measure.bootstrap import Interval
    from r2med.runs.ledger import Entry
    from r2med.web.jobs import Job, Told
    from r2med.web.library import Library


SIZE = 50
"""Lines of a page."""
_CHARTED = 30
"""Lines that a chart has room for."""


@dataclass(frozen=True)
class Panel:
    """A chart with what it shows in words."""

    title: str
    note: str
    chart: Markup
    name: str = ""
    """The anchor."""


@dataclass(frozen=True)
class Pages:
    """Which part of a long list is shown."""

    number: int
    count: int
    total: int

    @classmethod
    def of(cls, total: int, wanted: int, size: int = SIZE) -> Pages:
        """The page with a number, or the nearest that there is.

        >>> Pages.of(101, 9)
        Pages(number=3, count=3, total=101)
        """
        count = max(1, -(-total // size))
        return cls(min(max(1, wanted), count), count, total)

    def cut(self, size: int = SIZE) -> slice:
        """The places of the page."""
        return slice((self.number - 1) * size, self.number * size)


@dataclass(frozen=True)
class Hrefs:
    """Where the names on a board lead; None where they lead nowhere."""

    own: Callable[[str], str]
    published: Callable[[str, str], str] | None = None
    source: Callable[[str], str] | None = None


@dataclass(frozen=True)
class SortedTable:
    """A board's table as a page shows it: sorted by a column, with intervals as drawings."""

    table: BoardTable
    sort: str
    bars: Mapping[str, Markup]
    """The average's interval as a drawing, by a system's name."""

    @property
    def board(self) -> Board:
        """The board that it is of."""
        return self.table.board

    @property
    def has_costs(self) -> bool:
        """Whether there is any cost to show."""
        return any(row.line.row.cost is not None for row in self.table.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The average first, which a phone shows without scrolling, then the tasks; a single task is its own."""
        return (AVERAGE, *self.board.tasks) if len(self.board.tasks) > 1 else tuple(self.board.tasks)


def ordered(lines: Sequence[Line], sort: str, *, descending: bool = True) -> list[Line]:
    """Lines by a column (`rank` for the board's own order, `name`, or a task); lines without a figure come last."""
    if sort == "rank":
        return list(lines) if descending else list(reversed(lines))
    if sort == "name":
        return sorted(lines, key=lambda line: line.row.name.casefold(), reverse=not descending)
    column = AVERAGE if sort == "average" else sort
    have = [(value, line) for line in lines if (value := line.value(column)) is not None]
    have.sort(key=lambda pair: -pair[0] if descending else pair[0])
    return [line for _, line in have] + [line for line in lines if line.value(column) is None]


def containing(lines: Sequence[Line], text: str) -> list[Line]:
    """The lines in whose name, parts or sources every word of a text occurs."""
    wanted = text.casefold().split()
    return [line for line in lines if all(word in _words(line) for word in wanted)]


def _words(line: Line) -> str:
    row = line.row
    parts = (row.name, row.system, row.parts.kind, *row.parts.retrievers, *row.parts.llms, *row.parts.rerankers)
    return "\n".join((*parts, *row.sources)).casefold()


def decorated(lines: Sequence[Line], found: Mapping[str, Mapping[str, Interval]]) -> list[Line]:
    """The lines with their intervals."""
    return [
        replace(line, intervals=found[line.row.name]) if line.row.own and line.row.name in found else line
        for line in lines
    ]


def sorted_table(board: Board, lines: Sequence[Line], sort: str = "rank") -> SortedTable:
    """The table of some lines of a board, in their order; the best figures are those of the whole board."""
    # A ceiling would press all systems into a corner of the scale.
    known = {
        line.row.name: line.intervals[AVERAGE] for line in lines if AVERAGE in line.intervals and not line.row.oracle
    }
    low, high = (
        min((each.low for each in known.values()), default=0.0),
        max((each.high for each in known.values()), default=1.0),
    )
    bars = {name: small(found, low, high) for name, found in known.items()}
    return SortedTable(board_table(board, lines, average="Average"), sort, bars)


def board_panels(board: Board, lines: Sequence[Line]) -> list[Panel]:
    """The charts of the lines that are shown: averages with intervals, and the heat map."""
    shown = lines[:_CHARTED]
    systems = [line for line in shown if not line.row.oracle] or shown
    averages = [point for line in systems if (point := line_point(line, AVERAGE)) is not None]
    panels = []
    if averages:
        first = f"the first {len(averages)}" if len(shown) < len(lines) else f"{len(averages)} systems"
        over = f"mean over {len(board.tasks)} tasks" if len(board.tasks) > 1 else board.tasks[0]
        note = f"{board.measure} × 100, {over}, {first}. Discs are own runs with 95% intervals, diamonds are "
        note += f"published figures{'; oracles are left out' if len(systems) < len(shown) else ''}."
        chart = DotChart("Averages with 95% intervals", f"{board.measure} x 100, {over}", averages)
        panels.append(Panel("Averages", note, responsive(chart), "averages"))
    if shown and len(board.tasks) > 1:
        first = f"the first {len(shown)}" if len(shown) < len(lines) else f"{len(shown)} systems"
        note = f"{board.measure} × 100, {first}; the stronger the colour, the better within a column."
        panels.append(Panel("Systems × tasks", note, responsive(heat_map(board, shown)), "heat"))
    return panels


def task_panels(board: Board, lines: Sequence[Line]) -> list[Panel]:
    """A chart for each task."""
    panels = []
    for task in board.tasks:
        found = [point for line in lines if (point := line_point(line, task)) is not None]
        best = sorted(found, key=lambda point: -point.value)[:_CHARTED]
        if best:
            chart = DotChart(f"{board.measure} on {task}", f"{board.measure} x 100", best)
            panels.append(Panel(task, "", responsive(chart)))
    return panels


def frontier_panels(runs: Mapping[str, Mapping[str, Entry]], lines: Sequence[Line], measure: str) -> list[Panel]:
    """Score against cost, for every way of counting in which own systems differ."""
    whole = [line for line in lines if line.row.own and line.average is not None and line.row.name in runs]
    priced = [
        Priced(line.row.name, line.average or 0.0, bill(list(runs[line.row.name].values())), line.row.oracle)
        for line in whole[:_CHARTED]
    ]
    panels = []
    for by, unit in COSTS.items():
        chart = frontier_chart(priced, by, measure)
        if chart is not None and len({point.x for point in chart.points}) > 1:
            note = f"{measure} × 100 against {unit}. Filled: nothing better for as little. {left_out(priced, by)}"
            panels.append(Panel(f"Cost in {by}", note, responsive(chart), f"cost-{by}"))
    return panels


_TITLE, _ANCHOR = "Causes of failure", "causes"


def panels(found: Mapping[str, Sequence[Diagnosis]]) -> list[Panel]:
    """The causes of several systems, each over the same tasks."""
    shares = {system: mean_shares(diagnoses, "documents") for system, diagnoses in found.items()}
    return _panels(shares, "averaged over queries and tasks")


def cause_panels(found: Sequence[Diagnosis]) -> list[Panel]:
    """The causes of one system, task by task."""
    shares = {each.task: each.shares("documents") for each in found}
    return _panels(shares, "averaged over queries")


def _panels(shares: Mapping[str, Mapping[Cause, float]], averaged: str) -> list[Panel]:
    if not shares:
        return []
    used = [cause for cause in Cause if any(row.get(cause) for row in shares.values())]
    meanings = " ".join(f"{cause.value.capitalize()}: {cause.meaning}." for cause in used)
    note = f"What became of the relevant documents, % {averaged}. {meanings}"
    return [Panel(_TITLE, note, responsive(cause_chart(shares, f"% of relevant documents, {averaged}")), _ANCHOR)]


def known(library: Library, runs: Mapping[str, Mapping[str, Entry]]) -> dict[str, list[Diagnosis]]:
    """The systems whose causes are known on every task."""
    made = {system: [library.causes(entry) for entry in by_task.values()] for system, by_task in runs.items()}
    whole = {system: [each for each in found if each is not None] for system, found in made.items()}
    return {system: found for system, found in whole.items() if found and len(found) == len(made[system])}


def start(library: Library, system: str, group: str, page: str) -> Job:
    """Have a system's newest runs diagnosed. Searches with gold answers, whose runs go to the ledger as oracles."""
    runs = library.newest(system, group)
    if not runs:
        raise R2medError(f"no run of {system!r} in the group {group!r}")
    if not any(library.has_data(task) for task in runs):
        raise R2medError(f"the data on which {system!r} was run is not on this machine")

    def work(told: Told) -> None:
        for place, entry in enumerate(runs.values()):
            told(place, len(runs))
            opened = library.opened(entry)
            if opened is None:
                raise R2medError(f"the data of {entry.task} is not on this machine, or has changed since the run")
            diagnose(opened, library.ledger)

    return library.jobs.submit(("causes", system, group), f"Causes of failure of {system} ({group})", page, work)

"""A board's table as a page shows it: families of tasks side by side, shades, intervals, ties and differences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from r2med.data.tasks import AVERAGE, registry
from r2med.exchange.submissions import Accepted
from r2med.formatting import percent, percent_range, signed
from r2med.leaderboard.board import FAMILY, Families, families_of, figure_of
from r2med.measure.figure import Figure
from r2med.render.charts.drawing import ChartPoint, hint, system_point, tag, whisker, words
from r2med.render.charts.scale import Scale, span, tick_text
from r2med.render.scores.model import (
    FIRST_STAGE,
    OTHER_DATA,
    SUBMITTED,
    TOKENS,
    Board,
    BoardRow,
    BoardTable,
    Leaders,
    TableCell,
    board_table,
    leaders,
    leaders_of,
)

SHADES = 5
"""Steps of shading, weak enough for the figures on them to be read."""


@dataclass(frozen=True)
class Hrefs:
    """Links of the names on a board; None for names without a link."""

    own: Callable[[str], str]
    published: Callable[[str, str], str] | None = None
    source: Callable[[str], str] | None = None
    submission: Callable[[str], Accepted | None] = lambda line: None


class PageColumn(NamedTuple):
    """A column of figures."""

    name: str  # a task, the average's name, or a family's with `FAMILY` before it
    heading: str
    meaning: str = ""
    family: str = ""  # the title of the family above it; empty for none

    @property
    def sort(self) -> str:
        """Return the name of the column in a URL."""
        return self.name or "average"


class PageRow(NamedTuple):
    """A system as it stands in the table, its figures as markup."""

    row: BoardRow
    first: Markup
    rest: Markup
    difference: str  # from the baseline, where there is one


@dataclass(frozen=True)
class Standings:
    """Places of figures within their columns, over a whole board."""

    leaders: Mapping[str, Leaders]
    orders: Mapping[str, Sequence[float]]
    """Every figure of a column from low to high, each once; ceilings and figures of other data left out."""

    @classmethod
    def of(cls, board: Board) -> Standings:
        """Build the standings of a board, those of its families included."""
        families = families_of(board.tasks)
        best, orders = dict(leaders(board)), {}
        for column in (*board.columns, *(FAMILY + name for name in families)):
            rows = [row for row in board.lines if not row.oracle and not _mixed(row, column, families)]
            orders[column] = sorted({v for row in rows if (v := figure_of(row, column, families)) is not None})
            if column not in best:
                best[column] = leaders_of(orders[column])
        return cls(best, orders)

    def shade(self, column: str, value: float) -> int:
        """Return the step of a figure by its place among the others, so that an outlier does not flatten the rest."""
        order = self.orders[column]
        if len(order) < 2:
            return SHADES // 2
        return min(SHADES - 1, SHADES * bisect_left(order, value) // (len(order) - 1))


@dataclass(frozen=True)
class SortedTable:
    """A board's table as a page shows it, sorted by a column."""

    table: BoardTable
    sort: str
    bars: IntervalColumn  # the average's interval as a drawing, by a system's name, and their scale
    columns: Sequence[PageColumn]
    rows: Sequence[PageRow]
    ties: str  # the ranks of the systems that the best own one does not beat, such as `1-3`; empty for none
    best_own: str
    has_costs: bool
    costs_stated: bool  # whether the costs are statements of submitters
    has_differences: bool  # whether there is a baseline from which lines differ

    @property
    def board(self) -> Board:
        """Return the board of the table."""
        return self.table.board

    @property
    def details(self) -> list[str]:
        """Return the columns of words beside the figures; first stages and tokens are tags of the names."""
        return [heading for heading in self.board.details if heading not in (FIRST_STAGE, TOKENS)]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """Return the families above the columns and how many columns each has; nothing if all tasks are of one."""
        families = groupby(column.family for column in self.columns)
        return [(family, len(list(columns))) for family, columns in families if family]


def page_columns(table: BoardTable) -> list[PageColumn]:
    """Return the average first, which a phone shows without scrolling, then the tasks, family by family."""
    board, families = table.board, families_of(table.board.tasks)
    columns = [PageColumn(AVERAGE, table.headings[AVERAGE])] if AVERAGE in table.headings else []
    if not families:
        return columns + [PageColumn(task, table.headings[task], task) for task in board.tasks]
    for name, tasks in families.items():
        title = registry()[tasks[0]].family_title
        columns += [PageColumn(task, table.headings[task], task, title) for task in tasks]
        if len(tasks) > 1:
            columns.append(PageColumn(FAMILY + name, "Mean", f"Mean over {title}", title))
    return columns


def _mixed(line: BoardRow, column: str, families: Families) -> bool:
    if not column.startswith(FAMILY):
        return line.saw_other_data(column)
    return any(line.saw_other_data(task) for task in families[column.removeprefix(FAMILY)])


def sorted_table(
    board: Board, lines: Sequence[BoardRow], sort: str = "rank", standings: Standings | None = None
) -> SortedTable:
    """Build the table of some lines of a board, in their order; standings are those of the whole board."""
    standings, families = standings or Standings.of(board), families_of(board.tasks)
    table = board_table(board, lines, average="Average", best=standings.leaders)
    columns = page_columns(table)
    baseline = next((line.average for line in board.lines if line.own and line.name == board.baseline), None)
    rows = []
    for line in table.rows:
        cells = table.cells(line)
        texts = [_write_cell(line, cells.get(column.name), column.name, standings, families) for column in columns]
        change = "" if baseline is None or line.average is None else signed(line.average - baseline)
        rows.append(PageRow(line, Markup("".join(texts[:1])), Markup("".join(texts[1:])), change))
    # A ceiling would press all systems into a corner of the scale.
    ranges = {line.name: line.intervals[AVERAGE] for line in lines if AVERAGE in line.intervals and not line.oracle}
    tied = sorted((line.rank, line.name) for line in board.lines if line.tied and line.rank is not None)
    ties, best = (f"{tied[0][0]}\N{EN DASH}{tied[-1][0]}", tied[0][1]) if len(tied) > 1 else ("", "")
    return SortedTable(
        table,
        sort,
        interval_column(ranges),
        columns,
        rows,
        ties,
        best,
        has_costs=any(line.cost is not None for line in lines),
        costs_stated=any(SUBMITTED in line.sources for line in lines),
        has_differences=any(row.difference for row in rows),
    )


def _write_cell(line: BoardRow, cell: TableCell | None, name: str, standings: Standings, families: Families) -> str:
    """Write a cell of a page; many times faster than by a template, and only its text needs escaping."""
    value, mixed = figure_of(line, name, families), _mixed(line, name, families)
    plain = value is not None and not mixed and not line.oracle
    css = ["n"] + ["avg"] * (not name) + ["other"] * (mixed and value is not None)
    css += [f"s{standings.shade(name, value)}"] if plain and value is not None else []
    if cell is None:
        digits = percent(value)
        place, text = standings.leaders[name].get(digits, ""), digits + OTHER_DATA * (mixed and value is not None)
        css += ["mean"] + [place] * (plain and bool(place))
    else:
        text = cell.text + cell.mark
        css += [cell.place] * bool(cell.place)
    return f'<td class="{" ".join(css)}" data-v="{"" if value is None else value}">{escape(text)}</td>'


_COLUMN = (120, 18)  # width and height of a drawing in a column of a table


@dataclass(frozen=True)
class IntervalColumn:
    """Figures as a column of a table has room for them: one scale, drawn once in the head."""

    head: Markup
    cells: Mapping[str, Markup]
    ends: Mapping[str, float]  # the lower ends, by which the column is sorted


def interval_column(intervals: Mapping[str, Figure]) -> IntervalColumn:
    """Draw intervals by name on one scale, in percent."""
    ends = [100 * end for interval in intervals.values() for end in interval.ends]
    scale = Scale(*span(ends, from_zero=False), 12, _COLUMN[0] - 12)
    ticks = scale.ticks()
    # As many ticks as have room for their figures.
    widths = [7.0 * len(tick_text(tick)) for tick in ticks]
    room = 5 + max(((one + other) / 2 for one, other in pairwise(widths)), default=0.0)
    ticks = ticks[:: next((n for n in range(1, len(ticks)) if scale(ticks[n]) - scale(ticks[0]) >= room), len(ticks))]
    lines = "".join(f"M{scale(tick):.1f} 0V{_COLUMN[1]}" for tick in ticks)
    back = tag("path", d=lines, class_="grid")
    marks = [
        words(scale(tick), 10, tick_text(tick), class_="tick", text_anchor="middle")
        + tag("line", x1=scale(tick), x2=scale(tick), y1=13, y2=_COLUMN[1], class_="grid")
        for tick in ticks
    ]
    head = _mini(f"scale from {tick_text(ticks[0])} to {tick_text(ticks[-1])}" if marks else "scale", *marks)
    cells = {}
    for name, interval in intervals.items():
        title = f"95% interval {percent_range(interval)}"
        mark = whisker(system_point("", interval.value, interval), scale, _COLUMN[1] / 2, 3.2)
        cells[name] = _mini(title, hint(title), back, mark)
    return IntervalColumn(head, cells, {name: interval.ends[0] for name, interval in intervals.items()})


def _mini(label: str, *parts: str) -> Markup:
    box = f"0 0 {_COLUMN[0]} {_COLUMN[1]}"
    return Markup(tag("svg", *parts, class_="mini", viewBox=box, role="img", aria_label=label))


def line_point(line: BoardRow, column: str, name: str = "") -> ChartPoint | None:
    """Return the mark of a board's line in one column; None if it has no figure."""
    value = line.value(column)
    if value is None:
        return None
    return system_point(name or line.name, value, line.intervals.get(column), own=line.own, oracle=line.oracle)


def with_queries(lines: Sequence[BoardRow]) -> list[BoardRow]:
    """Return the lines whose queries are known on every task, so that their average has an interval."""
    return [line for line in lines if line.own and line.average is not None]


def decorated(
    lines: Sequence[BoardRow], ranges: Mapping[str, Mapping[str, Figure]], tied: Collection[str] = ()
) -> list[BoardRow]:
    """Add intervals to local lines, and mark those that the best of them does not beat."""
    return [
        replace(line, intervals=ranges.get(line.name, line.intervals), tied=line.tied or line.name in tied)
        if line.own
        else line
        for line in lines
    ]

"""A board's table as a page shows it: sorted by a column, cut into pages, with intervals for what is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from r2med.board.model import AVERAGE, Board, Line
from r2med.measure.bootstrap import Interval
from r2med.render.board_table import BoardTable, board_table
from r2med.render.chart_svg import IntervalColumn, interval_column


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
    bars: IntervalColumn
    """The average's interval as a drawing, by a system's name, and their scale."""

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


def sorted_table(board: Board, lines: Sequence[Line], sort: str = "rank") -> SortedTable:
    """The table of some lines of a board, in their order; the best figures are those of the whole board."""
    # A ceiling would press all systems into a corner of the scale.
    known = {
        line.row.name: line.intervals[AVERAGE] for line in lines if AVERAGE in line.intervals and not line.row.oracle
    }
    return SortedTable(board_table(board, lines, average="Average"), sort, interval_column(known))


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

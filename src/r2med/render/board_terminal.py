"""Boards and evaluations on a terminal: one's own systems marked, best figures bold, notes below."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.text import Text

from r2med.board.model import Board
from r2med.board.report_rows import Shown, boards_from_report
from r2med.data.task_names import GROUP_NOTES
from r2med.render.board_table import BEST, NONE, BoardTable, TableCell, TableRow, board_table
from r2med.render.consoles import room, say, written_to
from r2med.render.grid import Cell, Column, Figure, Table, key, numbers
from r2med.runs.report import Report, failure_lines

if TYPE_CHECKING:
    from rich.console import Console

OWN_MARK = "▸"
"""Before the name of a system that was measured here."""


_NARROW = 110
"""Below this many columns sources stand with the names, and beside published figures only averages have intervals."""


def show_board(board: Board, console: Console) -> None:
    """Print the board and what a reader must know about it."""
    table = board_table(board)
    _show(table, console)
    for note in table.notes:
        console.print(note, style="dim")


def show_report(report: Report, console: Console, measures: Sequence[str] = (), shown: Shown | None = None) -> None:
    """Print one table a group and measure, then what a reader must know about them."""
    for group in report.groups:
        boards = [board for board in boards_from_report(report, measures, shown) if board.group == group]
        for board in boards:
            _show(board_table(board), console)
        if boards and group in GROUP_NOTES:
            console.print(GROUP_NOTES[group], style="dim")
    _footnotes(report, console)


def as_text(report: Report) -> str:
    """The tables of an evaluation as plain text."""
    buffer = StringIO()
    show_report(report, written_to(buffer))
    return buffer.getvalue().rstrip()


def _show(table: BoardTable, console: Console) -> None:
    """Print the title and the table."""
    console.print(table.title, style="bold")
    width = room(console)
    _grid(table, narrow=width is not None and width < _NARROW).show(console)


def _grid(table: BoardTable, *, narrow: bool) -> Table:
    columns = [Column("#", right=True, key=True)] * table.has_ranks
    columns.append(key("system"))
    columns += [Column("source")] * (table.has_sources and not narrow)
    columns += numbers(*table.headings.values(), *table.cost_headings)
    grid = Table(*columns)
    for row in table.rows:
        head = _head(table, row, narrow=narrow)
        cost = [row.cost[heading] for heading in table.cost_headings]
        grid.add(*head, *map(_figure, row.cells.values()), *cost, style="cyan" if row.own_among_others else "")
        if row.line.intervals:
            some = table.columns[-1:] if narrow and table.has_sources else table.columns
            spread = [cell.interval if column in some else "" for column, cell in row.cells.items()]
            grid.add(*[""] * len(head), *spread, *[""] * len(cost), style="dim")
    return grid


def _head(table: BoardTable, row: TableRow, *, narrow: bool) -> list[Cell]:
    """The rank, the name and the sources of a row."""
    cells: list[Cell] = [row.rank or NONE] * table.has_ranks
    if not table.has_sources:
        return [*cells, row.label]
    name = f"{OWN_MARK} {row.label}" if row.own_among_others else row.label
    sources = "+".join(row.sources)
    return [*cells, Text.assemble(name, " ", (sources, "dim"))] if narrow else [*cells, name, sources]


def _figure(cell: TableCell) -> Figure:
    return Figure(cell.text + cell.mark, cell.short + cell.mark, "bold" if cell.place == BEST else "")


def _footnotes(report: Report, console: Console) -> None:
    for system in report.systems:
        lost = [result for result in report.results if result.system == system and result.incomplete]
        reasons = [reason for result in lost for reason in result.incomplete.values()]
        if reasons:
            say(console, f"* {system}: {_incomplete(reasons)}")
    warnings: dict[str, list[str]] = {}
    for result in report.results:
        for sentence in result.warnings:
            warnings.setdefault(f"{report.names[result.task]}: {sentence}", []).append(result.system)
    for sentence, systems in warnings.items():
        whose = "" if set(systems) == set(report.systems) else f" ({', '.join(dict.fromkeys(systems))})"
        say(console, f"warning: {sentence}{whose}", "yellow")
    for line in failure_lines(report.failures, report.names):
        say(console, line, "red")


def _incomplete(reasons: Sequence[str]) -> str:
    """How many queries are incomplete, and why the first of them is.

    >>> _incomplete(["not in exp.tsv"]), _incomplete(["empty answer", "timed out"])
    ('1 query incomplete (not in exp.tsv)', '2 queries incomplete (empty answer, ...)')
    """
    more = ", ..." if len(set(reasons)) > 1 else ""
    return f"{len(reasons)} {'query' if len(reasons) == 1 else 'queries'} incomplete ({reasons[0]}{more})"

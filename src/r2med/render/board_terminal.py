"""Boards and evaluations on a terminal: one's own systems marked, best figures bold, notes below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from r2med.board.model import AVERAGE, GROUP_NOTES, Board, Line
from r2med.board.report_rows import Shown, boards_from_report
from r2med.render.board_table import (
    Leaders,
    cost_of,
    figure,
    has_ranks,
    has_sources,
    interval,
    label,
    leaders,
    task_headings,
)
from r2med.render.board_text import notes, title
from r2med.render.consoles import room, say, written_to
from r2med.render.grid import Cell, Column, Figure, Table, key, numbers
from r2med.runs.cost import COST_HEADINGS
from r2med.runs.report import Report, failure_lines

if TYPE_CHECKING:
    from rich.console import Console

OWN_MARK = "▸"
"""Before the name of a system that was measured here."""


_NARROW = 110
"""Below this many columns sources stand with the names, and beside published figures only averages have intervals."""


def show_board(board: Board, console: Console) -> None:
    """Print the board and what a reader must know about it."""
    console.print(title(board), style="bold")
    _terminal_table(board, console).show(console)
    for note in notes(board):
        console.print(note, style="dim")


def show_report(report: Report, console: Console, measures: Sequence[str] = (), shown: Shown | None = None) -> None:
    """Print one table a group and measure, then what a reader must know about them."""
    for group in report.groups:
        boards = [board for board in boards_from_report(report, measures, shown) if board.group == group]
        for board in boards:
            console.print(title(board), style="bold")
            _terminal_table(board, console).show(console)
        if boards and group in GROUP_NOTES:
            console.print(GROUP_NOTES[group], style="dim")
    _footnotes(report, console)


def as_text(report: Report) -> str:
    """The tables of an evaluation as plain text."""
    buffer = StringIO()
    show_report(report, written_to(buffer))
    return buffer.getvalue().rstrip()


def _terminal_table(board: Board, console: Console) -> Table:
    width = room(console)
    narrow = width is not None and width < _NARROW
    columns = [Column("#", right=True, key=True)] * has_ranks(board)
    columns.append(key("system"))
    columns += [Column("source")] * (has_sources(board) and not narrow)
    heads = [*task_headings(board.tasks).values(), *["avg"] * (AVERAGE in board.columns)]
    columns += numbers(*heads, *(COST_HEADINGS if board.cost else ()))
    best = leaders(board)
    table = Table(*columns)
    for line in board.lines:
        head = _head(board, line, narrow=narrow)
        mixed = line.row.own and has_sources(board)
        table.add(*head, *_figures(board, line, best), style="cyan" if mixed else "")
        if line.intervals:
            some = board.columns[-1:] if narrow and has_sources(board) else board.columns
            spread = [interval(line, column) if column in some else "" for column in board.columns]
            blanks = [""] * (len(columns) - len(head) - len(spread))
            table.add(*[""] * len(head), *spread, *blanks, style="dim")
    return table


def _head(board: Board, line: Line, *, narrow: bool) -> list[Cell]:
    """The rank, the name and the sources of a line."""
    from rich.text import Text

    cells: list[Cell] = ["-" if line.rank is None else str(line.rank)] * has_ranks(board)
    if not has_sources(board):
        return [*cells, label(line)]
    name = f"{OWN_MARK} {label(line)}" if line.row.own else label(line)
    sources = "+".join(line.row.sources)
    return [*cells, Text.assemble(name, " ", (sources, "dim"))] if narrow else [*cells, name, sources]


def _figures(board: Board, line: Line, best: Mapping[str, Leaders]) -> list[Cell]:
    cells: list[Cell] = []
    for column in board.columns:
        leads = not line.row.oracle and figure(line, column) == best[column].best
        wide, narrow = (figure(line, column, digits) + line.marks.get(column, "") for digits in (2, 1))
        cells.append(Figure(wide, narrow, "bold" if leads else ""))
    return cells + (list[Cell](cost_of(line)) if board.cost else [])


def _footnotes(report: Report, console: Console) -> None:
    for system in report.systems:
        lost = [result for result in report.results if result.system == system and result.incomplete]
        reasons = [reason for result in lost for reason in result.incomplete.values()]
        if reasons:
            say(console, f"* {system}: {_incomplete(reasons)}")
    warnings: dict[str, list[str]] = {}
    for result in report.results:
        for sentence in result.warnings:
            warnings.setdefault(f"{result.task}: {sentence}", []).append(result.system)
    for sentence, systems in warnings.items():
        whose = "" if set(systems) == set(report.systems) else f" ({', '.join(dict.fromkeys(systems))})"
        say(console, f"warning: {sentence}{whose}", "yellow")
    for line in failure_lines(report.failures):
        say(console, line, "red")


def _incomplete(reasons: Sequence[str]) -> str:
    """How many queries are incomplete, and why the first of them is.

    >>> _incomplete(["not in exp.tsv"]), _incomplete(["empty answer", "timed out"])
    ('1 query incomplete (not in exp.tsv)', '2 queries incomplete (empty answer, ...)')
    """
    more = ", ..." if len(set(reasons)) > 1 else ""
    return f"{len(reasons)} {'query' if len(reasons) == 1 else 'queries'} incomplete ({reasons[0]}{more})"

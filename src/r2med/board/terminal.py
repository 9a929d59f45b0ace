"""A board on a terminal: one's own systems marked, best figures bold, notes below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from r2med.board.cells import Leaders, cost_of, figure, has_ranks, has_sources, interval, label, leaders
from r2med.board.formats import notes, title
from r2med.board.grid import Column, Row, grid
from r2med.board.model import AVERAGE, Board, Line
from r2med.board.table import task_headings
from r2med.store.cost import COST_HEADINGS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

OWN_MARK = "▸"
"""Before the name of a system that was measured here."""


_NARROW = 110
"""Below this many columns figures have one digit, sources stand with the names, and only averages have intervals."""


def show_board(board: Board, console: Console) -> None:
    """Print the board and what a reader must know about it."""
    console.print(title(board), style="bold", highlight=False)
    console.print(_table(board, console), soft_wrap=True)
    for note in notes(board):
        console.print(note, style="dim", markup=False, highlight=False)


def _table(board: Board, console: Console) -> Text:
    narrow = console.width < _NARROW
    columns = [Column("#", right=True)] * has_ranks(board)
    columns.append(Column("system", folds=True))
    columns += [Column("source")] * (has_sources(board) and not narrow)
    columns += [Column(heading, right=True) for heading in task_headings(board.tasks).values()]
    columns += [Column(name, right=True) for name in ("avg", *(COST_HEADINGS if board.cost else ()))]
    best = leaders(board)
    rows = []
    for line in board.lines:
        head = _head(board, line, narrow=narrow)
        mixed = line.row.own and has_sources(board)
        rows.append(Row([*head, *_figures(board, line, best, 1 if narrow else 2)], "cyan" if mixed else ""))
        if line.intervals:
            shown = ["" if narrow and column != AVERAGE else interval(line, column) for column in board.columns]
            blanks = [""] * (len(columns) - len(head) - len(shown))
            rows.append(Row([*[""] * len(head), *shown, *blanks], "dim"))
    return grid(columns, rows, console)


def _head(board: Board, line: Line, *, narrow: bool) -> list[str]:
    """The rank, the name and the sources of a line."""
    from rich.markup import escape

    cells = ["-" if line.rank is None else str(line.rank)] * has_ranks(board)
    if not has_sources(board):
        return [*cells, escape(label(line))]
    name = escape(f"{OWN_MARK} {label(line)}" if line.row.own else label(line))
    sources = "+".join(line.row.sources)
    return [*cells, f"{name} [dim]{sources}[/dim]"] if narrow else [*cells, name, sources]


def _figures(board: Board, line: Line, best: Mapping[str, Leaders], digits: int) -> list[str]:
    cells = []
    for column in board.columns:
        leads = not line.row.oracle and figure(line, column) == best[column].best
        text = figure(line, column, digits)
        cells.append((f"[bold]{text}[/bold]" if leads else text) + line.marks.get(column, ""))
    return cells + (cost_of(line) if board.cost else [])

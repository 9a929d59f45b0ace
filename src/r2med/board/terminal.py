"""A board on a terminal: one's own systems marked, best figures bold, notes below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from r2med.board.cells import (
    Leaders,
    cost_of,
    figure,
    has_ranks,
    has_sources,
    interval,
    label,
    leaders,
)
from r2med.board.formats import notes, title
from r2med.board.model import AVERAGE, Board, Line
from r2med.board.table import COST_HEADINGS, task_heading

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OWN_MARK = "▸"
"""Before the name of a system that was measured here."""


_NARROW = 110
"""Below this many columns figures have one digit, sources stand with the names, and only averages have intervals."""


def show_board(board: Board, console: Console) -> None:
    """Print the board and what a reader must know about it."""
    console.print(title(board), style="bold", highlight=False)
    console.print(_table(board, narrow=console.width < _NARROW))
    for note in notes(board):
        console.print(note, style="dim", markup=False, highlight=False)


def _table(board: Board, *, narrow: bool) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    if has_ranks(board):
        table.add_column("#", justify="right", no_wrap=True)
    table.add_column("system", overflow="fold")
    if has_sources(board) and not narrow:
        table.add_column("source", no_wrap=True)
    for name in (*(task_heading(task) for task in board.tasks), "avg", *(COST_HEADINGS if board.cost else ())):
        table.add_column(name, justify="right", no_wrap=True)
    best = leaders(board)
    for line in board.lines:
        mixed = line.row.own and has_sources(board)
        table.add_row(
            *_head(board, line, narrow=narrow),
            *_figures(board, line, best, 1 if narrow else 2),
            style="cyan" if mixed else None,
        )
        if line.intervals:
            blanks = [""] * len(_head(board, line, narrow=narrow))
            shown = ["" if narrow and column != AVERAGE else interval(line, column) for column in board.columns]
            table.add_row(*blanks, *(f"[dim]{text}[/dim]" for text in shown))
    return table


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

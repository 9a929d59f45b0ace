"""Boards on a terminal: one's own systems marked, best figures bold, notes below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from r2med.board.model import Board
from r2med.render.board_table import BEST, NONE, BoardTable, TableCell, TableRow, board_table
from r2med.render.consoles import room
from r2med.render.grid import Cell, Column, Figure, Table, key, numbers

if TYPE_CHECKING:
    from rich.console import Console

OWN_MARK = "▸"
"""Before the name of a system that was measured here."""


_NARROW = 110
"""Below this many columns sources stand with the names, and beside published figures only averages have intervals."""


def show_board(board: Board, console: Console) -> None:
    """Print the board and what a reader must know about it."""
    table = board_table(board)
    show_table(table, console)
    for note in table.notes:
        console.print(note, style="dim")


def show_table(table: BoardTable, console: Console) -> None:
    """Print the title and the table."""
    console.print(table.title, style="bold")
    width = room(console)
    _grid(table, narrow=width is not None and width < _NARROW).show(console)


def _grid(table: BoardTable, *, narrow: bool) -> Table:
    columns = [Column("#", right=True, key=True)] * table.has_ranks
    columns.append(key("system"))
    columns += [Column("source")] * (table.has_sources and not narrow)
    columns += [Column(heading) for heading in table.detail_headings]
    columns += numbers(*table.headings.values(), *table.cost_headings)
    grid = Table(*columns)
    for row in table.rows:
        head = [*_head(table, row, narrow=narrow), *(row.details[heading] for heading in table.detail_headings)]
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
    return [*cells, Text.assemble(name, " ", (f"· {sources}", "dim"))] if narrow else [*cells, name, sources]


def _figure(cell: TableCell) -> Figure:
    return Figure(cell.text + cell.mark, cell.short + cell.mark, "bold" if cell.place == BEST else "")

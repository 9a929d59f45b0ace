"""A table of hundreds of lines for a terminal, laid out in one go.

It looks as rich's tables do, of which one that size takes longer to lay out than a board takes to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LEAST = 12
"""A column that gives way stays this wide."""


class Column(NamedTuple):
    """A column's heading and how its cells stand."""

    heading: str
    right: bool = False
    folds: bool = False
    """Whether its cells go over several lines where the terminal is too narrow; one column at most does."""


class Row(NamedTuple):
    """A line of cells in rich's markup, and the style of all of it."""

    cells: Sequence[str]
    style: str = ""


def grid(columns: Sequence[Column], rows: Sequence[Row], console: Console) -> Text:
    """The whole table as one text."""
    from rich.text import Text

    made = [[_text(cell) for cell in row.cells] for row in rows]
    heads = [Text(column.heading, "bold") for column in columns]
    widths = _widths(columns, [heads, *made], console.width)
    table = Text("\n", no_wrap=True, overflow="ignore", end="")
    _add(table, columns, heads, widths, "")
    table.append(f" {'─' * (sum(widths) + 2 * len(widths) - 2)} \n")
    for row, cells in zip(rows, made, strict=True):
        for line in _lines(columns, cells, widths, console):
            _add(table, columns, line, widths, row.style)
    return table


def _text(cell: str) -> Text:
    from rich.text import Text

    return Text.from_markup(cell) if "[" in cell else Text(cell)


def _widths(columns: Sequence[Column], lines: Sequence[Sequence[Text]], width: int) -> list[int]:
    """As wide as the widest cell, but for the column that gives way."""
    widths = [max(cell.cell_len for cell in cells) for cells in zip(*lines, strict=True)]
    beyond = sum(widths) + 2 * len(widths) - width
    for place, column in enumerate(columns):
        if column.folds and beyond > 0:
            widths[place] = max(min(_LEAST, widths[place]), widths[place] - beyond)
    return widths


def _lines(
    columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int], console: Console
) -> list[list[Text]]:
    """A row as the lines it takes."""
    from rich.text import Text

    for place, column in enumerate(columns):
        if column.folds and cells[place].cell_len > widths[place]:
            first, *more = cells[place].wrap(console, widths[place], overflow="fold")
            blanks = [Text()] * len(cells)
            parts = [part[len(part.plain) - len(part.plain.lstrip()) :] for part in more]
            rest = [[*blanks[:place], part, *blanks[place + 1 :]] for part in parts]
            return [[*cells[:place], first, *cells[place + 1 :]], *rest]
    return [list(cells)]


def _add(table: Text, columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int], style: str) -> None:
    start = len(table)
    for column, cell, width in zip(columns, cells, widths, strict=True):
        blank = " " * (width - cell.cell_len)
        table.append(f" {blank}" if column.right else " ").append_text(cell)
        table.append(" " if column.right else f"{blank} ")
    if style:
        table.stylize_before(style, start)
    table.append("\n")

"""Boards as text: on a terminal, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING

import orjson
from rich.text import Text

from r2med.data.task_names import task_names
from r2med.render.scores.latex import latex
from r2med.render.scores.model import Board, Line
from r2med.render.scores.table import BEST, NONE, SECOND, BoardTable, TableCell, TableRow, board_table
from r2med.render.table import Cell, Column, Number, Table, key, numbers, room

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
    """Return the rank, the name and the sources of a row."""
    cells: list[Cell] = [row.rank or NONE] * table.has_ranks
    if not table.has_sources:
        return [*cells, row.label]
    name = f"{OWN_MARK} {row.label}" if row.own_among_others else row.label
    sources = "+".join(row.sources)
    return [*cells, Text.assemble(name, " ", (f"· {sources}", "dim"))] if narrow else [*cells, name, sources]


def _figure(cell: TableCell) -> Number:
    return Number(cell.text + cell.mark, cell.short + cell.mark, "bold" if cell.place == BEST else "")


_COST_FACTS = ("requests", "prompt_tokens", "completion_tokens", "reasoning_tokens", "dollars", "seconds_per_query")


def markdown(board: Board) -> str:
    """Write a table for a README or an issue: best in bold, second underlined, notes below."""
    table = board_table(board)
    heads = ["rank"] * table.has_ranks + ["system"] + ["source"] * table.has_sources + list(table.detail_headings)
    numbers = [*table.headings.values(), *table.cost_headings]
    lines = [
        f"**{table.title}**",
        "",
        _pipes([*heads, *numbers]),
        _pipes([*("---" for _ in heads), *("---:" for _ in numbers)]),
        *(_pipes(_markdown_cells(table, row)) for row in table.rows),
        "",
        *(f"- {_plain(note)}" for note in table.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Escape the signs that have a meaning in a Markdown table."""
    for sign in ("\\", "|", "*", "_", "<", "`"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _markdown_cells(table: BoardTable, row: TableRow) -> list[str]:
    name = _plain(row.label)
    return [
        *[row.rank or NONE] * table.has_ranks,
        f"**{name}**" if row.own_among_others else name,
        *[", ".join(row.sources)] * table.has_sources,
        *(row.details[heading] for heading in table.detail_headings),
        *map(_markdown_figure, row.cells.values()),
        *(row.cost[heading] for heading in table.cost_headings),
    ]


def _markdown_figure(cell: TableCell) -> str:
    text = {BEST: f"**{cell.text}**", SECOND: f"<u>{cell.text}</u>"}.get(cell.place, cell.text) + cell.mark
    return f"{text} <sub>{cell.interval}</sub>" if cell.interval else text


def as_csv(boards: Sequence[Board]) -> str:
    """Write a line per system, figures as shares of 1 with all their digits, one header for all boards."""
    tasks = task_names(task for board in boards for task in board.tasks)
    ranges = any(line.intervals for board in boards for line in board.lines)
    cost = any(board.cost for board in boards)
    header = ["group", "measure", "rank", "system", "spec", "sources", "kind", *tasks.values(), "average", "incomplete"]
    header += ["other_data", "first_stage", "max_query", "max_document", "apart"]
    marked = any(board.baseline for board in boards)
    header += ["low", "high"] * ranges + list(_COST_FACTS) * cost + ["significance"] * marked
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for board in boards:
        for line in board.lines:
            cells = _csv_cells(board, line, tasks, ranges=ranges, cost=cost)
            writer.writerow(cells + [_csv_marks(line, tasks)] * marked)
    return stream.getvalue()


def _csv_cells(board: Board, line: Line, tasks: Mapping[str, str], *, ranges: bool, cost: bool) -> list[object]:
    row = line.row
    cells: list[object] = [board.group, board.measure, line.rank, row.name, row.system, "+".join(row.sources)]
    cells += [row.parts.kind, *(row.values.get(task) for task in tasks), line.average, row.incomplete]
    cells += [
        "+".join(tasks[task] for task in row.other_data),
        row.first_stage,
        row.max_query,
        row.max_document,
        line.apart or None,
    ]
    found = line.intervals.get("")
    cells += ([found.low, found.high] if found else [None, None]) * ranges
    facts = row.cost.as_dict() if row.cost is not None else {}
    return cells + [facts.get(name) for name in _COST_FACTS] * cost


def _csv_marks(line: Line, tasks: Mapping[str, str]) -> str:
    """List where a system differs from the baseline, as in `Biology=†; average=†`."""
    return "; ".join(f"{tasks.get(task, task) or 'average'}={mark}" for task, mark in line.marks.items())


def as_json(boards: Sequence[Board]) -> str:
    """Write one object for one board, a list for several."""
    content = [board.as_dict() for board in boards]
    text = orjson.dumps(content[0] if len(content) == 1 else content, option=orjson.OPT_INDENT_2)
    return text.decode("utf-8") + "\n"


def _each(function: Callable[[Board], str]) -> Callable[[Sequence[Board]], str]:
    return lambda boards: "\n".join(map(function, boards))


FORMATS: Mapping[str, Callable[[Sequence[Board]], str]] = {
    "md": _each(markdown),
    "latex": _each(latex),
    "csv": as_csv,
    "json": as_json,
}
"""Every format by its name; the terminal's is in `board_terminal`."""

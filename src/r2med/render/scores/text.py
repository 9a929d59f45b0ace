"""Boards as text: on a terminal, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING

import orjson
from rich.text import Text

from r2med.data.task_names import task_names
from r2med.data.tasks import AVERAGE
from r2med.render.scores.latex import latex
from r2med.render.scores.model import BEST, CONTAMINATION, NONE, RANKS, SECOND, Board, BoardRow, BoardTable, board_table
from r2med.render.sections import escape_markdown
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
    board, width = table.board, room(console)
    narrow = width is not None and width < _NARROW
    columns = [Column("#", right=True, key=True)] * table.has_ranks
    columns.append(key("system"))
    columns += [Column("source")] * (table.has_sources and not narrow)
    columns += map(Column, board.details)
    grid = Table(*columns, *numbers(*table.headings.values(), *table.cost_headings))
    for row in table.rows:
        own, cells, sources = table.is_own_among_others(row), table.cells(row), "+".join(row.sources)
        name = f"{OWN_MARK} {row.label}" if own else row.label
        head: list[Cell] = [str(row.rank or NONE)] * table.has_ranks
        if table.has_sources and narrow:
            head.append(Text.assemble(name, " ", (f"· {sources}", "dim")))
        else:
            head += [name, sources] if table.has_sources else [name]
        head += [row.details[heading] for heading in board.details]
        figures = [
            Number(cell.text + cell.mark, cell.short + cell.mark, "bold" if cell.place == BEST else "")
            for cell in cells.values()
        ]
        cost = [row.cost_cells[heading] for heading in table.cost_headings]
        grid.add(*head, *figures, *cost, style="cyan" if own else "")
        if row.intervals:
            some = board.columns[-1:] if narrow and table.has_sources else board.columns
            spread = [cell.interval if column in some else "" for column, cell in cells.items()]
            grid.add(*[""] * len(head), *spread, *[""] * len(cost), style="dim")
    grid.show(console)


def tables_html(boards: Sequence[Board], notes: Sequence[str] = ()) -> str:
    """Write boards as tables of HTML for a notebook, then their notes and others."""
    from r2med.render.html import environment

    tables = [board_table(board) for board in boards]
    every = [*dict.fromkeys(note for table in tables for note in table.notes), *notes]
    return environment().get_template("render/notebook.html").render(tables=tables, notes=every)


_COST_FACTS = ("requests", "prompt_tokens", "completion_tokens", "reasoning_tokens", "dollars", "seconds_per_query")


def markdown(board: Board) -> str:
    """Write a table for a README or an issue: best in bold, second underlined, notes below."""
    table = board_table(board)
    heads = ["rank"] * table.has_ranks + ["system"] + ["source"] * table.has_sources + list(table.board.details)
    numbers = [*table.headings.values(), *table.cost_headings]
    rows = [[*heads, *numbers], ["---"] * len(heads) + ["---:"] * len(numbers)]
    rows += [_markdown_cells(table, row) for row in table.rows]
    notes = [f"- {escape_markdown(note)}" for note in table.notes]
    lines = [f"**{table.title}**", "", *(f"| {' | '.join(row)} |" for row in rows), "", *notes]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_cells(table: BoardTable, row: BoardRow) -> list[str]:
    name = escape_markdown(row.label)
    figures = []
    for cell in table.cells(row).values():
        text = {BEST: f"**{cell.text}**", SECOND: f"<u>{cell.text}</u>"}.get(cell.place, cell.text) + cell.mark
        figures.append(f"{text} <sub>{cell.interval}</sub>" if cell.interval else text)
    return [
        *[str(row.rank or NONE)] * table.has_ranks,
        f"**{name}**" if table.is_own_among_others(row) else name,
        *[", ".join(row.sources)] * table.has_sources,
        *(row.details[heading] for heading in table.board.details),
        *figures,
        *(row.cost_cells[heading] for heading in table.cost_headings),
    ]


def as_csv(boards: Sequence[Board]) -> str:
    """Write a line per system, figures as shares of 1 with all their digits, one header for all boards."""
    tasks = task_names(task for board in boards for task in board.tasks)
    ranges = any(row.intervals for board in boards for row in board.lines)
    cost = any(board.cost for board in boards)
    header = ["group", "measure", "rank", "system", "spec", "sources", "kind", *tasks.values(), "average", "incomplete"]
    header += ["other_data", "first_stage", "max_query", "max_document", "apart"]
    marked = any(board.baseline for board in boards)
    with_ranks = any(RANKS in board.details for board in boards)
    header += ["rank_low", "rank_high", "ranked_among", "ranks_by", "above_next"] * with_ranks
    with_facts = any(CONTAMINATION in board.details for board in boards)
    header += [CONTAMINATION] * with_facts
    header += ["low", "high"] * ranges + list(_COST_FACTS) * cost + ["significance"] * marked
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for board in boards:
        for row in board.lines:
            cells: list[object] = [board.group, board.measure, row.rank, row.name, row.system, "+".join(row.sources)]
            cells += [row.parts.kind, *(row.values.get(task) for task in tasks), row.average, row.incomplete]
            cells += ["+".join(tasks[task] for task in row.other_data), row.first_stage]
            cells += [row.max_query, row.max_document, row.apart or None]
            cells += row.ranks.cells if row.ranks else [None] * 5 * with_ranks
            cells += [row.details[CONTAMINATION]] * with_facts
            cells += (row.intervals[AVERAGE].ends if AVERAGE in row.intervals else (None, None)) * ranges
            facts = row.cost.as_dict() if row.cost is not None else {}
            cells += [facts.get(name) for name in _COST_FACTS] * cost
            # Where a system differs from the baseline, as in `Biology=†; average=†`.
            marks = (f"{tasks.get(task, task) or 'average'}={mark}" for task, mark in row.marks.items())
            writer.writerow(cells + ["; ".join(marks)] * marked)
    return stream.getvalue()


def as_json(boards: Sequence[Board]) -> str:
    """Write one object for one board, a list for several."""
    content = [board.as_dict() for board in boards]
    text = orjson.dumps(content[0] if len(content) == 1 else content, option=orjson.OPT_INDENT_2)
    return text.decode("utf-8") + "\n"


FORMATS: Mapping[str, Callable[[Sequence[Board]], str]] = {
    "md": lambda boards: "\n".join(map(markdown, boards)),
    "latex": lambda boards: "\n".join(map(latex, boards)),
    "csv": as_csv,
    "json": as_json,
}
"""Every format by its name; `show_board` writes the terminal's."""

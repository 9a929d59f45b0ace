"""Boards and reports as HTML, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.render.html import environment
from r2med.render.scores.model import Board
from r2med.render.scores.table import board_table
from r2med.runs.report import Report, failure_lines

if TYPE_CHECKING:
    pass
from r2med.render.scores.report import boards_from_report


def board_html(board: Board) -> str:
    """Render a board as a table of HTML with its notes."""
    table = board_table(board)
    return environment().get_template("render/notebook.html").render(tables=[table], notes=table.notes)


def report_html(report: Report) -> str:
    """Render the tables of an evaluation as HTML, then what failed."""
    tables = [board_table(board) for board in boards_from_report(report, report.headline)]
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    return (
        environment()
        .get_template("render/notebook.html")
        .render(tables=tables, notes=[*notes, *failure_lines(report.failures)])
    )

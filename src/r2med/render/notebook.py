"""Results as a notebook shows them: tables of HTML, every text escaped."""

from __future__ import annotations

from io import StringIO

from r2med.board.model import Board
from r2med.board.report_rows import boards_from_report
from r2med.render.board_table import board_table
from r2med.render.board_terminal import show_board
from r2med.render.consoles import written_to
from r2med.render.html import environment
from r2med.render.report_text import as_text
from r2med.runs.report import Report, failure_lines
from r2med.runs.viewable import HTML, TEXT, show_as


def board_text(board: Board) -> str:
    """A board as plain text."""
    buffer = StringIO()
    show_board(board, written_to(buffer))
    return buffer.getvalue().rstrip()


def board_html(board: Board) -> str:
    """A board as a table of HTML with its notes."""
    table = board_table(board)
    return environment().get_template("notebook.html").render(tables=[table], notes=table.notes)


def report_html(report: Report) -> str:
    """The tables of an evaluation as HTML, then what failed."""
    tables = [board_table(board) for board in boards_from_report(report)]
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    return (
        environment()
        .get_template("notebook.html")
        .render(tables=tables, notes=[*notes, *failure_lines(report.failures)])
    )


def set_views() -> None:
    """Have reports and boards shown as tables, printed or in a notebook."""
    show_as(TEXT, Report, as_text)
    show_as(HTML, Report, report_html)
    show_as(TEXT, Board, board_text)
    show_as(HTML, Board, board_html)

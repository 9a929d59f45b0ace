"""Results as a notebook shows them: tables of HTML, every text escaped."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Any

from r2med.board.model import Board
from r2med.board.report_rows import boards_from_report
from r2med.diagnose.causes import Diagnosis
from r2med.diagnose.compare import Comparison
from r2med.diagnose.tuning import Tuned
from r2med.rag.rag_report import RagReport
from r2med.render.board_table import board_table
from r2med.render.board_terminal import show_board
from r2med.render.comparison_tables import comparison_sections
from r2med.render.consoles import written_to
from r2med.render.diagnosis_tables import show_causes
from r2med.render.html import environment
from r2med.render.rag_tables import show_rag
from r2med.render.report_text import as_text
from r2med.render.saving_tables import show_tuned
from r2med.render.sections import show_sections
from r2med.runs.report import Report, failure_lines
from r2med.runs.viewable import HTML, TEXT, show_as

if TYPE_CHECKING:
    from rich.console import Console


def board_text(board: Board) -> str:
    """A board as plain text."""
    return _printed(show_board, board)


def board_html(board: Board) -> str:
    """A board as a table of HTML with its notes."""
    table = board_table(board)
    return environment().get_template("notebook.html").render(tables=[table], notes=table.notes)


def report_html(report: Report) -> str:
    """The tables of an evaluation as HTML, then what failed."""
    tables = [board_table(board) for board in boards_from_report(report, report.headline)]
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
    show_as(TEXT, Comparison, lambda pair: _printed(show_sections, comparison_sections([pair], pair.measure)))
    show_as(TEXT, Diagnosis, lambda causes: _printed(show_causes, [causes]))
    show_as(TEXT, RagReport, lambda report: _printed(show_rag, report))
    show_as(TEXT, Tuned, lambda tuned: _printed(show_tuned, tuned))


def _printed(show: Callable[[Any, Console], None], value: Any) -> str:
    """Return what a function prints, as plain text."""
    buffer = StringIO()
    show(value, written_to(buffer))
    return buffer.getvalue().rstrip()

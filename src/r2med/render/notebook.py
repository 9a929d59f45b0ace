"""Results as a notebook shows them: tables of HTML, every text escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
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

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.runs.viewable import Viewable


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


def _printed(show: Callable[[Any, Console], None], value: Any) -> str:
    """Return what a function prints, as plain text."""
    buffer = StringIO()
    show(value, written_to(buffer))
    return buffer.getvalue().rstrip()


_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Report: as_text,
    Board: board_text,
    Comparison: lambda pair: _printed(show_sections, comparison_sections([pair], pair.measure)),
    Diagnosis: lambda causes: _printed(show_causes, [causes]),
    RagReport: lambda report: _printed(show_rag, report),
    Tuned: lambda tuned: _printed(show_tuned, tuned),
}
_PAGES: Mapping[type, Callable[[Any], str]] = {Report: report_html, Board: board_html}


def as_plain_text(value: Viewable) -> str:
    """Return a result as it prints."""
    return _TEXTS.get(type(value), repr)(value)


def as_html(value: Viewable) -> str:
    """Return a result as a notebook shows it; one without tables of HTML as it prints."""
    page = _PAGES.get(type(value))
    return f"<pre>{escape(str(value))}</pre>" if page is None else page(value)

"""The one table of a board: which columns and rows there are and what each cell says.

Terminal, Markdown, LaTeX and pages write this table down, each in its own signs; none decides what is in it. CSV and
JSON hold the board's own figures with all their digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.data.task_names import GROUP_TITLES, task_headings
from r2med.data.tasks import AVERAGE
from r2med.formatting import percent
from r2med.measure.figure import Figure
from r2med.render.scores.model import FAR_APART, FIRST_STAGE, OTHER_DATA, RECALL_LOST, TOKENS, Board, Line
from r2med.runs.cost import COST_HEADINGS

NONE = "-"
"""What stands where there is no figure."""
BEST, SECOND = "best", "second"


@dataclass(frozen=True)
class Leaders:
    """The best and the second best figure of a column, as they are shown."""

    best: str = ""
    second: str = ""

    def place(self, text: str) -> str:
        """Return the place of a figure: the best, the second or empty."""
        return BEST if text == self.best else SECOND if text == self.second else ""


class Sign(NamedTuple):
    """A remark on a system: behind its name, as a tag on a page, and what it means."""

    text: str
    tag: str
    meaning: str = ""


@dataclass(frozen=True)
class TableCell:
    """A figure of a board, for every format to write down."""

    value: float | None
    """The figure itself; None where there is none, or only a published average without its tasks."""
    digits: str
    """x 100 with two digits, or a dash."""
    fewer: str
    """The same with one digit, where there is little room."""
    place: str = ""
    """`BEST`, `SECOND` or nothing."""
    brackets: bool = False
    """Whether it is an average that was published without its tasks."""
    other_data: bool = False
    """Whether it was measured on other data than the rest of its column."""
    mark: str = ""
    """Significantly better or worse than the baseline."""
    interval: str = ""
    """95%, x 100; empty where none is known."""

    @property
    def text(self) -> str:
        """Return the figure as plain text, without its mark."""
        return self._signed(self.digits)

    @property
    def short(self) -> str:
        """Return the same with one digit."""
        return self._signed(self.fewer)

    def _signed(self, digits: str) -> str:
        return f"({digits})" if self.brackets else digits + OTHER_DATA * self.other_data


@dataclass(frozen=True)
class TableRow:
    """A system of a board, for every format to write down."""

    line: Line
    signs: Sequence[Sign]
    cells: Mapping[str, TableCell]
    """By column."""
    cost: Mapping[str, str]
    """By `COST_HEADINGS`; all empty for what was published."""
    details: Mapping[str, str]
    """By `DETAILS`."""
    own_among_others: bool
    """Whether it was measured here, and not all of the table was."""

    @property
    def rank(self) -> str:
        """Return the rank; empty if there is none."""
        return "" if self.line.rank is None else str(self.line.rank)

    @property
    def name(self) -> str:
        """Return the system's name."""
        return self.line.row.name

    @property
    def label(self) -> str:
        """Return the name with the signs that notes explain: an oracle, incomplete queries, sources that disagree."""
        words = [sign.text for sign in self.signs if len(sign.text) > 1]
        short = "".join(sign.text for sign in self.signs if len(sign.text) == 1)
        return " ".join(part for part in (self.name, *words, short) if part)

    @property
    def sources(self) -> Sequence[str]:
        """Return the sources of the figures."""
        return self.line.row.sources


@dataclass(frozen=True)
class BoardTable:
    """A board laid out: headings, rows and notes."""

    board: Board
    rows: Sequence[TableRow]
    headings: Mapping[str, str]
    """Of the columns with figures, the average's last."""
    has_ranks: bool
    has_sources: bool
    """Whether lines come from different places."""

    @property
    def title(self) -> str:
        """Return the heading of the table."""
        return title(self.board)

    @property
    def columns(self) -> Sequence[str]:
        """Return the columns with figures."""
        return self.board.columns

    @property
    def cost_headings(self) -> Sequence[str]:
        """Return the columns of costs, if the board has them."""
        return COST_HEADINGS if self.board.cost else ()

    @property
    def detail_headings(self) -> Sequence[str]:
        """Return the columns with first stages and token limits, if the board has them."""
        return self.board.details

    @property
    def has_intervals(self) -> bool:
        """Return whether some figures have intervals."""
        return any(row.line.intervals for row in self.rows)

    @property
    def mixed(self) -> bool:
        """Return whether some figures were measured on other data than the rest of their column."""
        return any(row.line.row.other_data for row in self.rows)

    @property
    def notes(self) -> list[str]:
        """Return what a reader must know, and how many lines were left out."""
        left_out = self.board.left_out
        return [
            *self.board.notes,
            *([f"{left_out} more systems are not shown (--limit 0 shows all)"] if left_out else []),
        ]

    @property
    def legend(self) -> list[str]:
        """Return the meanings of the signs in this table, a sentence each without its full stop."""
        signs = {sign.text: sign.meaning for row in self.rows for sign in row.signs}
        cells = [cell for row in self.rows for cell in row.cells.values()]
        shown, left_out = len(self.rows), self.board.left_out
        meanings = [
            ("(oracle)" in signs, "An oracle was shown the answers and has no rank"),
            ("≠" in signs, "≠: sources disagree"),
            (any(line_is_far(row.line) for row in self.rows), "≠ with a number: sources are so many points apart"),
            ("*" in signs, "*: some queries are incomplete"),
            (any(row.line.row.recall_lost is not None for row in self.rows), RECALL_LOST),
            (self.mixed, f"{OTHER_DATA}: measured on other data, not ranked"),
            (any(cell.brackets for cell in cells), "In brackets: an average published without its tasks"),
            (any(cell.text == NONE for cell in cells), "A dash: no figure"),
            (bool(left_out), f"{shown} of {shown + left_out} systems"),
        ]
        return [text for holds, text in meanings if holds]


def title(board: Board) -> str:
    """Return the heading of a table.

    >>> title(Board("nano", "nDCG@10", (), ()))
    'nDCG@10 x 100, NanoR2MED'
    """
    return f"{board.measure} x 100, {GROUP_TITLES[board.group]}"


def board_table(
    board: Board,
    lines: Sequence[Line] | None = None,
    average: str = "avg",
    best: Mapping[str, Leaders] | None = None,
) -> BoardTable:
    """Build the table of a board, or of some of its lines; the best figures are those of the whole board.

    A caller that has the best figures already passes them.

    >>> from r2med.render.scores.model import BoardRow
    >>> line = Line(BoardRow("x", ("page",), {"A": 0.12345}, stated=0.5), None)
    >>> [row] = board_table(Board("full", "nDCG@10", ("A", "B"), [line])).rows
    >>> [cell.text for cell in row.cells.values()]
    ['12.35', '-', '(50.00)']
    """
    best = leaders(board) if best is None else best
    has_sources = any(not line.row.own for line in board.lines)
    shown = board.lines if lines is None else lines
    rows = [
        TableRow(
            line,
            _signs(line),
            {column: _cell(line, column, best[column]) for column in board.columns},
            _cost(line),
            {FIRST_STAGE: line.row.first_stage or NONE, TOKENS: line.row.token_limit or NONE},
            line.row.own and has_sources,
        )
        for line in shown
    ]
    headings = {column: heading for column, heading in task_headings(board.tasks).items() if column in board.columns}
    headings |= {AVERAGE: average} if AVERAGE in board.columns else {}
    return BoardTable(board, rows, headings, any(line.rank is not None for line in board.lines), has_sources)


def leaders(board: Board) -> Mapping[str, Leaders]:
    """Return the two best figures of each column, oracles left out; equal figures, as shown, are equally good."""
    found = {}
    for column in dict.fromkeys((*board.columns, AVERAGE)):
        values = [
            line.value(column) for line in board.lines if not line.row.oracle and not saw_other_data(line, column)
        ]
        shown = sorted({percent(value) for value in values if value is not None}, key=float, reverse=True)
        found[column] = Leaders(*shown[:2])
    return found


def saw_other_data(line: Line, column: str) -> bool:
    """Return whether a figure was measured on other data than the rest of its column."""
    return bool(line.row.other_data) if column == AVERAGE else column in line.row.other_data


def _cell(line: Line, column: str, best: Leaders) -> TableCell:
    value, stated = line.value(column), line.row.stated if column == AVERAGE else None
    mark = line.marks.get(column, "")
    spread = interval_text(line.intervals.get(column))
    if value is None and stated is None:
        return TableCell(None, NONE, NONE, mark=mark, interval=spread)
    shown = value if value is not None else stated
    digits, fewer = (percent(shown or 0.0, count) for count in (2, 1))
    other = value is not None and saw_other_data(line, column)
    leads = best.place(digits) if value is not None and not (other or line.row.oracle) else ""
    return TableCell(value, digits, fewer, leads, value is None, other, mark, spread)


def interval_text(found: Figure | None) -> str:
    """Format the 95% interval x 100, or nothing.

    >>> interval_text(Figure(0.5, 0.41, 0.583))
    '41.0-58.3'
    """
    return "" if found is None else "-".join(f"{100 * end:.1f}" for end in found.ends)


def _signs(line: Line) -> list[Sign]:
    row, signs = line.row, []
    if row.oracle:
        signs.append(Sign("(oracle)", "oracle", "It was shown the gold answers: a ceiling, never ranked"))
    if row.incomplete:
        signs.append(Sign("*", f"{row.incomplete} incomplete"))
    if row.recall_lost is not None:
        signs.append(Sign(f"≈{percent(row.recall_lost, 1)}", f"{percent(row.recall_lost, 1)}% of the exact lists lost"))
    if line_is_far(line):
        points = percent(line.apart, 1)
        meaning = "Sources are that far apart on average; see the notes"
        signs.append(Sign(f"≠{points}", f"≠ {points} points apart", meaning))
    elif line.disputed:
        signs.append(Sign("≠", "≠ disputed", "Sources disagree about this system; see the notes"))
    return signs


def line_is_far(line: Line) -> bool:
    """Return whether sources are ten points or more apart about a line's system."""
    return line.disputed and line.apart >= FAR_APART


def _cost(line: Line) -> dict[str, str]:
    cells = line.row.cost.cells() if line.row.cost is not None else [""] * len(COST_HEADINGS)
    return dict(zip(COST_HEADINGS, cells, strict=True))

"""The one table of a board: which columns and rows there are and what each cell says.

Terminal, Markdown, LaTeX and pages write this table down, each in its own signs; none decides what is in it. CSV and
JSON hold the board's own figures with all their digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from r2med.data.task_names import GROUP_TITLES, task_headings
from r2med.data.tasks import AVERAGE
from r2med.formatting import percent
from r2med.render.scores.model import NONE, OTHER_DATA, RECALL_LOST, Board, BoardRow
from r2med.runs.cost import COST_HEADINGS

BEST, SECOND = "best", "second"


Leaders = Mapping[str, str]
"""The best and the second best figure of a column, as they are shown, to `BEST` and `SECOND`."""


def leaders_of(values: Iterable[float]) -> Leaders:
    """Find the two best of some figures."""
    return dict(
        zip(sorted({percent(value) for value in values}, key=float, reverse=True), (BEST, SECOND), strict=False)
    )


@dataclass(frozen=True)
class TableCell:
    """A figure of a board, for every format to write down."""

    value: float | None  # the figure itself; None where there is none, or only a published average without its tasks
    digits: str  # x 100 with two digits, or a dash
    fewer: str  # the same with one digit, where there is little room
    place: str = ""  # `BEST`, `SECOND` or nothing
    brackets: bool = False  # whether it is an average that was published without its tasks
    other_data: bool = False  # whether it was measured on other data than the rest of its column
    mark: str = ""  # significantly better or worse than the baseline
    interval: str = ""  # 95%, x 100; empty where none is known

    @property
    def text(self) -> str:
        """Return the figure as plain text, without its mark."""
        return f"({self.digits})" if self.brackets else self.digits + OTHER_DATA * self.other_data

    @property
    def short(self) -> str:
        """Return the same with one digit."""
        return f"({self.fewer})" if self.brackets else self.fewer + OTHER_DATA * self.other_data


@dataclass(frozen=True)
class BoardTable:
    """A board laid out: headings, rows and notes."""

    board: Board
    rows: Sequence[BoardRow]
    headings: Mapping[str, str]  # of the columns with figures, the average's last
    best: Mapping[str, Leaders]

    @property
    def title(self) -> str:
        """Return the heading of the table."""
        return f"{self.board.measure} x 100, {GROUP_TITLES[self.board.group]}"

    @property
    def cost_headings(self) -> Sequence[str]:
        """Return the columns of costs, if the board has them."""
        return COST_HEADINGS if self.board.cost else ()

    @cached_property
    def has_ranks(self) -> bool:
        """Return whether any system of the board has a rank."""
        return any(row.rank is not None for row in self.board.lines)

    @cached_property
    def has_sources(self) -> bool:
        """Return whether rows come from different places."""
        return any(not row.own for row in self.board.lines)

    @property
    def mixed(self) -> bool:
        """Return whether some figures were measured on other data than the rest of their column."""
        return any(row.other_data for row in self.rows)

    @property
    def notes(self) -> list[str]:
        """Return what a reader must know, and how many rows were left out."""
        left_out = self.board.left_out
        more = [f"{left_out} more systems are not shown (--limit 0 shows all)"] if left_out else []
        return [*self.board.notes, *more]

    @property
    def legend(self) -> list[str]:
        """Return the meanings of the signs in this table, a sentence each without its full stop."""
        signs = {sign.text for row in self.rows for sign in row.signs}
        cells = [cell for row in self.rows for cell in self.cells(row).values()]
        count, left_out = len(self.rows), self.board.left_out
        meanings = [
            ("(oracle)" in signs, "An oracle was shown the answers and has no rank"),
            ("≠" in signs, "≠: sources disagree"),
            (any(row.far_apart for row in self.rows), "≠ with a number: sources are so many points apart"),
            ("*" in signs, "*: some queries are incomplete"),
            (any(row.recall_lost is not None for row in self.rows), RECALL_LOST),
            (self.mixed, f"{OTHER_DATA}: measured on other data, not ranked"),
            (any(cell.brackets for cell in cells), "In brackets: an average published without its tasks"),
            (any(cell.text == NONE for cell in cells), "A dash: no figure"),
            (bool(left_out), f"{count} of {count + left_out} systems"),
        ]
        return [text for holds, text in meanings if holds]

    def is_own_among_others(self, row: BoardRow) -> bool:
        """Return whether a system was measured here, and not all of the table was."""
        return row.own and self.has_sources

    def cells(self, row: BoardRow) -> dict[str, TableCell]:
        """Return the figures of a row by column."""
        cells = {}
        for column in self.board.columns:
            value, stated = row.value(column), row.stated if column == AVERAGE else None
            mark, ends = row.marks.get(column, ""), row.intervals.get(column)
            interval = "" if ends is None else "-".join(percent(end, 1) for end in ends.ends)
            figure = stated if value is None else value
            if figure is None:
                cells[column] = TableCell(None, NONE, NONE, mark=mark, interval=interval)
                continue
            digits, fewer = percent(figure, 2), percent(figure, 1)
            other = value is not None and row.saw_other_data(column)
            place = self.best[column].get(digits, "") if value is not None and not (other or row.oracle) else ""
            cells[column] = TableCell(value, digits, fewer, place, value is None, other, mark, interval)
        return cells


def board_table(
    board: Board,
    rows: Sequence[BoardRow] | None = None,
    average: str = "avg",
    best: Mapping[str, Leaders] | None = None,
) -> BoardTable:
    """Build the table of a board, or of some of its rows; the best figures are those of the whole board.

    A caller that has the best figures already passes them.

    >>> row = BoardRow("x", ("page",), {"A": 0.12345}, stated=0.5)
    >>> table = board_table(Board("full", "nDCG@10", ("A", "B"), [row]))
    >>> table.title, [cell.text for cell in table.cells(table.rows[0]).values()]
    ('nDCG@10 x 100, R2MED', ['12.35', '-', '(50.00)'])
    """
    headings = {column: heading for column, heading in task_headings(board.tasks).items() if column in board.columns}
    headings |= {AVERAGE: average} if AVERAGE in board.columns else {}
    return BoardTable(board, board.lines if rows is None else rows, headings, leaders(board) if best is None else best)


def leaders(board: Board) -> Mapping[str, Leaders]:
    """Return the two best figures of each column, oracles left out; equal figures, as shown, are equally good."""
    best = {}
    for column in dict.fromkeys((*board.columns, AVERAGE)):
        values = [row.value(column) for row in board.lines if not row.oracle and not row.saw_other_data(column)]
        best[column] = leaders_of(value for value in values if value is not None)
    return best

"""What every format of a board has in common: which columns are shown, which figures lead, what a cell says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from r2med.board.model import AVERAGE, Board, Line
from r2med.store.cost import COST_HEADINGS

OTHER_DATA = "°"
"""Behind a figure that was measured on other data than the task has now."""


@dataclass(frozen=True)
class Leaders:
    """The best and the second best figure of a column, as they are shown."""

    best: str = ""
    second: str = ""


def leaders(board: Board) -> Mapping[str, Leaders]:
    """The two best figures of each column, oracles left out; equal figures, as shown, are equally good."""
    found = {}
    for column in dict.fromkeys((*board.columns, AVERAGE)):
        values = [
            line.value(column) for line in board.lines if not line.row.oracle and not saw_other_data(line, column)
        ]
        shown = sorted({percent(value) for value in values if value is not None}, key=float, reverse=True)
        found[column] = Leaders(*shown[:2])
    return found


def figure(line: Line, column: str, digits: int = 2) -> str:
    """A figure times 100, or a dash; an average that was published without its tasks in brackets.

    A figure of other data than the task has now carries a mark.

    >>> from r2med.board.model import Row
    >>> line = Line(Row("x", ("page",), {"A": 0.12345}, stated=0.5), None)
    >>> figure(line, "A"), figure(line, "B"), figure(line, "")
    ('12.35', '-', '(50.00)')
    """
    value = line.value(column)
    if value is not None and saw_other_data(line, column):
        return percent(value, digits) + OTHER_DATA
    if value is None and column == AVERAGE and line.row.stated is not None:
        return f"({percent(line.row.stated, digits)})"
    return "-" if value is None else percent(value, digits)


def saw_other_data(line: Line, column: str) -> bool:
    """Whether a figure was measured on other data than the rest of its column."""
    return bool(line.row.other_data) if column == AVERAGE else column in line.row.other_data


def percent(value: float, digits: int = 2) -> str:
    """A share times 100, rounded as the published tables are.

    >>> percent(0.10905)
    '10.90'
    """
    return f"{100 * value:.{digits}f}"


def interval(line: Line, column: str) -> str:
    """The 95% interval times 100, or nothing."""
    found = line.intervals.get(column)
    return "" if found is None else f"{100 * found.low:.1f}-{100 * found.high:.1f}"


def label(line: Line) -> str:
    """A system's name with the signs that a note explains: an oracle, incomplete queries, sources that disagree."""
    row = line.row
    signs = "*" * bool(row.incomplete) + "≠" * line.disputed
    return " ".join(part for part in (row.name, "(oracle)" if row.oracle else "", signs) if part)


def has_ranks(board: Board) -> bool:
    """Whether the lines are ranked at all."""
    return any(line.rank is not None for line in board.lines)


def has_sources(board: Board) -> bool:
    """Whether lines come from different places."""
    return any(not line.row.own for line in board.lines)


def cost_of(line: Line) -> list[str]:
    """What a system took, under `COST_HEADINGS`; nothing for a published one."""
    return line.row.cost.cells() if line.row.cost is not None else [""] * len(COST_HEADINGS)

"""Two lines of a board of which at least one is published: every figure side by side, without a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r2med.errors import R2medError
from r2med.render.scores.model import Board, BoardRow, View, line_labels
from r2med.web.citation import Citation, citation, options
from r2med.web.library import Library

NOT_TESTED = (
    "Published figures come without their queries, so whether a difference is more than chance cannot be tested."
)


@dataclass(frozen=True)
class FigureRow:
    """The figures of two lines on a task, or their averages."""

    task: str
    a: float | None
    b: float | None

    @property
    def gain(self) -> float | None:
        """Return B minus A; None where one of them has no figure."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class FigurePair:
    """Two lines of a board with all their figures."""

    a: BoardRow
    b: BoardRow
    group: str
    measure: str
    rows: Sequence[FigureRow]
    """By task, with the averages last where there are several tasks."""
    cite: Citation

    @property
    def overall(self) -> FigureRow:
        """Return the averages, or the figures of the only task."""
        return self.rows[-1]


def published_lines(board: Board) -> dict[str, BoardRow]:
    """Return the published lines of a board by names of which no two are alike."""
    labels = zip(line_labels(board), board.lines, strict=True)
    return {label: line for label, line in labels if not line.own}


def find_published(lines: Mapping[str, BoardRow], name: str, *, other: str = "") -> str:
    """Return the label of a published line that is meant by a name; empty for none.

    A system that several sources list has one name and several lines: the second of a pair is not the first again.
    """
    if name in lines and name != other:
        return name
    alike = (label for label, line in lines.items() if name in (line.name, _sourced(line)) and label != other)
    return next(alike, "")


def _sourced(line: BoardRow) -> str:
    return f"{line.name} ({', '.join(line.sources)})"


def compare_figures(library: Library, group: str, measure: str, a: str, b: str) -> FigurePair:
    """Put two lines of a board side by side, each an own system or the label of a published line."""
    board = library.board(View(group=group, measure=measure))
    one, other = (_line(board, name) for name in (a, b))
    if one is None or other is None:
        raise R2medError(f"{a if one is None else b} has no figure by {measure} here")
    rows = [FigureRow(task, one.value(task), other.value(task)) for task in board.tasks]
    rows += [FigureRow("average", one.average, other.average)] * (len(rows) > 1)
    words = options(("--group", group), ("--measure", measure))
    cite = citation(f"{b} against {a}, {measure}", "board", *words)
    return FigurePair(one, other, group, measure, rows, cite)


def _line(board: Board, name: str) -> BoardRow | None:
    own = next((line for line in board.lines if line.own and line.name == name), None)
    lines = published_lines(board)
    return own or lines.get(find_published(lines, name))

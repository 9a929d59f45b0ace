"""What every format of a board has in common: which columns are shown, which figures lead, what a cell says.

What the tables of evaluations and boards are made of: titles, notes, headings of tasks and costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from r2med.board.model import AVERAGE, OTHER_DATA, Board, Line, percent
from r2med.data.tasks import registry
from r2med.runs.cost import COST_HEADINGS


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

    >>> from r2med.board.model import BoardRow
    >>> line = Line(BoardRow("x", ("page",), {"A": 0.12345}, stated=0.5), None)
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


GROUP_TITLES = {
    "sample": "bundled sample",
    "nano": "NanoR2MED",
    "full": "R2MED",
    "custom": "own data",
    "custom-nano": "own nano sets",
}
"""What the groups are called above a table."""
SHORT_NAMES = {
    "Biology": "Bio",
    "Bioinformatics": "Bioinf",
    "Medical-Sciences": "MedSci",
    "MedXpertQA-Exam": "MedXp",
    "MedQA-Diag": "MedQA",
    "PMC-Treatment": "PMC-T",
    "PMC-Clinical": "PMC-C",
    "IIYi-Clinical": "IIYi",
}
"""Task names as table headings, where eight columns must fit a terminal."""
_NANO_SPLITS = {f"NanoR2MED{name.replace('-', '')}": short for name, short in SHORT_NAMES.items()}
"""The splits of nano sets that were built from the tasks."""


def task_heading(task: str) -> str:
    """A task's name as the heading of a column.

    >>> task_heading("nano/MedQA-Diag")
    'MedQA'
    """
    base = task.rstrip("/").rpartition("/")[2] or task
    return SHORT_NAMES.get(base) or _NANO_SPLITS.get(base, base)


def task_names(tasks: Iterable[str]) -> dict[str, str]:
    """Tasks as they are named in text: those of the benchmark whole, folders by as much of their path as is needed.

    >>> task_names(["sample/Biology", "/data/notes"])
    {'sample/Biology': 'sample/Biology', '/data/notes': 'notes'}
    """
    known, distinct = registry(), list(dict.fromkeys(tasks))
    headings = task_headings([task for task in distinct if task not in known])
    return {task: headings.get(task, task) for task in distinct}


def task_headings(tasks: Sequence[str]) -> dict[str, str]:
    """The headings of columns side by side; tasks that would share one have as much of their path as tells them apart.

    >>> task_headings(["nfcorpus/dev", "scifact/dev", "sample/Biology"])
    {'nfcorpus/dev': 'nfcorpus/dev', 'scifact/dev': 'scifact/dev', 'sample/Biology': 'Bio'}
    """
    headings = {task: task_heading(task) for task in tasks}
    for parts in range(2, max((task.count("/") for task in headings), default=0) + 2):
        shown = list(headings.values())
        headings |= {
            task: "/".join(task.rsplit("/", parts)[-parts:]) for task, name in headings.items() if shown.count(name) > 1
        }
    return headings

"""Boards as values: rows of figures, published or local, and the table of cells that every format writes.

The table decides the order of columns, the best and the second best, dashes, brackets and marks. A format chooses its
signs; none decides what is in it. CSV and JSON hold the board's own figures with all their digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from r2med.data.task_names import GROUP_TITLES, task_headings, task_names
from r2med.data.tasks import AVERAGE
from r2med.formatting import counted, percent
from r2med.measure.figure import Figure
from r2med.render.table import print_plainly
from r2med.runs.contamination import Contamination
from r2med.runs.cost import COST_HEADINGS, Cost
from r2med.store.typed import plain


@dataclass(frozen=True)
class View:
    """Part of the board to show, and its form."""

    group: str = "full"
    tasks: tuple[str, ...] = ()  # only these tasks of the group, and the average over them
    measure: str = "nDCG@10"
    family: str = ""  # only the tasks of this family, and the average over them
    kind: str = ""
    retriever: str = ""
    llm: str = ""
    reranker: str = ""
    own: bool = True
    published: bool = True
    sources: tuple[str, ...] = ()  # only what these published, and local runs under the name "own"; empty for all
    find: str = ""  # only systems in whose name, parts or sources every one of these words occurs
    oracles: bool = True  # whether systems are listed that were shown the answers
    sort: str = "rank"  # the column that lines are in the order of, the best first
    ascending: bool = False
    limit: int = 0  # how many lines; 0 for all
    intervals: bool = False
    cost: bool = False
    details: tuple[str, ...] = ()
    """Which of `DETAILS` to show; rerankers by themselves are always shown with their first stages."""
    baseline: str = ""  # the own system that marks of significance are against
    ties: bool = False  # whether to find the own systems that the best of them does not beat


OWN = "own"
"""The source of a row that was measured here."""
SUBMITTED = "submitted"
"""The source of a row whose lists were submitted, and whose figures were computed from them here."""
RECALL_LOST = (
    "≈: so many of 100 documents of the exact lists were not found: the index is approximate, or terms are left out"
)
FAR_APART = 0.10
"""From this difference of averages on, the points between sources are stated, not only that they disagree."""
FIRST_STAGE, TOKENS, RANKS, ABOVE = "first stage", "tokens", "ranks", "P above next"
CONTAMINATION = "contamination"
DETAILS = (FIRST_STAGE, TOKENS, RANKS, ABOVE, CONTAMINATION)
"""What may be shown of a system beside its figures."""
NONE = "-"
"""What stands where there is no figure."""
OTHER_DATA = "°"
"""Behind a figure that was measured on other data than the task has now."""


QUERIES, TASKS = "queries", "tasks"
"""What a rank interval rests on: the scores of every query, or only the spread of figures over tasks."""
BY_TASKS = "~"
"""Before ranks that rest on the spread over tasks."""


@dataclass(frozen=True)
class Ranks:
    """Ranks that a system may have, with 95% confidence."""

    low: int
    high: int
    of: int
    """The number of systems that it is ranked among: those whose scores of queries are known, or all with a rank."""
    by: str
    """`queries`, or `tasks` for a figure that was published without the scores of its queries."""
    above: Mapping[str, float]
    """The probability that it is above each of the others."""
    below: str = ""
    """The next of them below it; empty for the last."""

    @property
    def text(self) -> str:
        """Return the interval, marked if it rests on tasks alone.

        >>> Ranks(2, 4, 9, TASKS, {}).text
        '~2-4 of 9'
        """
        return f"{BY_TASKS * (self.by == TASKS)}{self.low}-{self.high} of {self.of}"

    @property
    def cells(self) -> list[object]:
        """Return the facts of a line of CSV."""
        return [self.low, self.high, self.of, self.by, self.above.get(self.below)]

    @property
    def above_next(self) -> str:
        """Return the probability that it is above the next one."""
        return f"{BY_TASKS * (self.by == TASKS)}{self.above[self.below]:.0%}" if self.below else NONE


class Sign(NamedTuple):
    """A remark on a system: behind its name, as a tag on a page, and what it means."""

    text: str
    tag: str
    meaning: str = ""


@dataclass(frozen=True)
class SystemParts:
    """Parts of a system, by the names that a search would use."""

    kind: str = "base"
    retrievers: tuple[str, ...] = ()
    llms: tuple[str, ...] = ()
    rerankers: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all parts."""
        return (*self.retrievers, *self.llms, *self.rerankers)


@dataclass(frozen=True)
class BoardRow:
    """One system on a board: its figures on a group's tasks by one measure, where they come from, and its rank."""

    name: str  # the spec of a local system, or the name under which it was published
    sources: tuple[str, ...]  # `own`, `submitted`, or every source that published these figures
    values: Mapping[str, float]  # by task; a task that was not measured is missing
    system: str = ""  # the spec; empty where it cannot be said
    title: str = ""  # what those who submitted it call it; empty for any other
    parts: SystemParts = field(default_factory=SystemParts)
    stated: float | None = None  # the average over these tasks that was published
    oracle: bool = False
    queries: int = 0  # the number of queries of the figures; 0 if not stated
    incomplete: int = 0  # how many queries the system did not do all for that it should have
    other_data: tuple[str, ...] = ()
    """Tasks whose figure was measured on other data than the task has now: it compares with nothing here."""
    runs: Mapping[str, str] = field(default_factory=dict)  # the ids of local runs, by task
    cost: Cost | None = None
    max_query: int | None = None  # the number of tokens of a query that a published system read; None if not stated
    max_document: int | None = None
    note: str = ""
    recall_lost: float | None = None
    """The share of the exact lists that an approximate search did not find; None where search is exact."""
    average: float | None = None  # over all columns; None when a task is missing
    rank: int | None = None
    """None for a system that lacks a task, is an oracle, saw other data, or did no query completely."""
    disputed: bool = False  # whether sources disagree about this system
    apart: float = 0.0  # by how much the highest and the lowest average differ that sources give it
    intervals: Mapping[str, Figure] = field(default_factory=dict)
    """95%, by task and of the average, for local systems."""
    marks: Mapping[str, str] = field(default_factory=dict)  # signs of significance, by task and of the average
    ranks: Ranks | None = None
    """None for a system without a rank, where they were not asked for, and where it is the only one of its kind."""
    contamination: Contamination | None = None
    """What is known of the training data of its models; None where it was not asked for."""
    tied: bool = False
    """Whether the best local system does not beat it on average; of the best one itself, true as well."""

    def value(self, column: str) -> float | None:
        """Return the figure in a column: of a task, or of the average."""
        return self.average if column == AVERAGE else self.values.get(column)

    def saw_other_data(self, column: str) -> bool:
        """Return whether a figure was measured on other data than the rest of its column."""
        return bool(self.other_data) if column == AVERAGE else column in self.other_data

    @property
    def first_stage(self) -> str:
        """Return the first stage of a reranker; empty for a system without one."""
        return "+".join(self.parts.retrievers) if self.parts.rerankers else ""

    @property
    def token_limit(self) -> str:
        """Return the tokens of a query and of a document that a published retriever read; empty if not stated.

        >>> BoardRow("x", ("paper",), {}, max_query=512, max_document=2048).token_limit
        '512/2,048'
        """
        limits = [limit for limit in (self.max_query, self.max_document) if limit is not None]
        return "/".join(f"{limit:,}" for limit in dict.fromkeys(limits))

    @property
    def own(self) -> bool:
        """Return whether it was measured here, so that its queries are known."""
        return OWN in self.sources or SUBMITTED in self.sources

    @property
    def unmeasured(self) -> bool:
        """Return whether every single query is incomplete, so that the figures say nothing of the system."""
        return 0 < self.queries <= self.incomplete

    @property
    def far_apart(self) -> bool:
        """Return whether sources are ten points or more apart about the system."""
        return self.disputed and self.apart >= FAR_APART

    @property
    def signs(self) -> list[Sign]:
        """Return remarks on the system."""
        signs = []
        if self.oracle:
            signs.append(Sign("(oracle)", "oracle", "It was shown the gold answers: a ceiling, never ranked"))
        if self.incomplete:
            signs.append(Sign("*", f"{self.incomplete} incomplete"))
        if self.recall_lost is not None:
            lost = percent(self.recall_lost, 1)
            signs.append(Sign(f"≈{lost}", f"{lost}% of the exact lists lost"))
        if self.far_apart:
            points = percent(self.apart, 1)
            meaning = "Sources are that far apart on average; see the notes"
            signs.append(Sign(f"≠{points}", f"≠ {points} points apart", meaning))
        elif self.disputed:
            signs.append(Sign("≠", "≠ disputed", "Sources disagree about this system; see the notes"))
        return signs

    @property
    def label(self) -> str:
        """Return the name with the signs that notes explain: an oracle, incomplete queries, sources that disagree."""
        words = [sign.text for sign in self.signs if len(sign.text) > 1]
        short = "".join(sign.text for sign in self.signs if len(sign.text) == 1)
        return " ".join(part for part in (self.name, *words, short) if part)

    @property
    def details(self) -> dict[str, str]:
        """Return the cells of `DETAILS`."""
        cells = {FIRST_STAGE: self.first_stage or NONE, TOKENS: self.token_limit or NONE}
        ranks = self.ranks
        facts = self.contamination
        cells[CONTAMINATION] = NONE if facts is None else ": ".join(filter(None, (facts.status, _listed(facts.tasks))))
        return cells | {RANKS: ranks.text if ranks else NONE, ABOVE: ranks.above_next if ranks else NONE}

    @property
    def cost_cells(self) -> dict[str, str]:
        """Return the cells of `COST_HEADINGS`, all empty for what was published."""
        cells = self.cost.cells() if self.cost is not None else [""] * len(COST_HEADINGS)
        return dict(zip(COST_HEADINGS, cells, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        facts: dict[str, Any] = {
            "rank": self.rank,
            "name": self.name,
            "system": self.system or None,
            "sources": list(self.sources),
            "own": self.own,
            **asdict(self.parts),
            "average": self.average,
            "values": dict(self.values),
        }
        extra = {
            "title": self.title,
            "published_average": self.stated,
            "oracle": self.oracle,
            "incomplete": self.incomplete,
            "other_data": list(self.other_data),
            "disputed": self.disputed,
            "apart": self.apart,
            "first_stage": self.first_stage,
            "runs": dict(self.runs),
            "intervals": {task or "average": [ends.low, ends.high] for task, ends in self.intervals.items()},
            "significance": {task or "average": mark for task, mark in self.marks.items()},
            "contamination": None if self.contamination is None else plain(self.contamination),
            "ranks": None if self.ranks is None else asdict(self.ranks),
            "cost": self.cost.as_dict() if self.cost is not None else None,
            "max_query": self.max_query,
            "max_document": self.max_document,
            "note": self.note,
        }
        facts |= {name: value for name, value in extra.items() if value not in (None, False, 0, "", {}, [])}
        return facts | ({} if self.recall_lost is None else {"recall_lost": self.recall_lost})


def _listed(tasks: Sequence[str]) -> str:
    """Name two tasks and count the others."""
    names = list(task_names(tasks).values())
    return ", ".join(names if len(names) < 4 else [*names[:2], f"{len(names) - 2} more"])


@dataclass(frozen=True, repr=False)
class Board:
    """Lines in their order, over the columns of one group and one measure."""

    group: str
    measure: str
    tasks: Sequence[str]
    lines: Sequence[BoardRow]
    notes: Sequence[str] = ()  # what a reader must know, a sentence each
    left_out: int = 0  # how many lines were cut off by a limit
    cost: bool = False  # whether costs are shown
    baseline: str = ""  # the system that marks of significance are against
    details: Sequence[str] = ()  # which of `DETAILS` are shown
    drops: Sequence[Mapping[str, object]] = ()
    """What systems lose on tasks that are translations of others, paired by question."""
    averaged: bool = True
    """Whether the tasks belong together: an average over any folders that were ever run says nothing."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the tasks, and the average last; of a single task it would be the same again."""
        return (*self.tasks, AVERAGE) if self.averaged and len(self.tasks) != 1 else tuple(self.tasks)

    def as_dict(self) -> dict[str, Any]:
        """Return the board for JSON."""
        return {
            "group": self.group,
            "measure": self.measure,
            "tasks": list(self.tasks),
            "lines": [line.as_dict() for line in self.lines],
            "notes": list(self.notes),
            "left_out": self.left_out,
            **({"drops": list(self.drops)} if self.drops else {}),
        }

    def __repr__(self) -> str:
        systems, tasks = counted(len(self.lines), "system"), counted(len(self.tasks), "task")
        return f"Board({self.group!r} by {self.measure}, {systems} on {tasks})"

    def __str__(self) -> str:
        from r2med.render.scores.text import show_board

        return print_plainly(show_board, self)

    def _repr_html_(self) -> str:
        from r2med.render.scores.text import tables_html

        return tables_html([self])


def line_labels(board: Board) -> list[str]:
    """Return names of lines; equal names are followed by their sources, but not those of local systems."""
    counts = Counter(line.name for line in board.lines)
    labels: list[str] = []
    for line in board.lines:
        several = counts[line.name] > 1 and not line.own
        label = f"{line.name} ({', '.join(line.sources)})" if several else line.title or line.name
        while label in labels:
            label += "'"
        labels.append(label)
    return labels


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
    title: str
    cost_headings: Sequence[str]  # the columns of costs, if the board has them
    has_ranks: bool
    has_sources: bool  # whether rows of the board come from different places
    mixed: bool  # whether some figures were measured on other data than the rest of their column

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
    rows = board.lines if rows is None else rows
    return BoardTable(
        board,
        rows,
        headings,
        leaders(board) if best is None else best,
        title=f"{board.measure} x 100, {GROUP_TITLES[board.group]}",
        cost_headings=COST_HEADINGS if board.cost else (),
        has_ranks=any(row.rank is not None for row in board.lines),
        has_sources=any(not row.own for row in board.lines),
        mixed=any(row.other_data for row in rows),
    )


def leaders(board: Board) -> Mapping[str, Leaders]:
    """Return the two best figures of each column, oracles left out; equal figures, as shown, are equally good."""
    best = {}
    for column in dict.fromkeys((*board.columns, AVERAGE)):
        values = [row.value(column) for row in board.lines if not row.oracle and not row.saw_other_data(column)]
        best[column] = leaders_of(value for value in values if value is not None)
    return best

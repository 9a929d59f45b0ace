"""Boards as values: rows of figures, published or local, and the columns they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from r2med.data.tasks import AVERAGE
from r2med.formatting import counted
from r2med.runs.viewable import Viewable

if TYPE_CHECKING:
    from r2med.measure.figure import Figure
    from r2med.runs.cost import Cost


@dataclass(frozen=True)
class View:
    """Part of the board to show, and its form."""

    group: str = "full"
    tasks: tuple[str, ...] = ()
    """Only these tasks of the group, and the average over them."""
    measure: str = "nDCG@10"
    family: str = ""
    """Only the tasks of this family, and the average over them."""
    kind: str = ""
    retriever: str = ""
    llm: str = ""
    reranker: str = ""
    own: bool = True
    published: bool = True
    sources: tuple[str, ...] = ()
    """Only what these published, and local runs under the name "own"; empty for all."""
    find: str = ""
    """Only systems in whose name, parts or sources every one of these words occurs."""
    oracles: bool = True
    """Whether systems are listed that were shown the answers."""
    sort: str = "rank"
    """The column that lines are in the order of, the best first."""
    ascending: bool = False
    limit: int = 0
    """How many lines; 0 for all."""
    intervals: bool = False
    cost: bool = False
    details: tuple[str, ...] = ()
    """Which of `DETAILS` to show; rerankers by themselves are always shown with their first stages."""
    baseline: str = ""
    """The own system that marks of significance are against."""
    ties: bool = False
    """Whether to find the own systems that the best of them does not beat."""


OWN = "own"
"""The source of a row that was measured here."""
SUBMITTED = "submitted"
"""The source of a row whose lists were submitted, and whose figures were computed from them here."""
RECALL_LOST = (
    "≈: so many of 100 documents of the exact lists were not found: the index is approximate, or terms are left out"
)
FAR_APART = 0.10
"""From this difference of averages on, the points between sources are stated, not only that they disagree."""
FIRST_STAGE, TOKENS = "first stage", "tokens"
DETAILS = (FIRST_STAGE, TOKENS)
"""What may be shown of a system beside its figures."""
OTHER_DATA = "°"
"""Behind a figure that was measured on other data than the task has now."""


@dataclass(frozen=True)
class SystemParts:
    """Parts of a system, by the names that a search would use."""

    kind: str = "base"
    retrievers: tuple[str, ...] = ()
    llms: tuple[str, ...] = ()
    rerankers: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardRow:
    """One system: its figures on a group's tasks by one measure, and where they come from."""

    name: str
    """The spec of a local system, or the name under which it was published."""
    sources: tuple[str, ...]
    """`own`, `submitted`, or every source that published these figures."""
    values: Mapping[str, float]
    """By task; a task that was not measured is missing."""
    system: str = ""
    """The spec; empty where it cannot be said."""
    title: str = ""
    """What those who submitted it call it; empty for any other."""
    parts: SystemParts = field(default_factory=SystemParts)
    stated: float | None = None
    """The average over these tasks that was published."""
    oracle: bool = False
    queries: int = 0
    """The number of queries of the figures; 0 if not stated."""
    incomplete: int = 0
    """How many queries the system did not do all for that it should have."""
    other_data: tuple[str, ...] = ()
    """Tasks whose figure was measured on other data than the task has now: it compares with nothing here."""
    runs: Mapping[str, str] = field(default_factory=dict)
    """The ids of local runs, by task."""
    cost: Cost | None = None
    max_query: int | None = None
    """The number of tokens of a query that a published system read; None if not stated."""
    max_document: int | None = None
    note: str = ""
    recall_lost: float | None = None
    """The share of the exact lists that an approximate search did not find; None where search is exact."""

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
    def rankable(self) -> bool:
        """Return whether it may be ranked among the others, provided that it has an average."""
        return not (self.oracle or self.unmeasured or self.other_data)


@dataclass(frozen=True)
class Line:
    """A row as it stands on a board."""

    row: BoardRow
    average: float | None
    """Over all columns; None when a task is missing."""
    rank: int | None = None
    """None for a system that lacks a task, is an oracle, saw other data, or did no query completely."""
    disputed: bool = False
    """Whether sources disagree about this system."""
    apart: float = 0.0
    """By how much the highest and the lowest average differ that sources give it."""
    intervals: Mapping[str, Figure] = field(default_factory=dict)
    """95%, by task and of the average, for local systems."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Signs of significance, by task and of the average."""
    tied: bool = False
    """Whether the best local system does not beat it on average; of the best one itself, true as well."""

    def value(self, column: str) -> float | None:
        """Return the figure in a column: of a task, or of the average."""
        return self.average if column == AVERAGE else self.row.values.get(column)

    def as_dict(self) -> dict[str, Any]:
        """Return the line for JSON."""
        row = self.row
        found: dict[str, Any] = {
            "rank": self.rank,
            "name": row.name,
            "system": row.system or None,
            "sources": list(row.sources),
            "own": row.own,
            **asdict(row.parts),
            "average": self.average,
            "values": dict(row.values),
        }
        extra = {
            "title": row.title,
            "published_average": row.stated,
            "oracle": row.oracle,
            "incomplete": row.incomplete,
            "other_data": list(row.other_data),
            "disputed": self.disputed,
            "apart": self.apart,
            "first_stage": row.first_stage,
            "runs": dict(row.runs),
            "intervals": {task or "average": [each.low, each.high] for task, each in self.intervals.items()},
            "significance": {task or "average": mark for task, mark in self.marks.items()},
            "cost": row.cost.as_dict() if row.cost is not None else None,
            "max_query": row.max_query,
            "max_document": row.max_document,
            "note": row.note,
        }
        found |= {name: value for name, value in extra.items() if value not in (None, False, 0, "", {}, [])}
        return found | ({} if row.recall_lost is None else {"recall_lost": row.recall_lost})


@dataclass(frozen=True, repr=False)
class Board(Viewable):
    """Lines in their order, over the columns of one group and one measure."""

    shown_by: ClassVar = "r2med.render.scores.text:show_board"
    drawn_by: ClassVar = "r2med.render.scores.notebook:board_html"

    group: str
    measure: str
    tasks: Sequence[str]
    lines: Sequence[Line]
    notes: Sequence[str] = ()
    """What a reader must know, a sentence each."""
    left_out: int = 0
    """How many lines were cut off by a limit."""
    cost: bool = False
    """Whether costs are shown."""
    baseline: str = ""
    """The system that marks of significance are against."""
    details: Sequence[str] = ()
    """Which of `DETAILS` are shown."""
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


def line_labels(board: Board) -> list[str]:
    """Return names of lines; equal names are followed by their sources, but not those of local systems."""
    counts = Counter(line.row.name for line in board.lines)
    found: list[str] = []
    for line in board.lines:
        several = counts[line.row.name] > 1 and not line.row.own
        label = f"{line.row.name} ({', '.join(line.row.sources)})" if several else line.row.title or line.row.name
        while label in found:
            label += "'"
        found.append(label)
    return found

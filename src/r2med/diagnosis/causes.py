"""The causes of failure: what became of each query, and the shares of causes over tasks and between systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cached_property, partial
from html import escape
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from r2med.formatting import counted
from r2med.measure.bootstrap import average_intervals
from r2med.measure.figure import Figure, figure_dict


class Cause(Enum):
    """Fate of a query or of one of its relevant documents, the nearest to success first."""

    FOUND = "found", "among the first 10"
    LOW = "ranked low", "found, but below the first 10: a failure of ranking"
    LOST = "generation failed", "not found, and nothing usable was generated for the query"
    BRIDGE = "bridge missing", "not found, but it is when the gold answer is searched with: a failure of reasoning"
    TRUNCATED = (
        "truncated away",
        "not found even so, and what it shares with the answer lies beyond what the encoder reads",
    )
    UNREACHABLE = "out of reach", "not found even so: a failure of the index or the vocabulary"
    UNDECIDED = "undecided", "not found, and there is no gold answer to try"

    _value_: str
    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Make the sentence about a cause its meaning."""
        cause = object.__new__(cls)
        cause._value_, cause.meaning = value, meaning
        return cause


_ORDER = list(Cause)
LEVELS: Mapping[str, str] = {
    "queries": "of queries, by the relevant document that came nearest",
    "documents": "of relevant documents, averaged over queries",
}
"""Of what shares are taken."""


@dataclass(frozen=True)
class Placed:
    """Rank and cause of one relevant document."""

    document: str
    cause: Cause
    rank: int | None  # its place in the list, from 1; None when it is not in it
    oracle_rank: int | None = None  # its place when the gold answer is searched with, where that was tried
    beyond: float | None = None
    """The share of what it has in common with the answer, by weight, that the encoder never reads."""


@dataclass(frozen=True)
class QueryCause:
    """Causes of a query's relevant documents."""

    query: str
    positives: tuple[Placed, ...]  # its relevant documents, one at least
    reason: str = ""  # why a generation failed, or why nothing can be decided

    @property
    def cause(self) -> Cause:
        """Return the cause of the document that came nearest."""
        return min((placed.cause for placed in self.positives), key=_ORDER.index)

    @cached_property
    def summary(self) -> str:
        """Count the causes of all its relevant documents, in words.

        >>> places = [Placed("a", Cause.FOUND, 1), Placed("b", Cause.LOW, 20), Placed("c", Cause.LOW, 30)]
        >>> QueryCause("q", tuple(places)).summary, QueryCause("q", tuple(places[:1])).summary
        ('1 of 3 found · 2 ranked low', 'found')
        """
        counts = Counter(placed.cause for placed in self.positives)
        first, *others = ((counts[cause], cause.value) for cause in Cause if counts[cause])
        if len(self.positives) == 1:
            return str(first[1])
        return " · ".join([f"{first[0]} of {len(self.positives)} {first[1]}", *(f"{n} {name}" for n, name in others)])

    @property
    def all_found(self) -> bool:
        """Return whether nothing is missing."""
        return all(placed.cause is Cause.FOUND for placed in self.positives)

    def moves(self, other: QueryCause) -> list[tuple[Cause, Cause]]:
        """Return the cause of each relevant document here, and that in another system."""
        later = {placed.document: placed.cause for placed in other.positives}
        return [(placed.cause, later[placed.document]) for placed in self.positives]

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        positives = [asdict(placed) | {"cause": placed.cause.value} for placed in self.positives]
        return {"query": self.query, "cause": self.cause.value, "reason": self.reason, "positives": positives}


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The causes of one system on one task."""

    system: str
    task: str
    deep: int  # how deep a document may stand and still count as found at all
    queries: Sequence[QueryCause]
    oracle: str = ""
    """The run of the ledger that searched with the gold answers; empty where none was needed or possible."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = Counter(query.cause for query in self.queries)
        shares = ", ".join(f"{counts[cause]} {cause.value}" for cause in Cause if counts[cause])
        queries = counted(len(self.queries), "query", "queries")
        return f"Diagnosis({self.system!r} on {self.task!r}, {queries}: {shares})"

    def __str__(self) -> str:
        from r2med.diagnosis.tables import show_causes
        from r2med.render.table import print_plainly

        return print_plainly(show_causes, [self])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @cached_property
    def by_query(self) -> Mapping[str, QueryCause]:
        """Return the queries by their ids."""
        return {query.query: query for query in self.queries}

    def columns(self, of: str = "queries") -> dict[Cause, NDArray[np.float64]]:
        """Return for each cause and query 1 if it has it, else 0; of `documents`, the share of its relevant ones."""
        if of == "queries":
            causes = [[query.cause] for query in self.queries]
        else:
            causes = [[placed.cause for placed in query.positives] for query in self.queries]
        return {cause: np.array([several.count(cause) / len(several) for several in causes]) for cause in Cause}

    def shares(self, of: str = "queries") -> dict[Cause, float]:
        """Return the share of queries, or of relevant documents averaged over queries, per cause; they sum to 1."""
        return {cause: float(values.mean()) for cause, values in self.columns(of).items()}

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {
            "system": self.system,
            "task": self.task,
            "deep_cutoff": self.deep,
            "shares": {of: {cause.value: share for cause, share in self.shares(of).items()} for of in LEVELS},
            "oracle_run": self.oracle,
            "notes": list(self.notes),
            "queries": [query.as_dict() for query in self.queries],
        }


def mean_shares(diagnoses: Sequence[Diagnosis], of: str = "queries") -> dict[Cause, float]:
    """Average the shares over several tasks, as for any measure."""
    tasks = [diagnosis.shares(of) for diagnosis in diagnoses]
    return {cause: sum(shares[cause] for shares in tasks) / len(tasks) for cause in Cause}


def overall(diagnoses: Sequence[Diagnosis], of: str = "queries") -> dict[Cause, Figure]:
    """Return the shares over several tasks with their 95% intervals; the means are those of `mean_shares`."""
    tasks = [diagnosis.columns(of) for diagnosis in diagnoses]
    return {cause: average_intervals([columns[cause] for columns in tasks])[0] for cause in Cause}


def changes(before: Sequence[Diagnosis], after: Sequence[Diagnosis], of: str = "queries") -> dict[Cause, Figure]:
    """Return how the shares differ between two systems on the same tasks, paired by query, with 95% intervals."""
    rows = [(a.columns(of), b.columns(of)) for a, b in zip(before, after, strict=True)]
    return {cause: average_intervals([b[cause] - a[cause] for a, b in rows])[0] for cause in Cause}


def moves(
    before: Sequence[Diagnosis], after: Sequence[Diagnosis], of: str = "queries"
) -> dict[tuple[Cause, Cause], int]:
    """Count queries, or relevant documents, by their causes in the first system and in the second.

    The most frequent first.
    """
    counts: Counter[tuple[Cause, Cause]] = Counter()
    for a, b in zip(before, after, strict=True):
        for query in a.queries:
            other = b.by_query[query.query]
            counts.update([(query.cause, other.cause)] if of == "queries" else query.moves(other))
    return dict(counts.most_common())


def summary(systems: Sequence[Sequence[Diagnosis]]) -> dict[str, Any]:
    """Return the shape of `--json`: diagnoses, the shares over tasks, and their changes against the last system."""
    last = systems[-1]
    return {
        "diagnoses": [diagnosis.as_dict() for diagnoses in systems for diagnosis in diagnoses],
        "overall": {tasks[0].system: _levels(partial(overall, tasks)) for tasks in systems},
        "changes": {tasks[0].system: _levels(partial(changes, last, tasks)) for tasks in systems[:-1]},
        "against": last[0].system if len(systems) > 1 else "",
    }


def _levels(shares: Callable[[str], Mapping[Cause, Figure]]) -> dict[str, dict[str, Any]]:
    return {of: {cause.value: figure_dict(share, "mean") for cause, share in shares(of).items()} for of in LEVELS}

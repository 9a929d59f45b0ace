"""Rows of a run file of any format, and the run assembled from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.run import Run
from r2med.errors import DataError
from r2med.formatting import counted, describe
from r2med.lexical.ranking import Scores, as_float32


@dataclass
class QueryRows:
    """Rows of a query, in the order of the file."""

    documents: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    """Ranks; empty if the file has none."""


@dataclass
class FileRows:
    """Rows of a file."""

    lists: dict[str, QueryRows] = field(default_factory=dict)
    unscored: int = 0
    """Number of lists without scores."""
    double: bool = True
    """Whether the scores were in double precision, not in single."""

    def of(self, query: str) -> QueryRows:
        """Return the rows of a query, still empty if it is new."""
        rows = self.lists.get(query)
        if rows is None:
            rows = self.lists[query] = QueryRows()
        return rows


def as_score(value: Any, where: str) -> float:
    """Return a score as a number, or raise an error with the place."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: the score is {describe(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise DataError(f"{where}: the score is {number}, not a finite number")
    return number


def assemble(found: FileRows) -> tuple[Run, list[str]]:
    """Build the run of a file's rows; return it with a counted sentence for each kind of fix."""
    lists: dict[str, tuple[list[str], Scores]] = {}
    repeated = misranked = unsorted = 0
    for query, rows in found.lists.items():
        compared = as_float32(np.array(rows.scores))
        by_rank = sorted(range(len(rows.ranks)), key=rows.ranks.__getitem__)
        if _rises(compared[by_rank]):
            misranked += 1
        elif _rises(compared):
            unsorted += 1
        documents, scores = _folded(rows)
        repeated += len(rows.documents) - len(documents)
        lists[query] = (documents, np.array(scores, dtype=np.float64 if found.double else np.float32))
    counts = (
        (
            repeated,
            "row repeats a document of its",
            "rows repeat a document of their",
            "query; the best score was kept",
        ),
        (misranked, "list has", "lists have", "ranks that disagree with the scores; the scores decide"),
        (unsorted, "list was", "lists were", "not in the order of the scores, and sorted"),
        (found.unscored, "list has", "lists have", "no scores; the order given was kept"),
    )
    return Run.from_lists(lists), [f"{counted(count, one, many)} {what}" for count, one, many, what in counts if count]


def _rises(scores: NDArray[np.float32]) -> bool:
    """Return whether a later score is above an earlier one; ties may be in any order."""
    return bool((scores[1:] > scores[:-1]).any())


def _folded(rows: QueryRows) -> tuple[list[str], list[float]]:
    """Fold repeated documents, keeping the best score of each."""
    if len(set(rows.documents)) == len(rows.documents):
        return rows.documents, rows.scores
    best: dict[str, float] = {}
    for document, score in zip(rows.documents, rows.scores, strict=True):
        best[document] = max(score, best.get(document, score))
    return list(best), list(best.values())

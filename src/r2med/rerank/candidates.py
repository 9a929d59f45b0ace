"""Candidates of rerankers: the first documents of each list, and the list with their new scores.

Documents below the depth keep their order under the reranked ones, by new scores: from the lowest reranked score down,
each is lower by one (or by the smallest step that makes a difference), so that the ranking rule keeps the order. If its
new scores cannot be used, a query keeps the list it had, with its scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.errors import SpecError
from r2med.lexical.ranking import Scores, as_float32
from r2med.pipeline.stage import Context, Stage, note_incomplete

_LOWEST = float(np.finfo(np.float32).min) / 2  # below this there may be no room left for the tail of a list


@dataclass(frozen=True)
class CandidateList:
    """First documents of one query's list: the input of a reranker."""

    query: str  # the query's id
    text: str
    documents: Sequence[str]  # their ids, best first
    texts: Sequence[str]
    scores: Scores  # their scores so far

    def __len__(self) -> int:
        return len(self.documents)


Outcome = Scores | str  # new scores, one per candidate in their order, or the reason why the query keeps its order


def check_depth(name: str, depth: int) -> None:
    """Refuse a depth that reranks nothing."""
    if depth < 1:
        raise SpecError(f"{name}: depth must be at least 1, not {depth}")


def candidates(collection: Collection, run: Run, depth: int) -> list[CandidateList]:
    """Return each query's first `depth` documents with their texts, for every query that has any."""
    lists = []
    for query, text in collection.queries:
        ranking = run[query]
        documents = ranking.documents[:depth]
        if len(documents):
            texts = [collection.documents.text(document) for document in documents]
            lists.append(CandidateList(query, text, documents, texts, ranking.scores[:depth]))
    return lists


def checked(scores: Sequence[float] | Scores, candidates: CandidateList) -> Outcome:
    """Return the scores unchanged, unless their number is wrong or one is not a usable number.

    >>> two = CandidateList("q", "why?", ["d1", "d2"], ["one", "two"], np.array([2.0, 1.0]))
    >>> checked([0.5, float("nan")], two)
    'the score of d2 is nan'
    """
    try:
        column = np.asarray(scores, dtype=None if isinstance(scores, np.ndarray) else np.float64)
    except (TypeError, ValueError):
        return "the scores are not numbers"
    if column.ndim != 1 or len(column) != len(candidates):
        count = len(column) if column.ndim == 1 else f"an array of shape {column.shape}"
        return f"{count} scores for {len(candidates)} documents"
    if column.dtype not in (np.float32, np.float64):
        column = column.astype(np.float64)
    usable = np.isfinite(as_float32(column)) & (as_float32(column) > _LOWEST)
    if not usable.all():
        place = int((~usable).argmax())
        return f"the score of {candidates.documents[place]} is {column[place]}"
    return column


def in_order(order: Sequence[int], scores: Sequence[float] | Scores) -> NDArray[np.float64]:
    """Return scores that the ranking rule sorts in exactly this order: lowered slightly if they would tie or disagree.

    >>> in_order([1, 0, 2], [7.0, 7.0, 3.0]).argsort()[::-1].tolist()
    [1, 0, 2]
    """
    lowered = np.empty(len(order), dtype=np.float64)
    above = np.float32(np.inf)
    for place in order:
        value = float(scores[place])
        if not np.float32(value) < above:
            value = float(np.nextafter(above, np.float32(-np.inf)))
        lowered[place], above = value, np.float32(value)
    return lowered


def reranked(
    stage: Stage, run: Run, shown: Sequence[CandidateList], outcomes: Sequence[Outcome], context: Context
) -> Run:
    """Return the run with its candidates' new scores; a query without them keeps its order and is noted."""
    lists: dict[str, tuple[Sequence[str], Scores]] = {name: (row.documents, row.scores) for name, row in run}
    unusable: dict[str, str] = {}
    for query, outcome in zip((row.query for row in shown), outcomes, strict=True):
        if isinstance(outcome, str):
            unusable[query] = outcome
        else:
            documents = run[query].documents
            tail = np.empty(len(documents) - len(outcome), dtype=outcome.dtype)
            below = as_float32(outcome).min()
            for place in range(len(tail)):
                below = min(below - np.float32(1), np.nextafter(below, np.float32(-np.inf)))
                tail[place] = below
            lists[query] = documents, np.concatenate((outcome, tail))
    note_incomplete(stage, unusable, len(shown), context)
    return Run.from_lists(lists)

"""`Run`: ranked lists as columns, each in the order of the ranking rule.

The rule is trec_eval's: score descending, compared in single precision as trec_eval holds it, then document id
descending. Scores are stored as they were computed; only the comparison is in single precision.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.errors import R2medError
from r2med.lexical.ranking import Scores, rank


class Ranking(NamedTuple):
    """Ranked list of one query, best first."""

    documents: Sequence[str]
    scores: Scores


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Ranked lists for a set of queries, as columns; every list is in the order of the ranking rule.

    >>> run = Run.from_lists({"q1": (["d1", "d2"], [0.5, 0.7]), "q2": ([], [])})
    >>> run["q1"].documents, len(run), run.rows
    (['d2', 'd1'], 2, 2)
    """

    queries: Sequence[str]  # every query that was asked, also those for which nothing was found
    offsets: NDArray[np.int64]  # offsets at which each query's list starts; one more than there are queries
    documents: Sequence[str]  # document ids of all lists, one after another
    scores: Scores

    def __repr__(self) -> str:
        return f"Run({len(self.queries):,} queries, {len(self.documents):,} documents)"

    @classmethod
    def from_lists(cls, lists: Mapping[str, tuple[Sequence[str], Sequence[float] | Scores]]) -> Run:
        """Build from each query's documents and scores in any order. A document may appear once in a list."""
        ranked: dict[str, Ranking] = {}
        for query, (ids, values) in lists.items():
            column = np.asarray(values)
            if column.dtype not in (np.float32, np.float64):
                column = column.astype(np.float64)
            if len(ids) != len(column):
                raise ValueError(f"query {query}: {len(ids)} documents for {len(column)} scores")
            if np.isnan(column).any():
                raise R2medError(f"query {query}: the score of {ids[int(np.isnan(column).argmax())]} is not a number")
            if len(set(ids)) != len(ids):
                repeated = next(document for place, document in enumerate(ids) if document in ids[:place])
                raise R2medError(f"query {query}: document {repeated} appears more than once in its list")
            order = rank(ids, column)
            ranked[query] = Ranking([ids[place] for place in order.tolist()], column[order])
        return cls.from_ranked(ranked)

    @classmethod
    def from_ranked(cls, ranked: Mapping[str, Ranking]) -> Run:
        """Build from lists that are already in the order of the ranking rule."""
        offsets = np.zeros(len(ranked) + 1, dtype=np.int64)
        np.cumsum([len(ranking.documents) for ranking in ranked.values()], out=offsets[1:])
        documents = list(chain.from_iterable(ranking.documents for ranking in ranked.values()))
        # An empty list has no precision of its own and must not widen that of the others.
        columns = [ranking.scores for ranking in ranked.values() if len(ranking.scores)]
        scores = np.concatenate(columns) if columns else np.empty(0, dtype=np.float64)
        return cls(list(ranked), offsets, documents, scores)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return (
            list(self.queries) == list(other.queries)
            and np.array_equal(self.offsets, other.offsets)
            and list(self.documents) == list(other.documents)
            and self.scores.dtype == other.scores.dtype
            and np.array_equal(self.scores, other.scores)
        )

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[tuple[str, Ranking]]:
        return ((query, self[query]) for query in self.queries)

    def __contains__(self, query: str) -> bool:
        return query in self._place

    def __getitem__(self, query: str) -> Ranking:
        place = self._place[query]
        span = slice(int(self.offsets[place]), int(self.offsets[place + 1]))
        return Ranking(self.documents[span], self.scores[span])

    @property
    def rows(self) -> int:
        """Return the number of (query, document) rows."""
        return len(self.documents)

    @cached_property
    def _place(self) -> Mapping[str, int]:
        return {query: place for place, query in enumerate(self.queries)}

    def cut(self, depth: int) -> Run:
        """Cut each list to its first `depth` documents."""
        if depth < 0:
            raise ValueError(f"a depth of {depth}")
        return Run.from_ranked({query: Ranking(r.documents[:depth], r.scores[:depth]) for query, r in self})

    def without_self(self, queries: Container[str]) -> Run:
        """Leave the document whose id equals the query's out of the lists of these queries."""
        lists = {}
        for query, ranking in self:
            if query in queries and query in ranking.documents:
                place = ranking.documents.index(query)
                documents = [*ranking.documents[:place], *ranking.documents[place + 1 :]]
                ranking = Ranking(documents, np.delete(ranking.scores, place))
            lists[query] = ranking
        return Run.from_ranked(lists)

    def select(self, queries: Iterable[str]) -> Run:
        """Return only these queries' lists; a query that was never asked gets an empty one."""
        empty = Ranking([], np.empty(0, dtype=self.scores.dtype))
        return Run.from_ranked({query: self[query] if query in self._place else empty for query in queries})

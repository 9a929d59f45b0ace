"""Exact search in an inverted index: the best documents of a batch of queries, by MaxScore.

In a large collection terms are summed up for all documents in single precision, the rarest first. After some of them
no document can be among the best any more that is not nearly so already, whatever the common terms add, which weigh
little (MaxScore): so those are added only for the candidates that are left. The scores of the candidates, little more
than the list itself, are summed up anew in double precision in one fixed order, so that no score depends on how its
document was found. In a small collection all documents are scored in double precision at once.

The weight of a posting is up to the scorer: `r2med.lexical.scorers` has BM25 and the weights that a learned sparse
encoder gave.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.index import InvertedIndex
from r2med.lexical.ranking import top

Weights = Mapping[int, float]  # query: the numbers of its terms, and the weight of each
Places = NDArray[np.integer[Any]]
_COMMON = 4  # a term is common if more than one document in this many has it; common terms come last in a sum
_SCORES_AT_ONCE = 16_000_000
"""Scores per thread at a time; queries scored together share the work of weighting a term's postings."""
_MAX_THREADS = 4
_RARE = 64  # terms that fewer than one document in this many has are always summed up for all documents
_CANDIDATES = 256  # candidates are few enough if they are fewer than one document in this many
_FEW = 200_000  # among so few documents the sums of all are made in double precision at once
_ROUNDING = 2.0**-23


class BestDocuments(NamedTuple):
    """Best documents of a query by position, best first, and their scores."""

    places: NDArray[np.intp]
    scores: NDArray[np.float64]


class RoughImpacts(NamedTuple):
    """Weights of a term in the documents that have it, in single precision: `scale` times the values."""

    documents: Places
    values: NDArray[np.float32]
    scale: float


@dataclass(frozen=True, eq=False)
class PostingsScorer(ABC):
    """Scores of documents as sums over terms: weight of the term in the query times its weight in the document."""

    index: InvertedIndex

    @abstractmethod
    def max_impact(self, number: int) -> float:
        """Return an upper bound of the weight of a term in any document."""

    @abstractmethod
    def impacts(self, number: int, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weights of a term in documents at some places, given the values of its postings there."""

    @abstractmethod
    def rough_impacts(self, number: int) -> RoughImpacts:
        """Return the weights of a term in all documents that have it, in single precision."""

    @property
    def signed(self) -> bool:
        """Return whether a term may weigh less than zero, so that a sum may fall as terms are added."""
        return False

    def df(self, number: int) -> int:
        """Return the document frequency of a term."""
        return int(self.index.offsets[number + 1] - self.index.offsets[number])

    def best(
        self, queries: Sequence[Weights], depth: int, hidden: Sequence[int], threads: int = 1
    ) -> Iterator[BestDocuments]:
        """Yield each query's `depth` best documents by the ranking rule, of those that have any of its terms.

        `hidden` has the document to exclude for each query, -1 for none.
        """
        documents = len(self.index.lengths)
        size = max(1, _SCORES_AT_ONCE // max(1, documents))
        falls = self._falls(queries)
        search = self._search_all if falls or documents <= max(_FEW, 2 * depth) else self._search_candidates

        def search_batch(start: int) -> list[BestDocuments]:
            batch = slice(start, start + size)
            return list(search(queries[batch], depth, hidden[batch]))

        # numpy and scipy release the lock while they work on long columns.
        with ThreadPoolExecutor(min(_MAX_THREADS, threads)) as pool:
            for results in pool.map(search_batch, range(0, len(queries), size)):
                yield from results

    def _falls(self, queries: Sequence[Weights]) -> bool:
        return self.signed or any(weight < 0 for weights in queries for weight in weights.values())

    def _is_common(self, number: int) -> bool:
        return _COMMON * self.df(number) > len(self.index.lengths)

    def _search_all(self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]) -> Iterator[BestDocuments]:
        """Yield the best by the scores of all documents in double precision."""
        documents, falls = len(self.index.lengths), self._falls(queries)
        rare: dict[int, tuple[NDArray[np.intp], NDArray[np.float64]]] = {}
        common: dict[int, NDArray[np.float64]] = {}
        for number in sorted(set().union(*queries)):
            postings = self.index.postings(number)
            impacts = self.impacts(number, *postings)
            if self._is_common(number):
                common[number] = np.zeros(documents)
                common[number][postings.documents] = impacts
            else:
                rare[number] = postings.documents.astype(np.intp), impacts
        for weights, place in zip(queries, hidden, strict=True):
            # In the order of terms, so that documents with equal text get equal sums.
            numbers = sorted(weights.keys() & rare.keys())
            places = [rare[number][0] for number in numbers]
            weighted = [weights[number] * rare[number][1] for number in numbers]
            scores: NDArray[np.float64] = np.zeros(documents)
            if numbers:
                scores = np.bincount(np.concatenate(places), np.concatenate(weighted), documents)  # type: ignore[assignment]
            if place >= 0:
                scores[place] = -np.inf
            numbers = sorted(weights.keys() & common.keys())
            to_come = sum(weights[number] * self.max_impact(number) for number in numbers)
            bar = -np.inf if falls else _bar(scores, depth) * (1 - 1e-6) - to_come
            candidates = np.flatnonzero(scores >= bar)
            scores = scores[candidates]
            for number in numbers:
                scores += weights[number] * common[number][candidates]
            best = top(scores, depth, self.index.ties[candidates])
            best = best[scores[best] > 0]
            yield BestDocuments(candidates[best], scores[best])

    def _search_candidates(
        self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]
    ) -> Iterator[BestDocuments]:
        """Yield the best by rough sums, then the scores in double precision of those that may be among them."""
        rows = np.zeros((len(queries), len(self.index.lengths)), dtype=np.float32)
        sums = []
        users: dict[int, list[tuple[_Sums, float]]] = defaultdict(list)
        for row, weights, place in zip(rows, queries, hidden, strict=True):
            if place >= 0:
                row[place] = -np.inf
            to_come = sum(weight * self.max_impact(number) for number, weight in weights.items())
            sums.append(_Sums(row, depth, len(weights), to_come))
            for number, weight in weights.items():
                users[number].append((sums[-1], weight))
        for number in sorted(users, key=self.df):
            rough: RoughImpacts | None = None
            for query, weight in users[number]:
                if query.is_decided(self.df(number)):
                    query.waiting.append((number, weight))
                    continue
                if rough is None:
                    rough = self.rough_impacts(number)
                _add_column(query.row, rough.documents, rough.values, weight * rough.scale)
                query.to_come -= weight * self.max_impact(number)
        for query, weights, place in zip(sums, queries, hidden, strict=True):
            places = query.candidates(self)
            scores = np.zeros(len(places))
            for number in sorted(weights, key=lambda number: (self._is_common(number), number)):
                self.add_impacts(number, weights[number], places, scores)
            scores[places == place] = -np.inf
            best = top(scores, depth, self.index.ties[places])
            best = best[scores[best] > 0]
            yield BestDocuments(places[best].astype(np.intp), scores[best])

    def add_impacts(self, number: int, weight: float, places: NDArray[np.int32], scores: NDArray[np.float64]) -> None:
        """Add a term's weight in the documents at ascending places to their scores."""
        documents, values = self.index.postings(number)
        postings = np.searchsorted(documents, places)
        postings[postings == len(documents)] = 0
        here = np.flatnonzero(documents[postings] == places)
        scores[here] += weight * self.impacts(number, places[here], values[postings[here]])


@dataclass
class _Sums:
    """Sums of the rarest terms of a query per document, and what the other terms may add."""

    row: NDArray[np.float32]
    depth: int
    terms: int
    to_come: float  # the most that terms not yet added can add to a score
    waiting: list[tuple[int, float]] = field(default_factory=list)
    """The terms, with their weights, that are added only for candidates."""
    _open: NDArray[np.int32] | None = None
    _next_look: float = math.inf

    @property
    def _slack(self) -> float:
        # The share of the bar from which on a document may be among the best: sums and ranks are in single precision.
        return 1 - (2 * self.terms + 32) * _ROUNDING - 1e-6

    def is_decided(self, df: int) -> bool:
        """Return whether candidates are few enough before a term of this document frequency is added."""
        if self._open is None and df * _RARE > len(self.row) and self.to_come < self._next_look:
            threshold = _bar(self.row, self.depth) * self._slack - self.to_come * (1 + _ROUNDING)
            if threshold > 0:
                places = np.flatnonzero(self.row >= np.float32(threshold))
                if len(places) * _CANDIDATES <= len(self.row):
                    self._open = places.astype(np.int32)
            self._next_look = self.to_come / 1.5
        return self._open is not None

    def candidates(self, scorer: PostingsScorer) -> NDArray[np.int32]:
        """Return the documents that may be among the best, in ascending order."""
        if self._open is None:
            bar = _bar(self.row, self.depth)
            is_candidate = self.row >= np.float32(bar * self._slack) if bar > 0 else self.row > 0
            return np.flatnonzero(is_candidate).astype(np.int32)
        scores = self.row[self._open].astype(np.float64)
        for number, weight in self.waiting:
            scorer.add_impacts(number, weight, self._open, scores)
        bar = np.partition(scores, len(scores) - self.depth)[len(scores) - self.depth]
        remaining: NDArray[np.int32] = self._open[scores >= bar * self._slack]
        return remaining


def _bar(row: NDArray[np.floating[Any]], depth: int) -> float:
    """Return a score that at least `depth` documents reach: they are the best of parts of the collection."""
    if depth >= len(row):
        return 0.0
    width = max(1, min(256, len(row) // (8 * depth)))
    # Documents at a fixed stride are a part: long rows are compared faster than short ones.
    best = row[: len(row) // width * width].reshape(width, -1).max(axis=0)
    return float(np.partition(best, len(best) - depth)[len(best) - depth])


def _add_column(row: NDArray[np.float32], places: Places, values: NDArray[np.float32], factor: float) -> None:
    from scipy.sparse._sparsetools import csc_matvec  # a heavy import that small collections need not pay for

    # The product of a one-column matrix adds to a row in place and takes postings as they are.
    bounds = np.array([0, len(places)], dtype=np.int32)
    csc_matvec(len(row), 1, bounds, places, values, np.array([factor], dtype=np.float32), row)

"""Exact search in an inverted index: the best documents of a batch of queries, by MaxScore.

Terms are summed up for all documents in single precision, the rarest first. After some of them no document can be
among the best any more that is not nearly so already, whatever the common terms add, which weigh little (MaxScore): so
those are added only for documents still in question. What is left then, little more than the list itself, is summed up
anew in double precision in one fixed order, so that no score depends on how its document was found.

The weight of a posting is up to the scorer: `r2med.lexical.scorers` has BM25 and the weights that a learned sparse
encoder gave.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.arrays import slices_up_to
from r2med.lexical.index import InvertedIndex
from r2med.lexical.ranking import top
from r2med.settings import thread_count

Weights = Mapping[int, float]
"""Query: the numbers of its terms, and the weight of each."""
Places = NDArray[np.integer[Any]]
_Impacts = tuple[NDArray[np.intp], NDArray[np.float64]]
"""Documents in which a term occurs, and its weight in each."""
_COMMON = 4
"""A term is common if more than one document in this many has it; common terms come last in a sum."""
_SCORES_AT_ONCE = 16_000_000
"""Scores per thread at a time; queries scored together share the work of weighting a term's postings."""
_THREADS = 4
"""The most batches that are scored at a time."""
_FEW = 200_000
"""Among so few documents the sums of all are made in double precision, a batch of queries at a time."""
_FEW_AT_ONCE = 4_000_000
"""Sums of such collections held at a time."""
_POSTINGS_AT_ONCE = 1 << 16
"""Postings of such collections weighted at a time: few enough to stay in the processor's cache."""
_RARE = 64
"""Terms that fewer than one document in this many has are always summed up for all documents."""
_IN_QUESTION = 256
"""Few enough are left in question if they are fewer than one document in this many."""
_COMPILED = 200_000
"""Documents from which on compiled code is worth its loading time."""
_ROUNDING = 2.0**-23


class BestDocuments(NamedTuple):
    """Best documents of a query by position, best first, and their scores."""

    places: NDArray[np.intp]
    scores: NDArray[np.float64]


class _RowOfSums(NamedTuple):
    """Scores of a query: all of them, or those at some places among which its best are."""

    scores: NDArray[np.float64]
    left: NDArray[np.intp] | slice


class _Scatter(Protocol):
    def __call__(self, row: NDArray[np.float32], places: Places, values: NDArray[np.float32], factor: float) -> None:
        """Add `factor` times the values to a row at places that are all different."""


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
    def most(self, number: int) -> float:
        """Return an upper bound of the weight of a term in any document."""

    @abstractmethod
    def factor(self, number: int) -> float:
        """Return the factor of a term's weight that is equal in all documents."""

    @abstractmethod
    def shares(self, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the factor of weights that depends on the document, given the values of the postings there."""

    def impacts(self, number: int, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weights of a term in documents at some places, given the values of its postings there."""
        return self.factor(number) * self.shares(places, values)

    @abstractmethod
    def rough_impacts(self, number: int) -> RoughImpacts:
        """Return the weights of a term in all documents that have it, in single precision."""

    @property
    def signed(self) -> bool:
        """Return whether a term may weigh less than zero, so that a sum may fall as terms are added."""
        return False

    def holding(self, number: int) -> int:
        """Return the document frequency of a term."""
        return int(self.index.offsets[number + 1] - self.index.offsets[number])

    def holdings(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """Return the document frequencies of several terms."""
        chosen = np.array(numbers, dtype=np.intp)
        return (self.index.offsets.take(chosen + 1) - self.index.offsets.take(chosen)).astype(np.int64)

    def best(self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]) -> Iterator[BestDocuments]:
        """Yield each query's `depth` best documents by the ranking rule, of those that have any of its terms.

        `hidden` has the document to exclude for each query, -1 for none.
        """
        documents = len(self.index.lengths)
        if documents <= max(_FEW, 2 * depth) or self._falls(queries):
            yield from self._best_of_few(queries, depth, hidden)
            return
        from concurrent.futures import ThreadPoolExecutor  # an import that small collections need not pay for

        size = max(1, _SCORES_AT_ONCE // max(1, documents))

        def of_batch(start: int) -> list[BestDocuments]:
            batch, unseen = queries[start : start + size], hidden[start : start + size]
            in_question = self._in_question(batch, depth, unseen)
            columns = zip(batch, in_question, unseen, strict=True)
            return [self._ranked(weights, places, depth, place) for weights, places, place in columns]

        # numpy and scipy release the lock while they work on long columns.
        with ThreadPoolExecutor(min(_THREADS, thread_count())) as threads:
            for found in threads.map(of_batch, range(0, len(queries), size)):
                yield from found

    def _falls(self, queries: Sequence[Weights]) -> bool:
        """Return whether adding a term may lower a sum, so that no document can be ruled out before the end."""
        return self.signed or any(weight < 0 for weights in queries for weight in weights.values())

    def _best_of_few(self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]) -> Iterator[BestDocuments]:
        """Yield the best by rows of sums that are exact for every document that may be among them."""
        size = max(1, _FEW_AT_ONCE // max(1, len(self.index.lengths)))
        for start in range(0, len(queries), size):
            span = slice(start, start + size)
            for row, left in self._sums_of_few(queries[span], depth, hidden[span]):
                places = left if isinstance(left, np.ndarray) else _nearly_best(row, depth, 1 - 1e-6)
                best = places[top(row[places], depth, self.index.ties[places])]
                best = best[row[best] > 0]
                yield BestDocuments(best, row[best])

    def _sums_of_few(self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]) -> list[_RowOfSums]:
        """Sum up rare terms for all documents; what common ones may add then decides for most of them that they
        cannot be among the best, so common terms are added only for those still in question."""
        used = sorted(set().union(*queries))
        is_common = _COMMON * self.holdings(used) > len(self.index.lengths)
        common = {used[place] for place in np.flatnonzero(is_common).tolist()}
        rare = dict(self._impacts([number for number in used if number not in common]))
        depth = len(self.index.lengths) if self._falls(queries) else depth
        rows = []
        for weights, place in zip(queries, hidden, strict=True):
            row = self._summed(weights, rare)
            if place >= 0:
                row[place] = -np.inf
            rows.append(_RowOfSums(row, self._left(row, weights, depth, common)))
        for number, (places, impacts) in self._impacts(sorted(common)):
            everywhere = np.zeros(len(self.index.lengths))
            everywhere[places] = impacts
            for (row, left), weights in zip(rows, queries, strict=True):
                if number in weights:
                    row[left] += weights[number] * everywhere[left]
        return rows

    def _summed(self, weights: Weights, impacts: Mapping[int, _Impacts]) -> NDArray[np.float64]:
        """Sum up the terms of a query for every document, as far as their impacts are given."""
        # In the order of terms, so that documents with equal text get equal sums.
        numbers = sorted(impacts.keys() & weights.keys())
        if not numbers:
            return np.zeros(len(self.index.lengths))
        places, values = (
            np.concatenate(column) for column in zip(*(impacts[number] for number in numbers), strict=True)
        )
        held = [len(impacts[number][0]) for number in numbers]
        values *= np.repeat([weights[number] for number in numbers], held)
        row: NDArray[np.float64] = np.bincount(places, values, minlength=len(self.index.lengths))  # type: ignore[assignment]
        return row

    def _left(
        self, row: NDArray[np.float64], weights: Weights, depth: int, common: set[int]
    ) -> NDArray[np.intp] | slice:
        """Return the documents that may be among the best once common terms are added to a row of sums."""
        if depth >= len(row):
            return slice(None)
        to_come = sum(self._most(number, weight) for number, weight in weights.items() if number in common)
        # Ranks are compared in single precision; the margin is wider than its rounding.
        places = np.flatnonzero(row + to_come >= _bar(row, depth) * (1 - 1e-6))
        return places if 8 * len(places) < len(row) else slice(None)

    def _impacts(self, numbers: Sequence[int]) -> Iterator[tuple[int, _Impacts]]:
        """Yield for each term the documents in which it occurs, and its weight in each of them."""
        for part in slices_up_to(self.holdings(numbers), _POSTINGS_AT_ONCE):
            some = numbers[part]
            counts, (documents, values) = self.index.gathered(some)
            places = documents.astype(np.intp)
            impacts = np.repeat([self.factor(number) for number in some], counts) * self.shares(places, values)
            ends = np.cumsum(counts).tolist()
            for number, start, end in zip(some, [0, *ends], ends, strict=False):
                yield number, (places[start:end], impacts[start:end])

    def _ranked(self, weights: Weights, places: NDArray[np.int32], depth: int, hidden: int) -> BestDocuments:
        scores = self._exact(weights, places)
        scores[places == hidden] = -np.inf
        best = top(scores, depth, self.index.ties[places])
        best = best[scores[best] > 0]
        return BestDocuments(places[best].astype(np.intp), scores[best])

    def _exact(self, weights: Weights, places: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the scores of documents at ascending places, in double precision."""
        scores = np.zeros(len(places))
        if not weights:
            return scores
        # In the order of terms, so that documents with equal text get equal sums.
        for number in sorted(weights, key=lambda number: (self._is_common(number), number)):
            here, values = self._values_at(number, places)
            scores[here] += weights[number] * self.impacts(number, places[here], values)
        return scores

    def _values_at(self, number: int, places: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Find which of the documents at ascending places have a term, and the values of its postings there."""
        documents, values = self.index.postings(number)
        if 16 * len(places) > len(documents):
            rank = np.searchsorted(places, documents)
            found = np.flatnonzero(places[np.minimum(rank, len(places) - 1)] == documents) if len(places) else rank[:0]
            return rank[found], values[found]
        rank = np.searchsorted(documents, places)
        here = np.flatnonzero(documents[np.minimum(rank, len(documents) - 1)] == places)
        return here, values[rank[here]]

    def _in_question(
        self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]
    ) -> Iterator[NDArray[np.int32]]:
        """Yield for each query the documents, in ascending order, among which its best certainly are."""
        rows = np.zeros((len(queries), len(self.index.lengths)), dtype=np.float32)
        sums = [
            _Sums(row, depth, len(weights), sum(self._most(number, weight) for number, weight in weights.items()))
            for row, weights in zip(rows, queries, strict=True)
        ]
        for row, place in zip(rows, hidden, strict=True):
            if place >= 0:
                row[place] = -np.inf
        self._add_all(queries, sums)
        for query in sums:
            yield query.candidates(self)

    def _add_all(self, queries: Sequence[Weights], sums: Sequence[_Sums]) -> None:
        users = _users(queries)
        add = scatter(len(self.index.lengths))
        for number in sorted(users, key=self.holding):
            rough: RoughImpacts | None = None
            for query, weight in users[number]:
                if sums[query].is_decided(self.holding(number)):
                    sums[query].waiting.append((number, weight))
                    continue
                if rough is None:
                    rough = self.rough_impacts(number)
                add(sums[query].row, rough.documents, rough.values, weight * rough.scale)
                sums[query].to_come -= self._most(number, weight)

    def _most(self, number: int, weight: float) -> float:
        """Return the most that a term can add to a query's score."""
        return weight * self.most(number)

    def _is_common(self, number: int) -> bool:
        return _COMMON * self.holding(number) > len(self.index.lengths)

    def add_for(self, places: NDArray[np.int32], number: int, weight: float, scores: NDArray[np.float64]) -> None:
        """Add a term's weight in the documents at ascending places to their scores."""
        here, values = self._values_at(number, places)
        scores[here] += weight * self.impacts(number, places[here], values)


def _users(queries: Sequence[Weights]) -> Mapping[int, list[tuple[int, float]]]:
    """Map each term to the queries that have it, by their places, and its weight in each."""
    users: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for query, weights in enumerate(queries):
        for number, weight in weights.items():
            users[number].append((query, weight))
    return users


@dataclass
class _Sums:
    """Sums of the rarest terms of a query per document, and what the other terms may add."""

    row: NDArray[np.float32]
    depth: int
    terms: int
    to_come: float
    """The most that terms not yet added can add to a score."""
    waiting: list[tuple[int, float]] = field(default_factory=list)
    """The terms, with their weights, that are added only for documents in question."""
    _open: NDArray[np.int32] | None = None
    _next_look: float = math.inf

    @property
    def _slack(self) -> float:
        """Return the share of the bar from which on a document may be among the best: sums are rounded, ranks compared
        in single precision."""
        return 1 - (2 * self.terms + 32) * _ROUNDING - 1e-6

    def is_decided(self, holding: int) -> bool:
        """Return whether few enough documents are in question before a term of this document frequency is added."""
        if self._open is None and holding * _RARE > len(self.row) and self.to_come < self._next_look:
            bar = _bar(self.row, self.depth)
            least = bar * self._slack - self.to_come * (1 + _ROUNDING)
            if least > 0:
                places = np.flatnonzero(self.row >= np.float32(least))
                if len(places) * _IN_QUESTION <= len(self.row):
                    self._open = places.astype(np.int32)
            self._next_look = self.to_come / 1.5
        return self._open is not None

    def candidates(self, scorer: PostingsScorer) -> NDArray[np.int32]:
        """Return the documents that may be among the best, in ascending order."""
        if self._open is None:
            return _nearly_best(self.row, self.depth, self._slack).astype(np.int32)
        scores = self.row[self._open].astype(np.float64)
        for number, weight in self.waiting:
            scorer.add_for(self._open, number, weight, scores)
        bar = float(np.partition(scores, len(scores) - self.depth)[len(scores) - self.depth])
        kept: NDArray[np.int32] = self._open[scores >= bar * self._slack]
        return kept


def _bar(row: NDArray[np.floating[Any]], depth: int) -> float:
    """Return a score that at least `depth` documents reach: they are the best of parts of the collection."""
    width = max(1, min(256, len(row) // (8 * depth)))
    # Documents at a fixed stride are a part: long rows are compared faster than short ones.
    best = row[: len(row) // width * width].reshape(width, -1).max(axis=0)
    return float(np.partition(best, len(best) - depth)[len(best) - depth])


def _nearly_best(row: NDArray[np.floating[Any]], depth: int, slack: float) -> NDArray[np.intp]:
    """Return the documents, in ascending order, with a score above zero that may be among the best, with some slack."""
    bar = _bar(row, depth) if depth < len(row) else 0.0
    chosen: NDArray[np.bool_] = row >= row.dtype.type(bar * slack) if bar > 0 else row > 0
    return np.flatnonzero(chosen)


@cache
def scatter(documents: int) -> _Scatter:
    """Return the function that adds values to the rows of a collection of this size."""
    return _compiled_scatter() if documents >= _COMPILED else _plain_scatter


def _plain_scatter(row: NDArray[np.float32], places: Places, values: NDArray[np.float32], factor: float) -> None:
    np.add.at(row, places.astype(np.intp), values * np.float32(factor))


def _compiled_scatter() -> _Scatter:
    """Wrap scipy's product of a one-column matrix, which adds to a row in place and takes postings as they are."""
    try:
        from scipy.sparse._sparsetools import csc_matvec  # a heavy import that small collections need not pay for
    except ImportError:
        return _plain_scatter

    def add(row: NDArray[np.float32], places: Places, values: NDArray[np.float32], factor: float) -> None:
        bounds = np.array([0, len(places)], dtype=np.int32)
        csc_matvec(len(row), 1, bounds, places, values, np.array([factor], dtype=np.float32), row)

    return add

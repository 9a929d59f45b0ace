"""BM25 scores of every document that matters: exact, a batch of queries at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.inverted import Index

Weights = Mapping[int, float]
"""A query: the numbers of its terms, and how much each counts."""

Length = TypeVar("Length", float, NDArray[np.float64])

_Row = NDArray[np.float64]
_Places = NDArray[np.intp] | slice

_COMMON = 4
"""A term is common when one document in so many has it."""
_SCORES_AT_ONCE = 4_000_000
"""How many scores are held at a time; queries scored together share the work of weighting a term's postings."""


@dataclass(frozen=True)
class Scorer:
    """The BM25 of Lucene 8 as gensim writes it: idf * tf / (tf + k1 * (1 - b + b * length / average length)).

    Rare terms are summed up for all documents. That decides already for most of them that they cannot be among the
    best whatever common terms, which weigh little, may add; so those are added only for documents still in question.
    """

    index: Index
    k1: float
    b: float

    def idf(self, number: int) -> float:
        """How rare a term is."""
        return math.log(len(self.index.lengths) + 1.0) - math.log(self._holding(number) + 0.5)

    def damping(self, length: Length) -> Length:
        """What is added to a frequency below the fraction line, for one text's length or a column of lengths."""
        return self.k1 * (1 - self.b + self.b * length / self.index.average_length)

    def scores(self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]) -> Iterator[_Row]:
        """Every document's score for each query, right for at least the `depth` best and all that tie with them.

        Others may have less than their due, never so much that they would look better than one of the best. `hidden`
        is the document that a query shall not see, -1 for none; its score is minus infinity.
        """
        size = max(1, _SCORES_AT_ONCE // max(1, len(self.index.lengths)))
        for start in range(0, len(queries), size):
            span = slice(start, start + size)
            yield from self._batch(queries[span], depth, hidden[span])

    def _batch(self, queries: Sequence[Weights], depth: int, hidden: Sequence[int]) -> NDArray[np.float64]:
        rows = np.zeros((len(queries), len(self.index.lengths)))
        users: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for query, weights in enumerate(queries):
            for number, weight in weights.items():
                users[number].append((query, weight))
        # In the order of terms, so that documents with equal text get equal sums.
        for number in sorted(number for number in users if not self._is_common(number)):
            places, impacts = self._impacts(number)
            for query, weight in users[number]:
                np.add.at(rows[query], places, weight * impacts)
        for row, place in zip(rows, hidden, strict=True):
            if place >= 0:
                row[place] = -np.inf
        open_places = [self._in_question(row, weights, depth) for row, weights in zip(rows, queries, strict=True)]
        for number in sorted(number for number in users if self._is_common(number)):
            places, impacts = self._impacts(number)
            everywhere = np.zeros(len(self.index.lengths))
            everywhere[places] = impacts
            for query, weight in users[number]:
                rows[query][open_places[query]] += weight * everywhere[open_places[query]]
        return rows

    def _in_question(self, row: _Row, weights: Weights, depth: int) -> _Places:
        """The documents that may be among the `depth` best once common terms are added to a row of sums."""
        if depth >= len(row):
            return slice(None)
        # No fraction tf / (tf + damping) exceeds 1.
        to_come = sum(weight * self.idf(number) for number, weight in weights.items() if self._is_common(number))
        worst_of_best = np.partition(row, len(row) - depth)[len(row) - depth]
        # Ranks are compared in single precision; the margin is wider than its rounding.
        places = np.flatnonzero(row + to_come >= worst_of_best * (1 - 1e-6))
        return places if 8 * len(places) < len(row) else slice(None)

    def _impacts(self, number: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Where a term occurs, and what it weighs in each of those documents."""
        documents, frequencies = self.index.postings(number)
        places = documents.astype(np.intp)
        return places, self.idf(number) * (frequencies / (frequencies + self._damping[places]))

    def _holding(self, number: int) -> int:
        return int(self.index.offsets[number + 1] - self.index.offsets[number])

    def _is_common(self, number: int) -> bool:
        return _COMMON * self._holding(number) > len(self.index.lengths)

    @cached_property
    def _damping(self) -> NDArray[np.float64]:
        return self.damping(self.index.lengths.astype(np.float64))

"""Weights of terms in documents: BM25 from term frequencies and lengths, and impacts as an encoder gave them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.arrays import offsets_of
from r2med.lexical.index import InvertedIndex
from r2med.lexical.search import Places, PostingsScorer, RoughImpacts
from r2med.lexical.vectors import SparseVectors

Length = TypeVar("Length", float, NDArray[np.float64])


@dataclass(frozen=True, eq=False)
class Scorer(PostingsScorer):
    """BM25 of Lucene 8 as gensim writes it: idf * tf / (tf + k1 * (1 - b + b * length / average length))."""

    k1: float
    b: float

    def idf(self, number: int) -> float:
        """Return the idf of a term."""
        idf = self._idfs.get(number)
        if idf is None:
            idf = self._idfs[number] = math.log(len(self.index.lengths) + 1.0) - math.log(self.df(number) + 0.5)
        return idf

    def damping(self, length: Length) -> Length:
        """Return what is added to a frequency in the denominator, for one text's length or a column of lengths."""
        return self.k1 * (1 - self.b + self.b * length / self._average_length)

    def max_impact(self, number: int) -> float:
        """Return the idf, because the fraction tf / (tf + damping) never exceeds 1."""
        return self.idf(number)

    def impacts(self, number: int, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the idf times the fractions tf / (tf + damping)."""
        weights: NDArray[np.float64] = self.idf(number) * (values / (values + self._dampings[places]))
        return weights

    def rough_impacts(self, number: int) -> RoughImpacts:
        """Return the fractions tf / (tf + damping) in single precision, to be multiplied by the idf."""
        documents, frequencies = self.index.postings(number)
        denominators = self._rough_dampings.take(documents)
        fractions = frequencies.astype(np.float32)
        denominators += fractions
        fractions /= denominators
        return RoughImpacts(documents, fractions, self.idf(number))

    @cached_property
    def _idfs(self) -> dict[int, float]:
        return {}

    @cached_property
    def _average_length(self) -> float:
        return self.index.average_length

    @cached_property
    def _dampings(self) -> NDArray[np.float64]:
        return self.damping(self.index.lengths.astype(np.float64))

    @cached_property
    def _rough_dampings(self) -> NDArray[np.float32]:
        return self._dampings.astype(np.float32)


@dataclass(frozen=True)
class ImpactScorer(PostingsScorer):
    """Scorer in which the value of a posting is the weight of its term in the document."""

    def max_impact(self, number: int) -> float:
        """Return the largest weight of the term in any document."""
        return float(self._largest[number])

    def impacts(self, number: int, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the values as they are."""
        return values.astype(np.float64)

    def rough_impacts(self, number: int) -> RoughImpacts:
        """Return the values as they are."""
        documents, values = self.index.postings(number)
        return RoughImpacts(documents, values.astype(np.float32, copy=False), 1.0)

    @cached_property
    def signed(self) -> bool:
        """Return whether any weight is below zero."""
        return bool(len(self.index.values)) and float(self.index.values.min()) < 0

    @cached_property
    def _largest(self) -> NDArray[np.float64]:
        if not len(self.index.terms):
            return np.empty(0)
        return np.maximum.reduceat(self.index.values, self.index.offsets[:-1]).astype(np.float64)


def pruned(index: InvertedIndex, max_terms: int) -> InvertedIndex:
    """Return an index in which each document keeps at most this many terms, those with the largest weights."""
    numbers = np.repeat(np.arange(len(index.terms), dtype=np.int32), np.diff(index.offsets))
    # By document, then term: within a term documents ascend already.
    order = np.argsort(index.documents, kind="stable")
    vectors = SparseVectors(offsets_of(index.lengths), numbers[order], np.asarray(index.values)[order])
    vectors = vectors.heaviest(max_terms)
    back = np.lexsort((vectors.owners, vectors.dimensions))
    dfs = np.bincount(vectors.dimensions, minlength=len(index.terms))
    return InvertedIndex(
        [index.terms[number] for number in np.flatnonzero(dfs).tolist()],
        offsets_of(dfs[dfs > 0]),
        vectors.owners[back].astype(np.int32),
        vectors.weights[back],
        vectors.counts.astype(np.int32),
        index.ties,
    )

"""BM25: what a term weighs in a document, from how often it occurs there and how long the document is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.index import InvertedIndex
from r2med.lexical.search import Places, PostingsScorer, RoughImpacts
from r2med.lexical.vectors import SparseVectors

Length = TypeVar("Length", float, NDArray[np.float64])


@dataclass(frozen=True, eq=False)
class Scorer(PostingsScorer):
    """The BM25 of Lucene 8 as gensim writes it: idf * tf / (tf + k1 * (1 - b + b * length / average length))."""

    k1: float
    b: float

    def idf(self, number: int) -> float:
        """How rare a term is."""
        known = self._idfs.get(number)
        return self.idfs([number])[number] if known is None else known

    def idfs(self, numbers: Iterable[int]) -> Mapping[int, float]:
        """How rare terms are, by their numbers: these, and others that were asked for before."""
        known = self._idfs
        unknown = [number for number in numbers if number not in known]
        most = math.log(len(self.index.lengths) + 1.0)
        for number, held in zip(unknown, self.holdings(unknown).tolist(), strict=True):
            known[number] = most - math.log(held + 0.5)
        return known

    def damping(self, length: Length) -> Length:
        """What is added to a frequency below the fraction line, for one text's length or a column of lengths."""
        return self.k1 * (1 - self.b + self.b * length / self.index.average_length)

    def most(self, number: int) -> float:
        """The idf, for no fraction tf / (tf + damping) exceeds 1."""
        return self.idf(number)

    def factor(self, number: int) -> float:
        """The idf."""
        return self.idf(number)

    def shares(self, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """The fractions tf / (tf + damping)."""
        found: NDArray[np.float64] = values / (values + self._exact_dampings[places])
        return found

    def rough_impacts(self, number: int) -> RoughImpacts:
        """The fractions tf / (tf + damping) in single precision, to be taken times the idf."""
        documents, frequencies = self.index.postings(number)
        below = self._dampings.take(documents)
        above = frequencies.astype(np.float32)
        below += above
        above /= below
        return RoughImpacts(documents, above, self.idf(number))

    @cached_property
    def _idfs(self) -> dict[int, float]:
        """What has been computed; most terms are asked for again and again."""
        return {}

    @cached_property
    def _exact_dampings(self) -> NDArray[np.float64]:
        return self.damping(self.index.lengths.astype(np.float64))

    @cached_property
    def _dampings(self) -> NDArray[np.float32]:
        return self._exact_dampings.astype(np.float32)


@dataclass(frozen=True)
class ImpactScorer(PostingsScorer):
    """A posting's value is what its term weighs in the document."""

    def most(self, number: int) -> float:
        """The largest weight of the term in any document."""
        return float(self._largest[number])

    def factor(self, number: int) -> float:
        """One: what a term weighs is another thing in every document."""
        return 1.0

    def shares(self, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """The values as they are."""
        return values.astype(np.float64)

    def rough_impacts(self, number: int) -> RoughImpacts:
        """The values as they are."""
        documents, values = self.index.postings(number)
        return RoughImpacts(documents, values.astype(np.float32, copy=False), 1.0)

    @cached_property
    def signed(self) -> bool:
        """Whether any weight is below zero."""
        return bool(len(self.index.values)) and float(self.index.values.min()) < 0

    @cached_property
    def _largest(self) -> NDArray[np.float64]:
        if not len(self.index.terms):
            return np.empty(0)
        return np.maximum.reduceat(self.index.values, self.index.offsets[:-1]).astype(np.float64)


def pruned(index: InvertedIndex, most: int) -> InvertedIndex:
    """An index in which each document keeps at most so many terms, those that weigh most in it."""
    numbers = np.repeat(np.arange(len(index.terms), dtype=np.int32), np.diff(index.offsets))
    # By document, then term: within a term documents ascend already.
    order = np.argsort(index.documents, kind="stable")
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(index.lengths, dtype=np.int64)])
    kept = SparseVectors(offsets, numbers[order], np.asarray(index.values)[order]).heaviest(most)
    back = np.lexsort((kept.owners, kept.dimensions))
    held = np.bincount(kept.dimensions, minlength=len(index.terms))
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(held[held > 0])])
    terms = [term for term, count in zip(index.terms, held.tolist(), strict=True) if count]
    documents = kept.owners[back].astype(np.int32)
    return InvertedIndex(terms, bounds, documents, kept.weights[back], kept.counts.astype(np.int32), index.ties)

"""Weights of terms in documents: BM25 from term frequencies and lengths, and impacts as an encoder gave them."""

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
    """BM25 of Lucene 8 as gensim writes it: idf * tf / (tf + k1 * (1 - b + b * length / average length))."""

    k1: float
    b: float

    def idf(self, number: int) -> float:
        """Return the idf of a term."""
        known = self._idfs.get(number)
        return self.idfs([number])[number] if known is None else known

    def idfs(self, numbers: Iterable[int]) -> Mapping[int, float]:
        """Return the idf of these terms by number, and of others that were computed before."""
        known = self._idfs
        unknown = [number for number in numbers if number not in known]
        most = math.log(len(self.index.lengths) + 1.0)
        for number, held in zip(unknown, self.holdings(unknown).tolist(), strict=True):
            known[number] = most - math.log(held + 0.5)
        return known

    def damping(self, length: Length) -> Length:
        """Return what is added to a frequency in the denominator, for one text's length or a column of lengths."""
        return self.k1 * (1 - self.b + self.b * length / self.index.average_length)

    def most(self, number: int) -> float:
        """Return the idf, because the fraction tf / (tf + damping) never exceeds 1."""
        return self.idf(number)

    def factor(self, number: int) -> float:
        """Return the idf."""
        return self.idf(number)

    def shares(self, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the fractions tf / (tf + damping)."""
        found: NDArray[np.float64] = values / (values + self._exact_dampings[places])
        return found

    def rough_impacts(self, number: int) -> RoughImpacts:
        """Return the fractions tf / (tf + damping) in single precision, to be multiplied by the idf."""
        documents, frequencies = self.index.postings(number)
        below = self._dampings.take(documents)
        above = frequencies.astype(np.float32)
        below += above
        above /= below
        return RoughImpacts(documents, above, self.idf(number))

    @cached_property
    def _idfs(self) -> dict[int, float]:
        """Return the cache of idfs; most terms are needed again and again."""
        return {}

    @cached_property
    def _exact_dampings(self) -> NDArray[np.float64]:
        return self.damping(self.index.lengths.astype(np.float64))

    @cached_property
    def _dampings(self) -> NDArray[np.float32]:
        return self._exact_dampings.astype(np.float32)


@dataclass(frozen=True)
class ImpactScorer(PostingsScorer):
    """Scorer in which the value of a posting is the weight of its term in the document."""

    def most(self, number: int) -> float:
        """Return the largest weight of the term in any document."""
        return float(self._largest[number])

    def factor(self, number: int) -> float:
        """Return 1, because weights differ between documents."""
        return 1.0

    def shares(self, places: Places, values: NDArray[Any]) -> NDArray[np.float64]:
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


def pruned(index: InvertedIndex, most: int) -> InvertedIndex:
    """Return an index in which each document keeps at most this many terms, those with the largest weights."""
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

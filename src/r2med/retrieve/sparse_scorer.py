"""Scores of learned sparse vectors: the dot product of a query's weights and a document's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.encode.sparse_vectors import SparseVectors
from r2med.retrieve.inverted_index import InvertedIndex
from r2med.retrieve.postings_search import Places, PostingsScorer, RoughImpacts


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

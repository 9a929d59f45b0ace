"""Sparse vectors: of thousands of dimensions, each a term, the few that are not zero, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.arrays import offsets_of


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """Vectors one after another, each as its dimensions, ascending, and their weights.

    >>> vectors = SparseVectors.from_rows(np.array([[0, 2, 0, 1], [0, 0, 0, 0]], dtype=np.float32))
    >>> vectors.dimensions.tolist(), vectors.weights.tolist(), vectors.counts.tolist()
    ([1, 3], [2.0, 1.0], [2, 0])
    """

    offsets: NDArray[np.int64]  # offsets at which each vector starts; one more than there are vectors
    dimensions: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def from_rows(cls, rows: NDArray[np.float32]) -> SparseVectors:
        """Build the vectors from dense rows, without their zeros."""
        owners, dimensions = np.nonzero(rows)
        offsets = offsets_of(np.bincount(owners, minlength=len(rows)))
        return cls(offsets, dimensions.astype(np.int32), rows[owners, dimensions].astype(np.float32))

    @classmethod
    def joined(cls, parts: Iterable[SparseVectors]) -> SparseVectors:
        """Join several sets of vectors."""
        sets = [cls(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)), *parts]
        counts = np.concatenate([part.counts for part in sets])
        dimensions, weights = (
            np.concatenate([getattr(part, name) for part in sets]) for name in ("dimensions", "weights")
        )
        return cls(offsets_of(counts), dimensions, weights)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Return the number of terms of each vector."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> NDArray[np.int64]:
        """Return the vector that each weight belongs to."""
        return np.repeat(np.arange(len(self)), self.counts)

    def terms(self, place: int) -> dict[int, float]:
        """Return one vector as its dimensions and their weights."""
        span = slice(int(self.offsets[place]), int(self.offsets[place + 1]))
        return dict(zip(self.dimensions[span].tolist(), self.weights[span].tolist(), strict=True))

    def heaviest(self, most: int) -> SparseVectors:
        """Keep at most this many terms per vector, those of the largest weights; of equal ones the first dimension."""
        if not most or not len(self.weights) or self.counts.max() <= most:
            return self
        order = np.lexsort((self.dimensions, -np.abs(self.weights), self.owners))
        rank = np.arange(len(order)) - np.repeat(self.offsets[:-1], self.counts)
        kept = np.zeros(len(order), dtype=np.bool_)
        kept[order[rank < most]] = True
        return SparseVectors(offsets_of(np.minimum(self.counts, most)), self.dimensions[kept], self.weights[kept])

    def unit(self) -> SparseVectors:
        """Scale the vectors to length 1; one without terms stays as it is."""
        lengths = np.sqrt(np.bincount(self.owners, self.weights.astype(np.float64) ** 2, minlength=len(self)))
        scale = np.repeat(np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0), self.counts)
        return SparseVectors(self.offsets, self.dimensions, (self.weights * scale).astype(np.float32))

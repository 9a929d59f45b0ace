"""BM25: what a term weighs in a document, from how often it occurs there and how long the document is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.postings_search import Places, PostingsScorer, RoughImpacts

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

"""Pairs of training rows and texts of tasks, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.settings import METHODS
from r2med.leakage.tables import Places


@dataclass(frozen=True)
class Hits:
    """Pairs of a row of training data and a text of a task, as columns."""

    rows: Places
    texts: Places
    methods: NDArray[np.int8]
    """How each was found, as a place in `METHODS`."""
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, method: str, rows: Places, texts: Places, scores: NDArray[np.float64] | None = None) -> Hits:
        """Pairs that one method found; their score is 1 unless it is given."""
        found = np.full(len(rows), METHODS.index(method), dtype=np.int8)
        return cls(rows, texts, found, np.ones(len(rows)) if scores is None else scores)

    @classmethod
    def none(cls) -> Hits:
        """No pairs."""
        return cls.of(METHODS[0], np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Places | NDArray[np.bool_] | slice) -> Hits:
        """Some of the pairs."""
        return Hits(self.rows[places], self.texts[places], self.methods[places], self.scores[places])


def joined(parts: Sequence[Hits]) -> Hits:
    """All pairs of all parts, by row."""
    hits = Hits(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Hits)))
    return hits.take(np.argsort(hits.rows, kind="stable"))


def strongest(hits: Hits) -> Hits:
    """All pairs, each once, under its surest method and with its highest score; by row, then by text."""
    hits = hits.take(np.lexsort((-hits.scores, hits.methods, hits.texts, hits.rows)))
    first = np.ones(len(hits), dtype=bool)
    first[1:] = (hits.rows[1:] != hits.rows[:-1]) | (hits.texts[1:] != hits.texts[:-1])
    return hits.take(first)


def gathered(parts: Iterable[Hits]) -> Hits:
    """The strongest of parts that are made one after another and not kept."""
    return reduce(lambda known, part: strongest(joined([known, part])), parts, Hits.none())

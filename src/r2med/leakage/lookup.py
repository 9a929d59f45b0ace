"""Pairs of training rows and texts of tasks as columns, and the lookup that leads from one to the other.

How many texts a key of a training row leads to is known before any of these is fetched: a few rows can lead to millions
of texts, so the work is cut by what it leads to and not by what is read. Before the tables stands a filter that most
hashes do not pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.index import METHODS
from r2med.lexical.arrays import Places, row_slices_up_to, slices_up_to
from r2med.lexical.hashes import Hashes
from r2med.lexical.shingles import HashTable


@dataclass(frozen=True)
class LeakHits:
    """Pairs of a row of training data and a text of a task, as columns."""

    rows: Places
    texts: Places
    methods: NDArray[np.int8]  # how each was found, as a place in `METHODS`
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, method: str, rows: Places, texts: Places, scores: NDArray[np.float64] | None = None) -> LeakHits:
        """Build pairs that one method found; their score is 1 unless it is given."""
        places = np.full(len(rows), METHODS.index(method), dtype=np.int8)
        return cls(rows, texts, places, np.ones(len(rows)) if scores is None else scores)

    @classmethod
    def none(cls) -> LeakHits:
        """Return no pairs."""
        return cls.of(METHODS[0], np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Places | NDArray[np.bool_] | slice) -> LeakHits:
        """Return some of the pairs."""
        return LeakHits(self.rows[places], self.texts[places], self.methods[places], self.scores[places])


def join_hits(parts: Sequence[LeakHits]) -> LeakHits:
    """Join all pairs of all parts, by row."""
    hits = LeakHits(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(LeakHits)))
    return hits.take(np.argsort(hits.rows, kind="stable"))


def keep_strongest(hits: LeakHits) -> LeakHits:
    """Return all pairs, each once, under its surest method and with its highest score; by row, then by text."""
    hits = hits.take(np.lexsort((-hits.scores, hits.methods, hits.texts, hits.rows)))
    first = np.ones(len(hits), dtype=bool)
    first[1:] = (hits.rows[1:] != hits.rows[:-1]) | (hits.texts[1:] != hits.texts[:-1])
    return hits.take(first)


def gather_hits(parts: Iterable[LeakHits]) -> LeakHits:
    """Return the strongest pairs of parts that are computed one after another and not kept."""
    return reduce(lambda known, part: keep_strongest(join_hits([known, part])), parts, LeakHits.none())


@dataclass(frozen=True)
class Lookup:
    """Keys of training rows that stand in a table, in the order of rows."""

    table: HashTable
    rows: Places  # the row of each key
    origins: Places  # what of the block each was made of
    starts: Places
    sizes: Places  # where its texts begin in the table, and how many they are

    @classmethod
    def of(cls, table: HashTable, keys: Hashes, rows: Places, origins: Places) -> Lookup:
        """Look up the keys that the table has."""
        here, starts, sizes = table.locate(keys)
        order = np.argsort(rows[here], kind="stable")
        here = here[order]
        return cls(table, rows[here], origins[here], starts[order], sizes[order])

    def texts(self) -> tuple[Places, Places]:
        """Return all texts that keys lead to: the place of the key, and the text."""
        return np.repeat(np.arange(len(self.rows)), self.sizes), self.table.texts(self.starts, self.sizes)

    def take(self, part: slice) -> Lookup:
        """Return some of the keys."""
        return Lookup(self.table, self.rows[part], self.origins[part], self.starts[part], self.sizes[part])

    def portions(self, limit: int) -> Iterator[Lookup]:
        """Yield all keys, those at a time that lead to at most so many texts, or a single one."""
        return map(self.take, slices_up_to(self.sizes, limit))


def by_rows(lookups: Sequence[Lookup], limit: int) -> Iterator[list[Lookup]]:
    """Yield all keys of several lookups, in parts whose rows lead to at most so many texts, or of a single row."""
    rows = np.concatenate([lookup.rows for lookup in lookups])
    sizes = np.concatenate([lookup.sizes for lookup in lookups])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    for part in row_slices_up_to(rows, sizes[order], limit):
        first, last = rows[part][[0, -1]]
        edges = [np.searchsorted(lookup.rows, (first, last + 1)) for lookup in lookups]
        yield [lookup.take(slice(*edge.tolist())) for lookup, edge in zip(lookups, edges, strict=True)]


class HashFilter:
    """A bit for each of many slots, set where some hash falls: what is not set is in none of the tables.

    With 16 to 32 slots a hash, three to six of a hundred foreign hashes pass.

    >>> known = np.array([1 << 60, 1 << 62], dtype=np.uint64)
    >>> HashFilter([known]).passes(np.array([1 << 62, 1 << 61], dtype=np.uint64)).tolist()
    [True, False]
    """

    def __init__(self, sorted_keys: Iterable[Hashes]) -> None:
        columns = list(sorted_keys)
        bits = max(16, (16 * sum(map(len, columns))).bit_length())
        self._shift = np.uint64(64 - bits)
        self._bytes = np.zeros(1 << (bits - 3), dtype=np.uint8)
        for keys in columns:
            for start in range(0, len(keys), _AT_ONCE):
                slots = keys[start : start + _AT_ONCE] >> self._shift
                places = slots >> _THREE
                marks = _BITS[slots & _SEVEN]
                # Sorted keys fall into ascending bytes; the bits of one byte are brought together before they are set.
                edges = np.flatnonzero(np.diff(places, prepend=places[:1] + np.uint64(1)))
                self._bytes[places[edges]] |= np.bitwise_or.reduceat(marks, edges)

    def passes(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which hashes may be in one of the tables."""
        slots = hashes >> self._shift
        return np.asarray((self._bytes[slots >> _THREE] & _BITS[slots & _SEVEN]) != 0)


_AT_ONCE = 1 << 22
_THREE, _SEVEN = np.uint64(3), np.uint64(7)
_BITS = (1 << np.arange(8)).astype(np.uint8)

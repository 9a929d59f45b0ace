"""Looking up hashes in bulk: sorted tables, and a filter before them that most hashes do not pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.leakage.words import Hashes, ragged

Places = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.uint64)


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """Each number once, in ascending order; `np.unique` hashes them first, which takes many times as long.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


@dataclass(frozen=True)
class Table:
    """Hashes in ascending order, each with the number of the text it belongs to; a hash may have several."""

    keys: Hashes
    owners: NDArray[np.int32]

    @classmethod
    def of(cls, keys: Hashes, owners: NDArray[np.integer[Any]]) -> Table:
        """A table of hashes in any order; the texts of one hash stay in the order given."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], owners[order].astype(np.int32, copy=False))

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """Which of the hashes are here, by place, and whose they are; a hash of several texts comes so often.

        >>> table = Table.of(np.array([9, 4, 9], dtype=np.uint64), np.array([0, 1, 2]))
        >>> [found.tolist() for found in table.find(np.array([4, 5, 9], dtype=np.uint64))]
        [[0, 2, 2], [1, 0, 2]]
        """
        here, starts, counts = self.locate(hashes)
        return np.repeat(here, counts), self.texts(starts, counts)

    def locate(self, hashes: Hashes) -> tuple[Places, Places, Places]:
        """Which of the hashes are here, by place; where the texts of each begin, and how many they are."""
        if not len(self.keys):
            none = np.empty(0, dtype=np.int64)
            return none, none, none
        first = np.searchsorted(self.keys, hashes)
        here = np.flatnonzero(self.keys[np.minimum(first, len(self.keys) - 1)] == hashes)
        first = first[here]
        return here, first, np.searchsorted(self.keys, hashes[here], side="right") - first

    def texts(self, starts: Places, counts: Places) -> Places:
        """The texts of some hashes that were located."""
        return self.owners[ragged(starts, counts)].astype(np.int64)


class Filter:
    """A bit for each of many slots, set where some hash falls: what is not set is in none of the tables.

    With 16 to 32 slots a hash, three to six of a hundred foreign hashes pass.

    >>> known = np.array([1 << 60, 1 << 62], dtype=np.uint64)
    >>> Filter([known]).passes(np.array([1 << 62, 1 << 61], dtype=np.uint64)).tolist()
    [True, False]
    """

    def __init__(self, sorted_keys: Iterable[Hashes]) -> None:
        columns = list(sorted_keys)
        bits = max(16, (16 * sum(map(len, columns))).bit_length())
        self._shift = np.uint64(64 - bits)
        self._bytes = np.zeros(1 << (bits - 3), dtype=np.uint8)
        for keys in columns:
            for start in range(0, len(keys), _AT_ONCE):
                self._add(keys[start : start + _AT_ONCE])

    def _add(self, keys: Hashes) -> None:
        slots = keys >> self._shift
        places = slots >> _THREE
        marks = _BITS[slots & _SEVEN]
        # Sorted keys fall into ascending bytes; the bits of one byte are brought together before they are set.
        edges = np.flatnonzero(np.diff(places, prepend=places[:1] + np.uint64(1)))
        self._bytes[places[edges]] |= np.bitwise_or.reduceat(marks, edges)

    def passes(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Which hashes may be in one of the tables."""
        slots = hashes >> self._shift
        found: NDArray[np.bool_] = (self._bytes[slots >> _THREE] & _BITS[slots & _SEVEN]) != 0
        return found


_AT_ONCE = 1 << 22
_THREE, _SEVEN = np.uint64(3), np.uint64(7)
_BITS = (1 << np.arange(8)).astype(np.uint8)

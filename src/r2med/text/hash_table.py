"""Looking up hashes in bulk, by sorted tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.text.ragged import ragged
from r2med.text.word_hashes import Hashes

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
class HashTable:
    """Hashes in ascending order, each with the number of the text it belongs to; a hash may have several."""

    keys: Hashes
    owners: NDArray[np.int32]

    @classmethod
    def of(cls, keys: Hashes, owners: NDArray[np.integer[Any]]) -> HashTable:
        """A table of hashes in any order; the texts of one hash stay in the order given."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], owners[order].astype(np.int32, copy=False))

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, hashes: Hashes) -> tuple[Places, Places]:
        """Which of the hashes are here, by place, and whose they are; a hash of several texts comes so often.

        >>> table = HashTable.of(np.array([9, 4, 9], dtype=np.uint64), np.array([0, 1, 2]))
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

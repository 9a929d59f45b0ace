"""Hashes of texts, by which the store knows them, sorted so that one is found among millions.

However many there are, they are hashed, sorted and looked up some thousands at a time, and what is as long as a
collection lies in scratch columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from r2med.store.scratch import places_where, rows_at, scratch_column, spans

TextHashes = NDArray[np.uint64]  # a row of two numbers per text
_TEXTS = 4096  # texts in memory at a time
_SPANS = 4  # spans of a column that are sorted at a time


def text_digest(text: str) -> bytes:
    """Return the 16-byte hash of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def text_hashes(texts: Sequence[str]) -> TextHashes:
    """Return each text's hash, as two numbers.

    >>> text_hashes(["a", "b"]).shape
    (2, 2)
    """
    hashes = scratch_column(len(texts), "<u8", 2)
    for some in spans(len(texts), _TEXTS):
        hashes[some] = np.frombuffer(b"".join(map(text_digest, texts[some])), dtype="<u8").reshape(-1, 2)
    return hashes


class SortedHashes:
    """Texts in the order of their hashes, each with its place; of equal ones the earlier place is first.

    The texts whose hashes begin with the same bits are sorted at a time.
    """

    def __init__(self, columns: Sequence[TextHashes]) -> None:
        total = sum(map(len, columns))
        self._high, self._low = scratch_column(total, np.uint64), scratch_column(total, np.uint64)
        self._place = scratch_column(total, np.intp)
        self._edges = [0]
        bits = (sum(1 for _ in spans(total)) // _SPANS).bit_length()
        for part in range(1 << bits):
            hashes, places = _select(columns, part, 64 - bits)
            order = np.lexsort((hashes[:, 1], hashes[:, 0]))
            here = slice(self._edges[-1], self._edges[-1] + len(order))
            self._high[here], self._low[here], self._place[here] = *hashes[order].T, places[order]
            self._edges.append(here.stop)

    def find(self, texts: TextHashes) -> NDArray[np.intp]:
        """Return the last place of each text, -1 for a missing one.

        >>> SortedHashes([text_hashes(["a", "b", "a"])]).find(text_hashes(["b", "a", "c"])).tolist()
        [1, 2, -1]
        """
        places = scratch_column(len(texts), np.intp)
        for some in spans(len(texts)):
            places[some] = self._find(texts[some])
        return places

    def _find(self, texts: TextHashes) -> NDArray[np.intp]:
        places = np.full(len(texts), -1, dtype=np.intp)
        rank = np.searchsorted(self._high, texts[:, 0], side="right") - 1
        left = np.flatnonzero(rank >= 0)
        # One round, except for texts that share half of a hash with another one.
        while len(left):
            left = left[self._high[rank[left]] == texts[left, 0]]
            equal = self._low[rank[left]] == texts[left, 1]
            places[left[equal]] = self._place[rank[left[equal]]]
            left = left[~equal]
            rank[left] -= 1
            left = left[rank[left] >= 0]
        return places

    def firsts(self) -> NDArray[np.intp]:
        """Return the first place of each different text, ascending."""
        is_first = scratch_column(len(self._place), np.bool_)
        for start, stop in pairwise(self._edges):
            high, low = self._high[start:stop], self._low[start:stop]
            new = np.ones(len(high), dtype=np.bool_)
            new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
            is_first[self._place[start:stop][new]] = True
        return places_where(lambda some: is_first[some], len(is_first))


def _select(columns: Sequence[TextHashes], part: int, shift: int) -> tuple[TextHashes, NDArray[np.intp]]:
    hashes, places, before = [np.empty((0, 2), np.uint64)], [np.empty(0, np.intp)], 0
    for column in columns:
        for some in spans(len(column)):
            rows = np.flatnonzero(column[some, 0] >> np.uint64(shift) == part)
            hashes.append(column[some][rows])
            places.append(before + some.start + rows)
        before += len(column)
    return np.concatenate(hashes), np.concatenate(places)


def first_of_each(hashes: TextHashes, places: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Return the first of several places with the same text, in order. All places unless some are given.

    >>> first_of_each(text_hashes(["a", "b", "a", "c"])).tolist()
    [0, 1, 3]
    """
    if places is None:
        return SortedHashes([hashes]).firsts()
    return rows_at(places, SortedHashes([rows_at(hashes, places)]).firsts())


def lacking(places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the numbers of the texts that were not found."""
    return places_where(lambda some: places[some] < 0, len(places))

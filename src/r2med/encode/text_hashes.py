"""Hashes of texts, by which the vector store knows them, sorted so that one is found among millions.

However many there are, they are hashed, sorted and looked up some thousands at a time, and what is as long as a
collection lies in scratch columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from r2med.store.scratch import places_where, rows_at, scratch_column, spans

TextHashes = NDArray[np.uint64]
"""A row of two numbers per text."""
_TEXTS = 4096
"""Texts in memory at a time."""


def text_hashes(texts: Sequence[str]) -> TextHashes:
    """Return each text's 16-byte hash, as two numbers.

    >>> text_hashes(["a", "b"]).shape
    (2, 2)
    """
    hashes = scratch_column(len(texts), "<u8", 2)
    for some in spans(len(texts), _TEXTS):
        digests = [_digest(text) for text in texts[some]]
        hashes[some] = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)
    return hashes


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class SortedHashes:
    """Texts in the order of their hashes, each with its place; of equal ones the earlier place is first.

    They are dealt into parts by the first bits of their hashes, and each part is sorted on its own.
    """

    def __init__(self, columns: Sequence[TextHashes]) -> None:
        total = sum(map(len, columns))
        self._bits = np.uint64(64 - max(1, len(list(spans(total))).bit_length()))
        self._high, self._low = scratch_column(total, np.uint64), scratch_column(total, np.uint64)
        self._place = scratch_column(total, np.intp)
        self._edges = [0, *accumulate(self._counts(columns).tolist())]
        self._deal(columns)
        for part in self._parts():
            order = np.lexsort((self._low[part], self._high[part]))
            for column in (self._high, self._low, self._place):
                column[part] = column[part][order]

    def _parts(self) -> list[slice]:
        return [slice(start, stop) for start, stop in pairwise(self._edges)]

    def _part_of(self, high: NDArray[np.uint64]) -> NDArray[np.intp]:
        return (high >> self._bits).astype(np.intp)

    def _counts(self, columns: Sequence[TextHashes]) -> NDArray[np.intp]:
        counts = np.zeros(1 << (64 - int(self._bits)), dtype=np.intp)
        for column in columns:
            for some in spans(len(column)):
                counts += np.bincount(self._part_of(column[some, 0]), minlength=len(counts))
        return counts

    def _deal(self, columns: Sequence[TextHashes]) -> None:
        """Put every text into its part, after those before it."""
        ends, before = np.array(self._edges[:-1]), 0
        for column in columns:
            for some in spans(len(column)):
                part = self._part_of(column[some, 0])
                order = np.argsort(part, kind="stable")
                counts = np.bincount(part, minlength=len(ends))
                # Where its part ends by now, and which of the part's new texts it is.
                rank = np.arange(len(part)) - np.repeat(np.cumsum(counts) - counts, counts)
                target = ends[part[order]] + rank
                texts = column[some][order]
                self._high[target], self._low[target] = texts[:, 0], texts[:, 1]
                self._place[target] = before + some.start + order
                ends += counts
            before += len(column)

    def find(self, texts: TextHashes) -> NDArray[np.intp]:
        """Return the last place of each text, -1 for a missing one.

        >>> SortedHashes([text_hashes(["a", "b", "a"])]).find(text_hashes(["b", "a", "c"])).tolist()
        [1, 2, -1]
        """
        found = scratch_column(len(texts), np.intp)
        for some in spans(len(texts)):
            found[some] = self._find(texts[some])
        return found

    def _find(self, texts: TextHashes) -> NDArray[np.intp]:
        found = np.full(len(texts), -1, dtype=np.intp)
        rank = np.searchsorted(self._high, texts[:, 0], side="right") - 1
        open_ = np.flatnonzero(rank >= 0)
        # One round, but for texts that share half of a hash with another one.
        while len(open_):
            at, wanted = rank[open_], texts[open_]
            open_, at, wanted = (part[self._high[at] == wanted[:, 0]] for part in (open_, at, wanted))
            same = self._low[at] == wanted[:, 1]
            found[open_[same]] = self._place[at[same]]
            open_ = open_[~same]
            rank[open_] -= 1
            open_ = open_[rank[open_] >= 0]
        return found

    def firsts(self) -> NDArray[np.intp]:
        """Return the first place of each different text, ascending."""
        is_first = scratch_column(len(self._place), np.bool_)
        for part in self._parts():
            high, low = self._high[part], self._low[part]
            new = np.ones(len(high), dtype=np.bool_)
            new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
            is_first[self._place[part][new]] = True
        return places_where(lambda some: is_first[some], len(is_first))


def first_of_each(hashes: TextHashes, places: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """Return the first of several places with the same text, in order. All places unless some are given.

    >>> first_of_each(text_hashes(["a", "b", "a", "c"])).tolist()
    [0, 1, 3]
    """
    if places is None:
        return SortedHashes([hashes]).firsts()
    return rows_at(places, SortedHashes([rows_at(hashes, places)]).firsts())


def lacking(found: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the places of texts that were not found."""
    return places_where(lambda some: found[some] < 0, len(found))

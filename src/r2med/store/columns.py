"""Columns as long as a collection: in memory while they are short, else in a mapped file without a name.

The system writes the pages of such a file to disk and reads them back when needed, so that the memory of a process does
not grow with the collection. Hashes of texts are such columns, sorted so that one is found among millions.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from r2med.store.cache import home

TextHashes = NDArray[np.uint64]  # a row of two numbers per text
_AT_ONCE = 1 << 16  # rows worked on at a time, so that nothing that is made on the way is as long as a column
_SHORT = 1 << 20  # bytes up to which a column is in memory
_TEXTS = 4096  # texts in memory at a time
_SPANS = 4  # spans of a column that are sorted at a time


def is_short(size: int) -> bool:
    """Return whether a column of this many bytes may be in memory."""
    return size <= _SHORT


def scratch_column(count: int, kind: DTypeLike, width: int = 0) -> NDArray[Any]:
    """Return a column of zeros, or with a width a matrix. It is in memory too if the disk has no room for it.

    >>> scratch_column(2, np.int64).tolist(), scratch_column(1, np.uint8, 3).tolist()
    ([0, 0], [[0, 0, 0]])
    """
    shape = (count, width) if width else (count,)
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if not is_short(size):
        try:
            with TemporaryFile(dir=home(), prefix=".scratch-") as file:
                # Space is reserved: a page that does not fit later would kill the process without a message.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                # A plain array over the mapping: the mapping's own class makes every slice slow.
                return np.asarray(np.memmap(file, kind, "r+", shape=shape))
        except OSError:
            pass
    return np.zeros(shape, kind)


def spans(count: int, size: int = 0) -> Iterator[slice]:
    """Yield the rows of a column in slices of the given or the usual size.

    >>> [(some.start, some.stop) for some in spans(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    for start in range(0, count, size or _AT_ONCE):
        yield slice(start, min(start + (size or _AT_ONCE), count))


def places_where(holds: Callable[[slice], NDArray[np.bool_]], count: int) -> NDArray[np.intp]:
    """Return the row numbers of a column at which a condition holds, ascending.

    >>> column = np.array([3, -1, 2, -1])
    >>> places_where(lambda some: column[some] < 0, len(column)).tolist()
    [1, 3]
    """
    places, end = scratch_column(count, np.intp), 0
    for some in spans(count):
        here = some.start + np.flatnonzero(holds(some))
        places[end : end + len(here)] = here
        end += len(here)
    return places[:end]


def rows_at(column: NDArray[Any], places: NDArray[np.intp]) -> NDArray[Any]:
    """Return the rows of a column at these places, as a new column.

    >>> rows_at(np.array([5, 6, 7]), np.array([2, 0])).tolist()
    [7, 5]
    """
    rows = scratch_column(len(places), column.dtype, column.shape[1] if column.ndim > 1 else 0)
    for some in spans(len(places)):
        rows[some] = column[places[some]]
    return rows


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
            high, low = texts[some].T
            places[some] = -1
            rank = np.searchsorted(self._high, high, side="right") - 1
            left = np.flatnonzero(rank >= 0)
            # One round, except for texts that share half of a hash with another one.
            while len(left):
                left = left[self._high[rank[left]] == high[left]]
                equal = self._low[rank[left]] == low[left]
                places[some][left[equal]] = self._place[rank[left[equal]]]
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

"""Helpers for lists that lie end to end in numpy arrays, and for working on long columns in portions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Item = TypeVar("Item")


def by_size(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Yield lists of successive items, each as long as it takes to reach a total size.

    >>> list(by_size(["a", "bbb", "cc", "d"], len, 3))
    [['a', 'bbb'], ['cc', 'd']]
    """
    portion: list[Item] = []
    total = 0
    for item in items:
        portion.append(item)
        total += size(item)
        if total >= limit:
            yield portion
            portion, total = [], 0
    if portion:
        yield portion


def slices_up_to(sizes: NDArray[np.int64], limit: int) -> Iterator[slice]:
    """Yield slices of successive items whose sizes total at most the limit, or of a single larger item.

    >>> [(part.start, part.stop) for part in slices_up_to(np.array([1, 2, 9, 1, 1, 1]), 3)]
    [(0, 2), (2, 3), (3, 6)]
    """
    ends = np.cumsum(sizes)
    start = before = 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])


def row_slices_up_to(rows: NDArray[np.int64], sizes: NDArray[np.int64], limit: int) -> Iterator[slice]:
    """Yield such slices, but keep items of one row together; rows ascend.

    >>> [(part.start, part.stop) for part in row_slices_up_to(np.array([4, 4, 7, 8, 8]), np.array([1, 1, 1, 1, 9]), 3)]
    [(0, 3), (3, 5)]
    """
    ends = np.flatnonzero(np.diff(rows, append=rows[-1:] + 1)) + 1
    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])[ends]
    start = 0
    for part in slices_up_to(np.diff(totals, prepend=0), limit):
        stop = int(ends[part.stop - 1])
        yield slice(start, stop)
        start = stop


def offsets_of(counts: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return where lists of these lengths start if they stand end to end, and finally where the last one ends.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark where a sorted column's value differs from the one before; the first always does."""
    is_new = np.ones(len(column), dtype=bool)
    np.not_equal(column[1:], column[:-1], out=is_new[1:])
    return is_new


def ragged(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ranges of consecutive numbers that begin at these starts and have these lengths, end to end.

    >>> ragged(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    places: NDArray[np.int64] = np.repeat(starts - offsets_of(counts)[:-1], counts)
    places += np.arange(len(places))
    return places

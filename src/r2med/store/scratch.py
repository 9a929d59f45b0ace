"""Columns of numbers as long as a collection: in memory while they are short, else in a mapped file without a name.

The system writes the pages of such a file to disk and reads them back when needed, so that the memory of a
process does not grow with the collection it works on. The file goes with the column, whatever ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from r2med.store.cache import home

_AT_ONCE = 1 << 16  # rows worked on at a time, so that nothing that is made on the way is as long as a column
_SHORT = 1 << 20  # bytes up to which a column is in memory


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

"""Lists of different lengths that stand end to end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def offsets_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where lists of so many things start that stand end to end, and at last where they end.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def ragged(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each start on, so many as its count says, end to end.

    >>> ragged(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    found: NDArray[np.int64] = np.repeat(starts - offsets_of(counts)[:-1], counts)
    found += np.arange(len(found))
    return found

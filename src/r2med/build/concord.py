"""How two orders of the same systems agree: Spearman's and Kendall's coefficients, and who changes places.

Both coefficients come from one table, who stands above whom: Kendall's compares its cells, Spearman's its row sums,
which are ranks but for a constant and a factor. Columns beyond the first axis are computed at once, so that a
bootstrap is one call.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_EQUAL = 1e-9
"""Means that differ by less are the same: sums of the same values in another order differ in the last digits."""


def above(values: ArrayLike) -> NDArray[np.int8]:
    """Who stands above whom: 1 where the value of the row is larger than that of the column, -1 where it is smaller.

    >>> above([0.2, 0.1, 0.2]).tolist()
    [[0, 1, 0], [-1, 0, -1], [0, 1, 0]]
    """
    column = np.asarray(values, dtype=np.float64)
    gaps = column[:, np.newaxis] - column[np.newaxis]
    return np.sign(np.where(np.abs(gaps) > _EQUAL, gaps, 0.0)).astype(np.int8)


def spearman(one: ArrayLike, other: ArrayLike) -> Floats:
    """Spearman's rank correlation; not a number when a side is constant.

    >>> spearman([1, 2, 3], [10, 30, 20]).item(), spearman([1, 1], [1, 2]).item()
    (0.5, nan)
    """
    a, b = (above(side).sum(axis=1, dtype=np.float64) for side in (one, other))
    return _cosine(a, b)


def kendall(one: ArrayLike, other: ArrayLike) -> Floats:
    """Kendall's tau-b, which allows for ties; not a number when a side is constant.

    >>> round(kendall([1, 2, 3, 4], [1, 2, 4, 3]).item(), 3)
    0.667
    """
    a, b = (table.reshape(-1, *table.shape[2:]).astype(np.float64) for table in (above(one), above(other)))
    return _cosine(a, b)


def _cosine(a: Floats, b: Floats) -> Floats:
    size = np.sqrt((a * a).sum(axis=0) * (b * b).sum(axis=0))
    return np.asarray((a * b).sum(axis=0) / np.where(size > 0, size, np.nan))


def flipped(one: ArrayLike, other: ArrayLike) -> list[tuple[int, int]]:
    """The pairs whose order differs; a tie on either side is no flip.

    >>> flipped([3, 2, 1], [3, 1, 2])
    [(1, 2)]
    """
    opposite = above(one) * above(other) < 0
    return [(first, second) for first, second in combinations(range(len(opposite)), 2) if opposite[first, second]]


def interval(values: Floats) -> tuple[float, float] | None:
    """The middle 95 of a hundred values; None unless most of them are numbers.

    >>> interval(np.arange(101.0))
    (2.5, 97.5)
    """
    known = values[np.isfinite(values)]
    if not len(known) or 2 * len(known) < len(values):
        return None
    low, high = np.percentile(known, [2.5, 97.5]).tolist()
    return low, high

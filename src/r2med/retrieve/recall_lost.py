"""What a search that is not exact loses: how much of the exact lists it did not find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_CHECKED: Final = 200
"""For how many queries, at the most, lists are compared with the exact ones."""
_LEAST: Final = 10
_SHARE: Final = 10

_Places = NDArray[np.intp]
_ExactLists = Callable[[_Places, int], Iterable[_Places]]
"""Makes the exact lists of the queries at some places, down to some depth."""


def measured_loss(found: Sequence[_Places] | _Places, documents: int, depth: int, exact: _ExactLists) -> float:
    """The share of the exact lists that was not found, among queries evenly drawn from all.

    >>> found = np.array([[1, 2, 3], [3, 4, 5]])
    >>> measured_loss(found, 100, 2, lambda chosen, depth: np.array([[2, 1, 0], [3, 5, 4]])[chosen, :depth])
    0.25
    """
    depth = _compared_depth(depth, documents)
    chosen = np.unique(np.linspace(0, len(found) - 1, min(len(found), _CHECKED)).astype(np.intp))
    return round(recall_lost([found[place][:depth] for place in chosen], exact(chosen, depth)), 6)


def _compared_depth(depth: int, documents: int) -> int:
    """How far down lists are compared: no further than a tenth of the documents, unless these are few.

    A list of most of a collection's documents has most of them in common with any other.

    >>> _compared_depth(100, 1_000_000), _compared_depth(100, 300), _compared_depth(100, 20)
    (100, 30, 10)
    """
    return min(depth, max(_LEAST, documents // _SHARE))


def recall_lost(found: Iterable[_Places], exact: Iterable[_Places]) -> float:
    """The share of exact lists that is missing from those that were found.

    >>> recall_lost(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [3, 5]]))
    0.25
    """
    wanted = kept = 0
    for one, other in zip(found, exact, strict=True):
        wanted += len(other)
        kept += len(np.intersect1d(one, other))
    return 1 - kept / wanted if wanted else 0.0

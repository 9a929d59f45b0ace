"""The one rule by which every list is ranked, with its tie-breaker and top-k.

The rule is trec_eval's: score descending, compared in single precision as trec_eval holds it, then document id
descending. Scores are stored as they were computed; only the comparison is in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating]


@runtime_checkable
class OrderedIds(Protocol):
    """Ids that know their alphabetical order."""

    def descending_ranks(self) -> NDArray[np.int64]:
        """Return each id's place when all are sorted descending."""


def as_float32(scores: Scores) -> NDArray[np.float32]:
    """Convert scores to the precision of the ranking rule; larger values become infinite, as in trec_eval.

    >>> as_float32(np.array([0.5, 1e300])).tolist()
    [0.5, inf]
    """
    with np.errstate(over="ignore"):
        return np.asarray(scores).astype(np.float32, copy=False)


def rank(documents: Sequence[str], scores: Scores) -> NDArray[np.intp]:
    """Return the order of a list by the ranking rule: positions, best first.

    >>> rank(["a", "b", "c"], np.array([1.0, 2.0, 2.0])).tolist()
    [2, 1, 0]
    """
    compared = as_float32(scores)
    order = np.argsort(-compared, kind="stable")
    ordered = compared[order]
    edges = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, [len(ordered)]))
    groups = np.flatnonzero(edges[1:] - edges[:-1] > 1)
    # Strings are compared only inside groups of equal scores, which are few.
    for start, stop in zip(edges[groups].tolist(), edges[groups + 1].tolist(), strict=True):
        order[start:stop] = sorted(order[start:stop].tolist(), key=documents.__getitem__, reverse=True)
    return order


def id_order(ids: Sequence[str]) -> NDArray[np.int64]:
    """Return each document's place when ids are sorted descending: the tie-breaker in a form numpy can sort by.

    >>> id_order(["a", "c", "b"]).tolist()
    [2, 0, 1]
    """
    if isinstance(ids, OrderedIds):
        return ids.descending_ranks()
    order = np.empty(len(ids), dtype=np.int64)
    order[sorted(range(len(ids)), key=ids.__getitem__, reverse=True)] = np.arange(len(ids))
    return order


def top(scores: Scores, depth: int, tie_order: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the positions of the `depth` best scores, exactly by the ranking rule.

    >>> top(np.array([1.0, 3.0, 3.0, 2.0]), 2, id_order(["a", "b", "c", "d"])).tolist()
    [2, 1]
    """
    compared = as_float32(scores)
    if depth <= 0:
        return np.empty(0, dtype=np.intp)
    if depth < len(compared):
        threshold = np.partition(compared, len(compared) - depth)[len(compared) - depth]
        above = np.flatnonzero(compared > threshold)
        tied = np.flatnonzero(compared == threshold)
        # A query that matches little ties nearly the whole collection: only those that win the tie are sorted.
        needed = depth - len(above)
        if needed < len(tied):
            tied = tied[np.argpartition(tie_order[tied], needed - 1)[:needed]]
        candidates = np.concatenate((above, tied))
    else:
        candidates = np.arange(len(compared))
    return candidates[np.lexsort((tie_order[candidates], -compared[candidates]))]

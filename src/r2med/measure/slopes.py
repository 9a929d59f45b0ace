"""By how much one column rises with another: slopes over systems and within queries, with a bootstrap over queries.

Over systems, each is one point of two means, so that what sets queries apart is averaged out. Within queries, each
query's own means are taken off first, so that hard and easy queries cannot make a slope between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.measure.bootstrap import percentile_ends, resampled_means, weights

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Slope:
    """The rise of y for a rise of x by 1; None where x does not vary."""

    points: int
    slope: float | None = None
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return asdict(self)


def slope_over_systems(x: Sequence[Floats], y: Sequence[Floats]) -> Slope:
    """The slope through the systems' means over tasks, from a table of systems x queries for each task.

    >>> found = slope_over_systems([np.array([[0.2, 0.4], [0.4, 0.6]])], [np.array([[0.0, 0.0], [1.0, 0.0]])])
    >>> found.points, round(found.slope, 2)
    (2, 2.5)
    """
    points = len(x[0]) if x else 0
    if points < 2:
        return Slope(points)
    means = [np.mean([table.mean(axis=1) for table in side], axis=0)[:, None] for side in (x, y)]
    drawn = [np.mean([resampled_means(t, place) for place, t in enumerate(side)], axis=0) for side in (x, y)]
    return _slope(points, _fit(*means)[0], _fit(*drawn), [table.shape[1] for table in x])


def slope_within_queries(x: Sequence[Floats], y: Sequence[Floats]) -> Slope:
    """The slope over the systems of each query, pooled over all queries of all tasks.

    >>> found = slope_within_queries([np.array([[0.0, 0.5], [1.0, 0.5]])], [np.array([[0.0, 1.0], [1.0, 1.0]])])
    >>> found.points, found.slope
    (2, 1.0)
    """
    if not x or len(x[0]) < 2:
        return Slope(sum(table.shape[1] for table in x))
    sums = [np.stack(_products(one, other)) for one, other in zip(x, y, strict=True)]
    drawn = np.sum([_drawn(part, place) for place, part in enumerate(sums)], axis=0)
    together = np.sum([part.sum(axis=1) for part in sums], axis=0)
    counts = [table.shape[1] for table in x]
    return _slope(sum(counts), _ratio(together[0], together[1]), _ratio(drawn[0], drawn[1]), counts)


def _products(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """For each query the sum over systems of x times y and of x times x, each about the query's own mean."""
    a, b = (side - side.mean(axis=0) for side in (x, y))
    return (a * b).sum(axis=0), (a * a).sum(axis=0)


def _drawn(sums: Floats, stratum: int) -> Floats:
    count = sums.shape[1]
    return np.concatenate([(shares @ sums.T) * count for shares in weights(count, stratum)]).T


def _fit(x: Floats, y: Floats) -> Floats:
    """The least-squares slope through the points of each column."""
    a, b = (side - side.mean(axis=0) for side in (x, y))
    return _ratio((a * b).sum(axis=0), (a * a).sum(axis=0))


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.asarray(part / np.where(whole > 1e-12, whole, np.nan))


def _slope(points: int, value: Floats, drawn: Floats, queries: Sequence[int]) -> Slope:
    if np.isnan(value):
        return Slope(points)
    return Slope(points, float(value), *(percentile_ends(drawn, queries) or (None, None)))

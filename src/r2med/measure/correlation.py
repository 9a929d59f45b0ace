"""How two columns go together: Pearson's and Spearman's coefficients, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 2000
_LEAST = 4
"""Points below which an interval says nothing."""
_USABLE = 0.5
"""The share of resamples that must have a coefficient at all; in the others a column is constant."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Correlation:
    """Coefficients with 95% intervals; None where a column does not vary or there are too few points."""

    points: int
    pearson: float | None = None
    pearson_interval: Interval | None = None
    spearman: float | None = None
    spearman_interval: Interval | None = None

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return asdict(self)


def correlate(one: Sequence[float], other: Sequence[float], seed: int = 42) -> Correlation:
    """Both coefficients of two columns; intervals by drawing points with replacement, the same draws every time.

    >>> found = correlate([1, 2, 3, 4], [2, 4, 6, 20])
    >>> round(found.pearson, 3), found.spearman
    (0.885, 1.0)
    """
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} values against {len(y)}")
    linear, ranked = _pearson(x, y), _pearson(ranks(x), ranks(y))
    if linear is None or len(x) < _LEAST:
        return Correlation(len(x), linear, None, ranked, None)
    draws = np.random.default_rng(seed).integers(len(x), size=(_ROUNDS, len(x)))
    return Correlation(
        len(x),
        linear,
        _interval([_pearson(x[draw], y[draw]) for draw in draws]),
        ranked,
        _interval([_pearson(ranks(x[draw]), ranks(y[draw])) for draw in draws]),
    )


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Each value's rank from 1, equal values sharing the mean of theirs.

    >>> ranks([10, 30, 10, 20]).tolist()
    [1.5, 4.0, 1.5, 3.0]
    """
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float | None:
    if len(x) < 2:
        return None
    a, b = x - x.mean(), y - y.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    # Rounding leaves a constant column a size that is not quite zero.
    if size <= 1e-12 * max(1.0, float(np.abs(x).max() * np.abs(y).max())):
        return None
    return float(np.clip((a @ b) / size, -1.0, 1.0))


def _interval(coefficients: Sequence[float | None]) -> Interval | None:
    found = [value for value in coefficients if value is not None]
    if len(found) < _USABLE * len(coefficients):
        return None
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)

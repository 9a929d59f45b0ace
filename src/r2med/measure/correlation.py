"""How two columns go together: Pearson's and Spearman's coefficients, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 2000
_VALUES_AT_ONCE = 1_000_000
_LEAST = 4
"""Points below which an interval says nothing."""
_USABLE = 0.5
"""The share of resamples that must have a coefficient at all; in the others a column is constant."""

Floats = NDArray[np.float64]
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
    if len(x) < 2:
        return Correlation(len(x))
    linear, ranked = _pearson(x[None], y[None])[0], _pearson(ranks(x)[None], ranks(y)[None])[0]
    if np.isnan(linear):
        return Correlation(len(x))
    if len(x) < _LEAST:
        return Correlation(len(x), float(linear), None, float(ranked), None)
    drawn = _draw(x, y, seed)
    return Correlation(len(x), float(linear), _interval(drawn[0]), float(ranked), _interval(drawn[1]))


def ranks(values: ArrayLike) -> Floats:
    """Each value's rank from 1, equal values sharing the mean of theirs.

    >>> ranks([10, 30, 10, 20]).tolist()
    [1.5, 4.0, 1.5, 3.0]
    """
    codes = np.unique(np.asarray(values), return_inverse=True)[1]
    row: Floats = _ranks(codes[None])[0]
    return row


def _ranks(codes: NDArray[np.intp]) -> Floats:
    """The ranks of the values in each row, given as their places among all distinct values."""
    rows, kinds = len(codes), int(codes.max()) + 1
    places = codes + kinds * np.arange(rows)[:, None]
    counts = np.bincount(places.ravel(), minlength=rows * kinds).reshape(rows, kinds)
    of_kind = np.cumsum(counts, axis=1) - (counts - 1) / 2
    taken: Floats = np.take_along_axis(of_kind, codes, axis=1)
    return taken


def _draw(x: Floats, y: Floats, seed: int) -> tuple[Floats, Floats]:
    """Both coefficients of many resamples, a block of them at a time."""
    chance = np.random.default_rng(seed)
    x_codes, y_codes = (np.unique(column, return_inverse=True)[1] for column in (x, y))
    block = max(1, _VALUES_AT_ONCE // len(x))
    linear, ranked = [], []
    for start in range(0, _ROUNDS, block):
        draws = chance.integers(len(x), size=(min(block, _ROUNDS - start), len(x)))
        linear.append(_pearson(x[draws], y[draws]))
        ranked.append(_pearson(_ranks(x_codes[draws]), _ranks(y_codes[draws])))
    return np.concatenate(linear), np.concatenate(ranked)


def _pearson(x: Floats, y: Floats) -> Floats:
    """The coefficient of each row; not a number where a row does not vary."""
    a, b = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    constant = (np.ptp(x, axis=1) == 0) | (np.ptp(y, axis=1) == 0)
    size = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.clip((a * b).sum(axis=1) / size, -1.0, 1.0)
    return np.where(constant, np.nan, found)


def _interval(coefficients: Floats) -> Interval | None:
    found = coefficients[~np.isnan(coefficients)]
    if len(found) < _USABLE * len(coefficients):
        return None
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)

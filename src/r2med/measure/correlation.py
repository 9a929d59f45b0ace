"""Relations of two columns: correlation coefficients, changes of order, areas under the curve, and slopes.

Columns run along the first axis; further axes are computed at once, so that a bootstrap is one call. Values that differ
by a last digit are equal: sums of the same values in another order do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from r2med.measure.bootstrap import RESAMPLES, figure_of, resampled_means, weights
from r2med.measure.figure import Figure, figure_dict

_PAIRS_AT_ONCE = 1 << 20
_LEAST = 4  # points below which an interval is meaningless
_EQUAL = 1e-9  # values that differ by less are the same
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """Coefficients with 95% intervals; None if a column does not vary or there are too few points."""

    points: int
    pearson: Figure | None = None
    spearman: Figure | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the coefficients for `--json`."""
        shape: dict[str, Any] = {"points": self.points}
        for name in ("pearson", "spearman"):
            figure = getattr(self, name)
            shape[name] = figure.value if figure else None
            shape[f"{name}_interval"] = figure.ends if figure and figure.low is not None else None
        return shape


def correlate(one: Sequence[float], other: Sequence[float]) -> Correlation:
    """Compute both coefficients of two columns; intervals draw points with replacement, the same draws every time.

    >>> figures = correlate([1, 2, 3, 4], [2, 4, 6, 20])
    >>> round(figures.pearson.value, 3), figures.spearman.value
    (0.885, 1.0)
    """
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} values against {len(y)}")
    if len(x) < 2:
        return Correlation(len(x))
    linear, ranked = pearson(x, y), spearman(x, y)
    if np.isnan(linear):
        return Correlation(len(x))
    if len(x) < _LEAST:
        return Correlation(len(x), Figure(float(linear)), Figure(float(ranked)))
    x_codes, y_codes = _codes(x), _codes(y)
    drawn_linear, drawn_ranked = [], []
    for shares in weights(len(x)):
        drawn_ranked.append(_weighted(shares, _drawn_ranks(shares, x_codes), _drawn_ranks(shares, y_codes)))
        # Sums of one value are rounded, so only the ranks show for certain that a column is constant.
        drawn_linear.append(np.where(np.isnan(drawn_ranked[-1]), np.nan, _weighted(shares, x, y, 0.0)))
    figures = ((linear, drawn_linear), (ranked, drawn_ranked))
    return Correlation(len(x), *(figure_of(value, np.concatenate(drawn), [len(x)]) for value, drawn in figures))


def ranks(values: ArrayLike) -> Floats:
    """Return each value's rank from 1 in its column, equal values sharing the mean of their ranks.

    >>> ranks([10, 30, 10, 20]).tolist()
    [1.5, 4.0, 1.5, 3.0]
    """
    from scipy.stats import rankdata  # half a second to import

    return np.asarray(rankdata(_codes(np.asarray(values, dtype=np.float64)), axis=0), dtype=np.float64)


def _codes(values: Floats) -> NDArray[np.intp]:
    """Return the place of each value among the distinct ones of its column."""
    order = np.argsort(values, axis=0, kind="stable")
    larger = np.diff(np.take_along_axis(values, order, axis=0), axis=0, prepend=np.nan) > _EQUAL
    codes = np.empty(values.shape, dtype=np.intp)
    np.put_along_axis(codes, order, np.cumsum(larger, axis=0), axis=0)
    return codes


def pearson(one: ArrayLike, other: ArrayLike) -> Floats:
    """Return Pearson's correlation; not a number if a side is constant.

    >>> round(pearson([1, 2, 3, 4], [2, 4, 6, 20]).item(), 3)
    0.885
    """
    x, y = (np.asarray(side, dtype=np.float64) for side in (one, other))
    constant = (np.ptp(x, axis=0) == 0) | (np.ptp(y, axis=0) == 0)
    cosines = np.clip(_cosine(x - x.mean(axis=0), y - y.mean(axis=0)), -1.0, 1.0)
    return np.asarray(np.where(constant, np.nan, cosines))


def spearman(one: ArrayLike, other: ArrayLike) -> Floats:
    """Return Spearman's rank correlation; not a number if a side is constant.

    >>> spearman([1, 2, 3], [10, 30, 20]).item(), spearman([1, 1], [1, 2]).item()
    (0.5, nan)
    """
    return pearson(ranks(one), ranks(other))


def kendall(one: ArrayLike, other: ArrayLike) -> Floats:
    """Return Kendall's tau-b, which allows for ties; not a number if a side is constant.

    >>> round(kendall([1, 2, 3, 4], [1, 2, 4, 3]).item(), 3)
    0.667
    """
    tables = (compare_pairs(one), compare_pairs(other))
    return _cosine(*(table.reshape(-1, *table.shape[2:]).astype(np.float64) for table in tables))


def kendall_columns(one: Floats, other: Floats) -> Floats:
    """Return Kendall's tau-b of many columns, a block at a time: each compares all pairs of its values.

    >>> kendall_columns(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[1.0, 1.0], [2.0, 2.0]])).tolist()
    [1.0, -1.0]
    """
    block = max(1, _PAIRS_AT_ONCE // len(one) ** 2)
    parts = (slice(start, start + block) for start in range(0, one.shape[1], block))
    return np.concatenate([kendall(one[:, part], other[:, part]) for part in parts])


def compare_pairs(values: ArrayLike) -> NDArray[np.int8]:
    """Compare all pairs of values: 1 where that of the row is larger than that of the column, -1 where it is smaller.

    >>> compare_pairs([0.2, 0.1, 0.2]).tolist()
    [[0, 1, 0], [-1, 0, -1], [0, 1, 0]]
    """
    column = np.asarray(values, dtype=np.float64)
    gaps = column[:, np.newaxis] - column[np.newaxis]
    return np.sign(np.where(np.abs(gaps) > _EQUAL, gaps, 0.0)).astype(np.int8)


def flipped_pairs(one: ArrayLike, other: ArrayLike) -> list[tuple[int, int]]:
    """Return the pairs whose order differs; a tie on either side is not a flip.

    >>> flipped_pairs([3, 2, 1], [3, 1, 2])
    [(1, 2)]
    """
    opposite = compare_pairs(one) * compare_pairs(other) < 0
    return [(first, second) for first, second in combinations(range(len(opposite)), 2) if opposite[first, second]]


def _cosine(a: Floats, b: Floats) -> Floats:
    size = np.sqrt((a * a).sum(axis=0) * (b * b).sum(axis=0))
    return np.asarray((a * b).sum(axis=0) / np.where(size > 0, size, np.nan))


def _drawn_ranks(shares: Floats, codes: NDArray[np.intp]) -> Floats:
    """Return the ranks of all points among those of each resample, as shares of it: the resamples are rows."""
    order = np.argsort(codes, kind="stable")
    held = np.add.reduceat(shares[:, order], np.searchsorted(codes[order], np.arange(codes.max() + 1)), axis=1)
    return np.asarray((np.cumsum(held, axis=1) - held / 2)[:, codes])


def _weighted(shares: Floats, one: Floats, other: Floats, least: float = 1e-12) -> Floats:
    """Return Pearson's correlation in each resample; not a number where the product of deviations is too small."""
    x, y = (side - (shares * side).sum(axis=1, keepdims=True) for side in (one, other))
    joint, x_size, y_size = (np.einsum("ij,ij,ij->i", shares, a, b) for a, b in ((x, y), (x, x), (y, y)))
    size = np.sqrt(x_size * y_size)
    return np.asarray(np.clip(joint / np.where(size > least, size, np.nan), -1.0, 1.0))


@dataclass(frozen=True)
class Discrimination:
    """Area under the curve: how often a value is lower for an event than for a non-event; a tie counts half."""

    events: int  # number of events
    others: int
    auc: Figure | None = None  # None if all are events, or none is

    def as_dict(self) -> dict[str, float | None]:
        """Return the figures for `--json`."""
        return {"events": self.events, "others": self.others, **figure_dict(self.auc, "auc")}


def discrimination(tasks: Sequence[tuple[Floats, NDArray[np.bool_]]]) -> Discrimination:
    """Compute the area under the curve of low values as a warning, from each task's values and events.

    >>> curve = discrimination([(np.array([0.1, 0.9, 0.3, 0.8]), np.array([True, False, True, False]))])
    >>> curve.auc.value, curve.events, curve.others
    (1.0, 2, 2)
    """
    events = sum(int(happened.sum()) for _, happened in tasks)
    others = sum(len(happened) for _, happened in tasks) - events
    # Pairs in which the event has the lower value, and all pairs: first as observed, then in every resample.
    won, pairs = np.zeros(1 + RESAMPLES), np.zeros(1 + RESAMPLES)
    for place, (values, happened) in enumerate(tasks):
        below = values[happened][:, None] - values[~happened][None]
        wins = np.where(below < 0, 1.0, np.where(below == 0, 0.5, 0.0))
        if len(values):
            drawn = np.concatenate(list(weights(len(values), place))) * len(values)
            counts = np.concatenate([np.ones((1, len(values))), drawn])
            lower, higher = counts[:, happened], counts[:, ~happened]
            won += ((lower @ wins) * higher).sum(axis=1)
            pairs += lower.sum(axis=1) * higher.sum(axis=1)
    if not pairs[0]:
        return Discrimination(events, others)
    drawn = won[1:] / np.where(pairs[1:] > 0, pairs[1:], np.nan)
    return Discrimination(events, others, figure_of(won[0] / pairs[0], drawn, [len(values) for values, _ in tasks]))


@dataclass(frozen=True)
class Slope:
    """Rise of y for a rise of x by 1; None if x does not vary."""

    points: int
    rise: Figure | None = None

    def as_dict(self) -> dict[str, float | None]:
        """Return the figures for `--json`."""
        return {"points": self.points, **figure_dict(self.rise, "slope")}


def slope_over_systems(x: Sequence[Floats], y: Sequence[Floats]) -> Slope:
    """Compute the slope through the systems' means over tasks, from a table of systems x queries for each task.

    >>> slope = slope_over_systems([np.array([[0.2, 0.4], [0.4, 0.6]])], [np.array([[0.0, 0.0], [1.0, 0.0]])])
    >>> slope.points, round(slope.rise.value, 2)
    (2, 2.5)
    """
    points = len(x[0]) if x else 0
    if points < 2:
        return Slope(points)
    means = [np.mean([table.mean(axis=1) for table in side], axis=0)[:, None] for side in (x, y)]
    drawn = [np.mean([resampled_means(t, place) for place, t in enumerate(side)], axis=0) for side in (x, y)]
    return Slope(points, figure_of(_fit(*means)[0], _fit(*drawn), [table.shape[1] for table in x]))


def slope_within_queries(x: Sequence[Floats], y: Sequence[Floats]) -> Slope:
    """Compute the slope over the systems of each query, pooled over all queries of all tasks.

    >>> slope = slope_within_queries([np.array([[0.0, 0.5], [1.0, 0.5]])], [np.array([[0.0, 1.0], [1.0, 1.0]])])
    >>> slope.points, slope.rise.value
    (2, 1.0)
    """
    if not x or len(x[0]) < 2:
        return Slope(sum(table.shape[1] for table in x))
    counts, drawn, together = [table.shape[1] for table in x], np.zeros((2, RESAMPLES)), np.zeros(2)
    for place, (one, other) in enumerate(zip(x, y, strict=True)):
        # Sums over the systems of each query, about the query's own mean.
        a, b = (side - side.mean(axis=0) for side in (one, other))
        sums = np.stack([(a * b).sum(axis=0), (a * a).sum(axis=0)])
        together += sums.sum(axis=1)
        drawn += resampled_means(sums, place) * counts[place]
    return Slope(sum(counts), figure_of(_ratio(together[0], together[1]), _ratio(drawn[0], drawn[1]), counts))


def _fit(x: Floats, y: Floats) -> Floats:
    a, b = (side - side.mean(axis=0) for side in (x, y))
    return _ratio((a * b).sum(axis=0), (a * a).sum(axis=0))


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.asarray(part / np.where(whole > 1e-12, whole, np.nan))

"""Intervals of means, by resampling the queries.

A resample of n queries is a row of counts, one per query. All systems share the rows, so that matrix products give
every system's resampled means at once, and their differences are paired by query.

Percentiles of resampled means are too narrow for few queries, by the factor between the two estimates of a standard
deviation and by that between the normal and the t distribution. The tails are moved outwards by the same factor
("expanded percentiles", Hesterberg 2015); `benchmarks/intervals.py` prints the coverage of this and other intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.measure.figure import Figure

Floats = NDArray[np.float64]
Name = TypeVar("Name")
RESAMPLES = 10_000
SEED = 20250514  # the seed of all random draws in measuring
LEVEL = 0.95
NORMAL = 1.959963984540054  # the 97.5% quantile of the normal distribution
_BLOCK = 1 << 20  # numbers in memory at a time
_CACHED = 1024  # queries up to which a task's resamples are cached for the next call


def weights(queries: int, stratum: int = 0) -> Iterator[Floats]:
    """Yield the resamples of this many queries in blocks, a row each that sums to 1; each stratum has its own draws."""
    for counts in _cached_counts(queries, stratum) if queries <= _CACHED else _counts(queries, stratum):
        yield counts / queries


@lru_cache(maxsize=32)
def _cached_counts(queries: int, stratum: int) -> tuple[NDArray[np.uint8], ...]:
    return tuple(_counts(queries, stratum))


def _counts(queries: int, stratum: int) -> Iterator[NDArray[np.uint8]]:
    generator = np.random.default_rng([SEED, stratum, queries])
    block = min(RESAMPLES, max(1, _BLOCK // queries))
    for start in range(0, RESAMPLES, block):
        rows = min(block, RESAMPLES - start)
        drawn = generator.integers(0, queries, size=(rows, queries))
        drawn += np.arange(rows)[:, None] * queries
        counts = np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries)
        # A query drawn 256 times is practically impossible; it would be cut to 255.
        yield np.minimum(counts, 255).astype(np.uint8)


def task_intervals(values: Floats) -> list[Figure]:
    """Return each system's interval on one task, from a table of systems x queries.

    >>> task_intervals(np.array([[0.0, 1.0, 0.0, 1.0]]))[0].value
    0.5
    """
    table = np.atleast_2d(values)
    return _intervals(table.mean(axis=1), resampled_means(table), [table.shape[1]])


def average_intervals(tasks: Sequence[Floats]) -> list[Figure]:
    """Return each system's interval for the mean over tasks: queries are resampled within each task, never across."""
    return _average(tasks, [resampled_means(values, place) for place, values in enumerate(tasks)])


def board_intervals(board: Mapping[Name, Floats]) -> tuple[dict[Name, list[Figure]], list[Figure]]:
    """Return the intervals of a whole board, by task and of the average; rows are the same systems in every task."""
    drawn = [resampled_means(values, place) for place, values in enumerate(board.values())]
    by_task = {
        task: _intervals(values.mean(axis=1), means, [values.shape[1]])
        for (task, values), means in zip(board.items(), drawn, strict=True)
    }
    return by_task, _average(list(board.values()), drawn)


def resampled_means(values: Floats, stratum: int = 0) -> Floats:
    """Return the resampled means: systems x queries in, systems x resamples out."""
    table = np.atleast_2d(values)
    return np.concatenate([table @ shares.T for shares in weights(table.shape[1], stratum)], axis=1)


def _average(tasks: Sequence[Floats], drawn: Sequence[Floats]) -> list[Figure]:
    tables = [np.atleast_2d(values) for values in tasks]
    means = np.mean([table.mean(axis=1) for table in tables], axis=0)
    return _intervals(means, np.mean(drawn, axis=0), [table.shape[1] for table in tables])


def _intervals(means: Floats, drawn: Floats, queries: Sequence[int]) -> list[Figure]:
    tail = 100 * _expanded_tail(queries)
    ends = np.percentile(drawn, [tail, 100 - tail], axis=1)
    return [Figure(*map(float, row)) for row in zip(means, *ends, strict=True)]


def percentile_ends(drawn: Floats, queries: Sequence[int]) -> tuple[float, float] | None:
    """Return the ends of the interval of a resampled statistic; None if it is undefined in most resamples.

    >>> percentile_ends(np.full(10, 0.5), [8]), percentile_ends(np.full(10, np.nan), [8])
    ((0.5, 0.5), None)
    """
    defined = drawn[np.isfinite(drawn)]
    if 2 * len(defined) < len(drawn) or not len(defined):
        return None
    tail = 100 * _expanded_tail(queries)
    low, high = np.percentile(defined, [tail, 100 - tail]).tolist()
    return low, high


def figure_of(value: float | Floats, drawn: Floats, queries: Sequence[int]) -> Figure | None:
    """Return a statistic with the interval of its resamples; None if it is not a number.

    >>> figure_of(0.5, np.full(10, 0.5), [8]), figure_of(0.5, np.empty(0), [1])
    (Figure(value=0.5, low=0.5, high=0.5), Figure(value=0.5, low=None, high=None))
    """
    return None if np.isnan(value) else Figure(float(value), *(percentile_ends(drawn, queries) or ()))


def _expanded_tail(queries: Sequence[int]) -> float:
    """Return the share of resamples beyond each end of the interval of a mean over tasks of so many queries."""
    return math.erfc(NORMAL * expansion(queries) / math.sqrt(2)) / 2


def expansion(queries: Sequence[int]) -> float:
    """Return the factor by which resampled means of tasks of so many queries spread too little for an interval.

    >>> round(expansion([9]), 3), round(expansion([100] * 8), 3)
    (1.248, 1.007)
    """
    several = [count for count in queries if count > 1]
    if not several:
        return 1.0
    inflation = math.sqrt(sum(count / (count - 1) for count in several) / len(several))
    return inflation * t_quantile((1 + LEVEL) / 2, sum(several) - len(several)) / NORMAL


@lru_cache
def t_quantile(share: float, freedom: int) -> float:
    """Return the value below which a share of a t distribution lies; scipy.special takes 0.15 s to import."""
    odd, powers = freedom % 2, np.arange(freedom // 2) * 2
    factors = np.cumprod(np.append(1.0, (powers[1:] - 1 + odd) / (powers[1:] + odd)))[: freedom // 2]
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        # The share between sqrt(freedom) * tan(angle) and its negative (Abramowitz and Stegun 26.7.3 and 26.7.4).
        within = math.sin(angle) * float(factors @ math.cos(angle) ** (powers + odd))
        within = (angle + within) * 2 / math.pi if odd else within
        low, high = (angle, high) if within < 2 * share - 1 else (low, angle)
    return math.sqrt(freedom) * math.tan(low)

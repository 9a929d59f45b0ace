"""Intervals of means, by resampling the queries.

A resample of n queries is a row of counts, one per query. All systems share the rows, so that matrix
products give every system's resampled means at once, and their differences are paired by query. Rows are made a block
at a time, so that memory does not grow with the number of queries.

Percentiles of resampled means are too narrow for few queries, by the factor between the two estimates of a standard
deviation and by that between the normal and the t distribution. The tails are moved outwards by the same factor
("expanded percentiles", Hesterberg 2015); `benchmarks/intervals.py` prints the coverage of this and other intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.measure.figure import Figure

Floats = NDArray[np.float64]
Name = TypeVar("Name")
RESAMPLES = 10_000
SEED = 20250514
"""The seed of all random draws in measuring."""
LEVEL = 0.95
_BLOCK = 1 << 20
"""Numbers in memory at a time."""
_BITS = 26
"""Bits of a number in each half: with 27 more for the count of the summands, a sum fits a double's 53."""
_KEPT = 1024
"""Queries up to which a task's resamples are cached for the next call."""


def weights(queries: int, stratum: int = 0) -> Iterator[Floats]:
    """Yield the resamples of a task with this many queries, in blocks: a row each, summing to 1.

    Each stratum has its own draws, the same every time.
    """
    for counts in _drawn_counts(queries, stratum):
        yield counts / queries


def _drawn_counts(queries: int, stratum: int) -> Iterable[NDArray[np.uint8]]:
    return _kept_counts(queries, stratum) if queries <= _KEPT else _counts(queries, stratum)


@lru_cache(maxsize=32)
def _kept_counts(queries: int, stratum: int) -> tuple[NDArray[np.uint8], ...]:
    return tuple(_counts(queries, stratum))


def _counts(queries: int, stratum: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the counts of each query in each resample, in blocks."""
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
    means, drawn = _average(tasks, [resampled_means(values, place) for place, values in enumerate(tasks)])
    return _intervals(means, drawn, [np.atleast_2d(values).shape[1] for values in tasks])


def board_intervals(board: Mapping[Name, Floats]) -> tuple[dict[Name, list[Figure]], list[Figure]]:
    """Return the intervals of a whole board, by task and of the average; rows are the same systems in every task."""
    drawn = [resampled_means(values, place) for place, values in enumerate(board.values())]
    by_task = {
        task: _intervals(values.mean(axis=1), means, [values.shape[1]])
        for (task, values), means in zip(board.items(), drawn, strict=True)
    }
    average = _average(list(board.values()), drawn)
    return by_task, _intervals(*average, [values.shape[1] for values in board.values()])


def resampled_means(values: Floats, stratum: int = 0) -> Floats:
    """Return the resampled means: systems x queries in, systems x resamples out."""
    table = np.atleast_2d(values)
    parts, queries = split_table(table), table.shape[1]
    drawn = [exact_sums(counts.astype(np.float64), parts) / queries for counts in _drawn_counts(queries, stratum)]
    return np.ascontiguousarray(np.concatenate(drawn).T)


class SplitTable(NamedTuple):
    """Table of systems x queries as whole numbers below 2^27, which are summed without rounding in any order."""

    upper: Floats
    """Queries x systems: the first 26 bits of each number."""
    lower: Floats
    """The next 26."""
    scales: Floats
    """Factors that restore the scale of each system's sums."""


def split_table(table: Floats) -> SplitTable:
    """Split a table in two halves of its bits, each system by its largest number."""
    exponents = np.frexp(np.abs(table).max(axis=1, initial=0.0))[1] - _BITS
    raised = np.ldexp(table, -exponents[:, None])
    upper = np.floor(raised)
    lower = np.rint(np.ldexp(raised - upper, _BITS))
    return SplitTable(upper.T, lower.T, np.ldexp(1.0, exponents - _BITS))


def exact_sums(counts: Floats, table: SplitTable) -> Floats:
    """Multiply rows of small whole numbers with a table: resamples x systems, rounded once.

    The bits are the same for any number of threads or systems that share the work.

    >>> exact_sums(np.array([[1.0, 2.0]]), split_table(np.array([[0.1, 0.2], [3.0, -1.5]]))).tolist()
    [[0.5, 0.0]]
    """
    return (np.ldexp(counts @ table.upper, _BITS) + counts @ table.lower) * table.scales


def _average(tasks: Sequence[Floats], drawn: Sequence[Floats]) -> tuple[Floats, Floats]:
    return np.mean([np.atleast_2d(values).mean(axis=1) for values in tasks], axis=0), np.mean(drawn, axis=0)


def _intervals(means: Floats, drawn: Floats, queries: Sequence[int]) -> list[Figure]:
    tail = 100 * expanded_tail(queries)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=1)
    return [Figure(float(m), float(a), float(b)) for m, a, b in zip(means, low, high, strict=True)]


def percentile_ends(drawn: Floats, queries: Sequence[int]) -> tuple[float, float] | None:
    """Return the ends of the interval of a resampled statistic; None if it is undefined in most resamples.

    >>> percentile_ends(np.full(10, 0.5), [8]), percentile_ends(np.full(10, np.nan), [8])
    ((0.5, 0.5), None)
    """
    known = drawn[np.isfinite(drawn)]
    if 2 * len(known) < len(drawn) or not len(known):
        return None
    tail = 100 * expanded_tail(queries)
    low, high = np.percentile(known, [tail, 100 - tail]).tolist()
    return low, high


def expanded_tail(queries: Sequence[int]) -> float:
    """Return the share of resamples beyond each end of the interval of a mean over tasks with these numbers of queries.

    >>> round(expanded_tail([1000]), 4), round(expanded_tail([9]), 4)
    (0.0248, 0.0072)
    """
    tail = (1 - LEVEL) / 2
    several = [count for count in queries if count > 1]
    if not several:
        return tail
    inflation = math.sqrt(sum(count / (count - 1) for count in several) / len(several))
    return normal_share(-inflation * t_quantile(1 - tail, sum(several) - len(several)))


def normal_share(value: float) -> float:
    """Return the share of the normal distribution below a value.

    >>> round(normal_share(1.96), 4)
    0.975
    """
    return 0.5 * math.erfc(-value / math.sqrt(2))


def normal_quantile(share: float) -> float:
    """Return the value below which a share, at least a half, of the normal distribution lies.

    >>> normal_quantile(0.5), round(normal_quantile(0.975), 9)
    (0.0, 1.959963985)
    """
    value, step = 0.0, 1.0
    # Above its middle the distribution is concave: Newton's steps from there never go too far.
    while step > 1e-15 * value:
        step = (share - normal_share(value)) * math.sqrt(2 * math.pi) * math.exp(value * value / 2)
        value += step
    return value


def t_quantile(share: float, freedom: int) -> float:
    """Return the value below which a share, more than a half, of a t distribution lies; as scipy's, without its import.

    >>> [round(t_quantile(0.975, freedom), 2) for freedom in (1, 2, 3, 8, 100)]
    [12.71, 4.3, 3.18, 2.31, 1.98]
    """
    if freedom == 1:
        return math.tan(math.pi * (share - 0.5))
    if freedom == 2:
        return (2 * share - 1) * math.sqrt(2 / (4 * share * (1 - share)))
    # Cornish and Fisher's expansion around the normal distribution (Abramowitz and Stegun 26.7.5).
    z = normal_quantile(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    correction: float = sum(term / freedom**power for power, term in enumerate(terms, 1))
    return z + correction

"""Intervals of ranks, and the probability that one system is above another, by resampling the queries.

All systems share the resamples, so that every comparison is paired. The interval of a system's rank holds every rank
that its comparisons with the others leave possible: it is below those that are better beyond chance and above those
that are worse, by one limit for all its comparisons together (the largest of their studentised differences, resampled;
Mogstad, Romano, Shaikh and Wilhelm 2024). Percentiles of the resampled ranks themselves are too narrow where systems
are close: `benchmarks/ranks.py` prints the coverage of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.measure.bootstrap import LEVEL, Floats, expansion, resampled_means

_EQUAL = 1e-6  # differences up to this are those of rounding


class RankIntervals(NamedTuple):
    """Ranks that the scores leave possible, a place per system."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    above: Floats
    """The probability that the system of the row is above the one of the column; resamples that tie count half."""


def rank_intervals(tasks: Sequence[Floats]) -> RankIntervals:
    """Return the 95% intervals of ranks by the mean over tasks, from tables of systems x queries.

    >>> scores = np.array([[0.9, 0.8, 0.7, 0.9], [0.2, 0.1, 0.1, 0.0], [0.2, 0.1, 0.0, 0.1]])
    >>> ranks = rank_intervals([scores])
    >>> ranks.low.tolist(), ranks.high.tolist(), float(ranks.above[0, 1])
    ([1, 2, 2], [1, 3, 3], 1.0)
    """
    means = np.mean([values.mean(axis=1) for values in tasks], axis=0)
    drawn = np.mean([resampled_means(values, place) for place, values in enumerate(tasks)], axis=0)
    factor = expansion([values.shape[1] for values in tasks])
    shifts = ((drawn - means[:, None]) * factor).astype(np.float32)  # half the memory to go through
    count = len(means)
    low, high, above = np.ones(count, np.int64), np.full(count, count), np.full((count, count), 0.5)
    for place in range(count):
        gaps, moves = means[place] - means, shifts[place] - shifts
        spreads = moves.std(axis=1)
        varies = spreads > _EQUAL
        limit = 0.0
        if varies.any():
            largest = (np.abs(moves[varies]) / spreads[varies, None]).max(axis=0)
            limit = float(np.percentile(largest, 100 * LEVEL))
        low[place] += np.sum(gaps < -np.maximum(limit * spreads, _EQUAL))
        high[place] -= np.sum(gaps > np.maximum(limit * spreads, _EQUAL))
        resampled = gaps[:, None] + moves
        above[place] = (resampled > _EQUAL).mean(axis=1) + (np.abs(resampled) <= _EQUAL).mean(axis=1) / 2
    return RankIntervals(low, high, above)

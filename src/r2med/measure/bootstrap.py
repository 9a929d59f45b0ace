"""Intervals: how far a mean could be from the truth, by resampling the queries.

A resample of n queries is a row of weights, how often each query is drawn, over n. All systems share the rows, so
that one matrix product gives every system's resampled means at once, and their differences are paired by query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 10_000
SEED = 20250514
LEVEL = 0.95


class Interval(NamedTuple):
    """A mean and where the true one lies with the given probability."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} [{100 * self.low:.2f}, {100 * self.high:.2f}]"


@lru_cache(maxsize=64)
def weights(queries: int, stratum: int = 0, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """The resamples of a task with so many queries: a row each, summing to 1. Each stratum has its own draws."""
    drawn = np.random.default_rng([seed, stratum, queries]).integers(0, queries, size=(resamples, queries))
    drawn += np.arange(resamples)[:, None] * queries
    counts = np.bincount(drawn.ravel(), minlength=resamples * queries)
    return counts.reshape(resamples, queries) / queries


def task_intervals(values: Floats) -> list[Interval]:
    """Each system's interval on one task, from a table of systems x queries.

    >>> task_intervals(np.array([[0.0, 1.0, 0.0, 1.0]]))[0].mean
    0.5
    """
    return _intervals(np.atleast_2d(values).mean(axis=1), _resampled_means(values))


def average_intervals(tasks: Sequence[Floats]) -> list[Interval]:
    """Each system's interval for the mean over tasks: queries are resampled within each task, never across."""
    means, drawn = _average(tasks, [_resampled_means(values, place) for place, values in enumerate(tasks)])
    return _intervals(means, drawn)


def board_intervals(board: Mapping[str, Floats]) -> tuple[dict[str, list[Interval]], list[Interval]]:
    """The intervals of a whole board: by task, and of the average; rows are the same systems in every task."""
    drawn = [_resampled_means(values, place) for place, values in enumerate(board.values())]
    by_task = {
        task: _intervals(values.mean(axis=1), means) for (task, values), means in zip(board.items(), drawn, strict=True)
    }
    return by_task, _intervals(*_average(list(board.values()), drawn))


def _resampled_means(values: Floats, stratum: int = 0) -> Floats:
    """Systems x queries in, systems x resamples out."""
    table = np.atleast_2d(values)
    means: Floats = table @ weights(table.shape[1], stratum).T
    return means


def _average(tasks: Sequence[Floats], drawn: Sequence[Floats]) -> tuple[Floats, Floats]:
    return np.mean([np.atleast_2d(values).mean(axis=1) for values in tasks], axis=0), np.mean(drawn, axis=0)


def _intervals(means: Floats, drawn: Floats) -> list[Interval]:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=1)
    return [Interval(float(m), float(a), float(b)) for m, a, b in zip(means, low, high, strict=True)]

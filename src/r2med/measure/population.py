"""Estimates for what was not observed: population sizes by capture-recapture, shares, and prediction-powered means.

The overlap of what several searchers find of a population shows how many items all missed, if they find independently:
Chapman's estimator for two, the maximum of the likelihood for more (Darroch 1958). The interval holds the sizes that a
likelihood-ratio test does not reject (Cormack 1992); `benchmarks/capture.py` prints its coverage. Searchers that find
the same easy items make the estimate too low; Chao's (1987) lower bound allows for items that are hard for all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from r2med.errors import R2medError
from r2med.measure.bootstrap import LEVEL
from r2med.measure.figure import Figure, figure_dict

_CHI = 3.841458820694124  # the 95% point of the chi-square distribution with one degree of freedom
_LARGEST = 10_000  # ratio to the items seen from which on a population counts as unbounded


@dataclass(frozen=True)
class PopulationEstimate:
    """Estimate of the size of a population, from what several searchers found of it."""

    searchers: int
    """Number of searchers that found anything."""
    seen: int
    """Items found by at least one of them."""
    once: int
    """Items found by exactly one."""
    twice: int
    total: float | None
    """The estimated size; None if fewer than two searchers found anything, or none of them found the same."""
    low: int | None
    high: int | None
    """The ends of the 95% interval; None if unbounded."""
    lower_bound: float | None
    """Chao's lower bound of the size, of three searchers or more."""

    @property
    def complete(self) -> float | None:
        """Return the share that was found."""
        return self.seen / self.total if self.total else None

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate for `--json`."""
        return asdict(self) | {"complete": self.complete}


def estimate_population(found: ArrayLike) -> PopulationEstimate:
    """Estimate a population from a table of items x searchers of what each found, without items that none found.

    >>> both, one, other = [[1, 1]] * 30, [[1, 0]] * 30, [[0, 1]] * 10
    >>> estimate = estimate_population([*both, *one, *other])
    >>> estimate.seen, round(estimate.total, 1), estimate.low, estimate.high
    (70, 79.7, 72, 92)
    """
    table = np.atleast_2d(np.asarray(found, dtype=bool))
    table = table[table.any(axis=1)] if table.size else table.reshape(0, 0)
    table = table[:, table.any(axis=0)]
    counts, times = table.sum(axis=0).tolist(), table.sum(axis=1)
    seen, searchers = len(table), len(counts)
    once, twice = int((times == 1).sum()), int((times == 2).sum())
    if searchers < 2:
        return PopulationEstimate(searchers, seen, once, twice, None, None, None, None)
    total, low, high = _independent(seen, counts)
    bound = seen + (searchers - 1) / searchers * once * (once - 1) / (2 * (twice + 1)) if searchers > 2 else None
    return PopulationEstimate(searchers, seen, once, twice, total, low, high, bound)


def _independent(seen: int, counts: Sequence[int]) -> tuple[float | None, int | None, int | None]:

    def likelihood(size: int) -> float:
        """Return the log-likelihood of a size, with each searcher's best chance to find an item."""
        arrangements = math.lgamma(size + 1) - math.lgamma(size - seen + 1)
        parts = (part for count in counts for part in (count, size - count) if part)
        return arrangements + sum(part * math.log(part / size) for part in parts)

    most = _LARGEST * seen
    best = seen + _last(lambda step: likelihood(seen + step) > likelihood(seen + step - 1), most)
    top = likelihood(best)

    def plausible(size: int) -> bool:
        return 2 * (top - likelihood(size)) <= _CHI

    low = best - _last(lambda step: plausible(best - step), best - seen)
    above = _last(lambda step: plausible(best + step), most)
    high = None if above == most else best + above
    if len(counts) == 2:
        both = sum(counts) - seen
        return (counts[0] + 1) * (counts[1] + 1) / (both + 1) - 1, low, high
    return (None if best == seen + most else float(best)), low, high


def _last(holds: Callable[[int], bool], most: int) -> int:
    """Return the last step up to `most` for which a condition holds that holds up to a point only; 0 for none."""
    return bisect_left(range(1, most + 1), True, key=lambda step: not holds(step))


class CaughtShare(NamedTuple):
    """Share of a count that is not 0."""

    part: int
    whole: int

    @property
    def figure(self) -> Figure:
        """Return the share with Wilson's 95% interval."""
        value = self.part / self.whole
        middle = value + _CHI / (2 * self.whole)
        half = math.sqrt(_CHI * (value * (1 - value) + _CHI / (4 * self.whole)) / self.whole)
        scale = 1 + _CHI / self.whole
        return Figure(value, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))

    def as_dict(self) -> dict[str, float | None]:
        """Return the share for `--json`."""
        return {"part": self.part, "whole": self.whole, **figure_dict(self.figure)}


def share(part: int, whole: int) -> CaughtShare | None:
    """Return a share with its interval; None if the whole is 0.

    >>> value, low, high = share(45, 50).figure
    >>> value, round(low, 3), round(high, 3)
    (0.9, 0.786, 0.957)
    """
    return CaughtShare(part, whole) if whole else None


def prediction_powered_mean(
    human: ArrayLike, predicted: ArrayLike, further: ArrayLike, trust: float | None = None
) -> Figure:
    """Return the mean of the labels that humans would give, with its 95% interval.

    `human` and `predicted` are labels of the same items, `further` the predictions for all other items. `trust` is
    the weight of predictions, from 0 (none) to 1; by default the one that makes the interval narrowest.

    >>> mean = prediction_powered_mean([1, 0, 1, 1, 0, 1], [1, 0, 1, 0, 0, 1], [1, 0, 1, 0, 1, 1, 1, 0, 0, 1])
    >>> [round(end, 3) for end in mean]
    [0.706, 0.394, 1.018]
    """
    from scipy.special import ndtri

    labels, beside, alone = (np.asarray(column, dtype=np.float64) for column in (human, predicted, further))
    if len(labels) != len(beside):
        raise R2medError(f"{len(labels)} human labels for {len(beside)} predictions of the same items")
    if len(labels) < 2 or not len(alone):
        raise R2medError("a prediction-powered interval needs two human labels and one further prediction at least")
    if trust is None:
        together = float(((labels - labels.mean()) * (beside - beside.mean())).mean())
        spread = float(np.concatenate([beside, alone]).var(ddof=1))
        ratio = together / (1 + len(labels) / len(alone)) / spread if spread else 0.0
        trust = min(1.0, max(0.0, ratio))
    corrections = labels - trust * beside
    mean = float(trust * alone.mean() + corrections.mean())
    error = math.sqrt(float((trust**2 * alone.var()) / len(alone) + corrections.var() / len(labels)))
    half = float(ndtri((1 + LEVEL) / 2)) * error
    return Figure(mean, mean - half, mean + half)

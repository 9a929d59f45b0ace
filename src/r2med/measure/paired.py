"""Is one system better than another? Paired by query, within tasks, averaged over tasks.

The statistic is the headline's: the mean over tasks of the mean difference over queries. The randomisation test flips
the sign of each query's difference, the t-test is the paired one (for several tasks the means' variances are added and
the degrees of freedom follow Welch and Satterthwaite), the interval resamples queries within tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.measure.bootstrap import SEED, Interval, average_intervals

Floats = NDArray[np.float64]

PERMUTATIONS = 10_000
ALPHA = 0.05
POWER = 0.8
_BLOCK = 2_000


@dataclass(frozen=True)
class Difference:
    """What a comparison of two systems says about B minus A, over one task or several."""

    queries: int
    mean: float
    """The mean over tasks of the mean difference."""
    low: float
    high: float
    """The 95% interval of the mean."""
    randomisation: float
    """The two-sided p-value of the randomisation test."""
    t_test: float
    """The two-sided p-value of the paired t-test; 1 when all differences are equal to 0."""
    effect: float
    """The mean over the standard deviation of the differences within tasks (Cohen's d for paired data)."""
    detectable: float
    """The smallest difference that these queries would show with 80% power at the 5% level."""
    wins: int
    """Queries on which B is better."""
    ties: int
    losses: int

    def as_dict(self) -> dict[str, Any]:
        """The comparison for JSON."""
        return asdict(self)


def difference(tasks: Sequence[Floats], permutations: int = PERMUTATIONS, seed: int = SEED) -> Difference:
    """Compare by the per-query differences (B minus A) of each task.

    >>> found = difference([np.array([0.1, 0.2, 0.0, 0.3, 0.1, 0.2])])
    >>> round(found.mean, 3), found.wins, found.ties, found.losses
    (0.15, 5, 1, 0)
    """
    interval: Interval = average_intervals(tasks)[0]
    every = np.concatenate(list(tasks))
    spread, freedom = _standard_error(tasks)
    return Difference(
        queries=len(every),
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        randomisation=randomisation_test(tasks, permutations, seed),
        t_test=_t_probability(interval.mean, spread, freedom),
        effect=_effect(tasks, interval.mean),
        detectable=_detectable(spread),
        wins=int((every > 0).sum()),
        ties=int((every == 0).sum()),
        losses=int((every < 0).sum()),
    )


def randomisation_test(tasks: Sequence[Floats], permutations: int = PERMUTATIONS, seed: int = SEED) -> float:
    """How often a random choice of signs gives a mean at least as far from 0: the two-sided p-value."""
    observed = abs(float(np.mean([values.mean() for values in tasks])))
    generator = np.random.default_rng(seed)
    reached = 0
    for start in range(0, permutations, _BLOCK):
        rows = min(_BLOCK, permutations - start)
        means = np.zeros(rows)
        for values in tasks:
            signs = generator.integers(0, 2, size=(rows, len(values)), dtype=np.int8) * 2.0 - 1.0
            means += signs @ values / len(values)
        # A hair's breadth of slack, so that the observed arrangement itself counts as reached.
        reached += int((np.abs(means / len(tasks)) >= observed * (1 - 1e-12)).sum())
    return (reached + 1) / (permutations + 1)


def holm(probabilities: Sequence[float]) -> list[float]:
    """P-values corrected for having looked at several comparisons, after Holm.

    >>> [round(p, 4) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    corrected = [0.0] * len(probabilities)
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(probabilities) - place) * probabilities[index]))
        corrected[index] = running
    return corrected


def _standard_error(tasks: Sequence[Floats]) -> tuple[float, float]:
    """The standard error of the mean over tasks, and its degrees of freedom."""
    parts = [(float(v.var(ddof=1)) / len(v) / len(tasks) ** 2, len(v) - 1) for v in tasks if len(v) > 1]
    total = sum(part for part, _ in parts)
    if total == 0.0:
        return 0.0, 0.0
    freedom = total**2 / sum(part**2 / count for part, count in parts if part > 0)
    return math.sqrt(total), freedom


def _t_probability(mean: float, spread: float, freedom: float) -> float:
    if spread == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(mean) / spread))


def _effect(tasks: Sequence[Floats], mean: float) -> float:
    pooled = math.sqrt(float(np.mean([values.var(ddof=1) if len(values) > 1 else 0.0 for values in tasks])))
    return mean / pooled if pooled > 0 else 0.0


def _detectable(spread: float) -> float:
    from scipy.special import ndtri

    return float((ndtri(1 - ALPHA / 2) + ndtri(POWER)) * spread)

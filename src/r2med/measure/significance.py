"""Tests of the difference of two systems: paired by query, within tasks, averaged over tasks.

The statistic is the headline's: the mean over tasks of the mean difference over queries. The randomisation test flips
the sign of each query's difference, in all ways for few queries and in 100,000 random ways for many. The interval holds
the differences that this test does not reject, so that it leaves out 0 exactly when p < 0.05. The t-test is the paired
one (for several tasks the means' variances are added, the degrees of freedom follow Welch and Satterthwaite).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.measure.bootstrap import SEED
from r2med.measure.figure import Figure

Floats = NDArray[np.float64]
PERMUTATIONS = 100_000
"""Random flips of a comparison: a p-value of 0.02 is then known to 0.0005."""
_FEWER = 10_000
"""Flips if many intervals are computed, and in the first pass over many systems."""
_CLEAR = (0.0005, 0.2)
"""P-values outside of these are settled by the first pass over many systems."""
ALPHA = 0.05
POWER = 0.8
EXACT = 16
"""Queries up to which all ways to flip signs are tried."""
_BLOCK = 2_000


@dataclass(frozen=True)
class Difference:
    """Comparison of two systems, B minus A, over one task or several."""

    queries: int
    mean: float
    """The mean over tasks of the mean difference."""
    low: float
    high: float
    """The 95% interval of the mean: the differences that the randomisation test does not reject."""
    randomisation: float
    """The two-sided p-value of the randomisation test."""
    at_floor: bool
    """Whether that is the smallest p-value that this many random flips can give, so the true one may be smaller."""
    t_test: float
    """The two-sided p-value of the paired t-test; 1 when all differences are equal to 0."""
    effect: float
    """The mean over the standard deviation of the differences within tasks (Cohen's d for paired data)."""
    detectable: float | None
    """The smallest difference that these queries would show with 80% power at the 5% level; None if all
    differences are equal, whose spread tells nothing about other queries."""
    wins: int
    """Queries on which B is better."""
    ties: int
    losses: int

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return asdict(self)


def difference(tasks: Sequence[Floats], permutations: int = PERMUTATIONS, seed: int = SEED) -> Difference:
    """Compare by the per-query differences (B minus A) of each task.

    >>> found = difference([np.array([0.1, 0.2, 0.0, 0.3, 0.1, 0.2])])
    >>> round(found.mean, 3), found.wins, found.ties, found.losses
    (0.15, 5, 1, 0)
    """
    every = np.concatenate(list(tasks))
    mean = _mean(tasks)
    spread, freedom = _standard_error(tasks)
    flips = Flips.of(tasks, permutations, seed)
    low, high = flips.interval()
    return Difference(
        queries=len(every),
        mean=mean,
        low=low,
        high=high,
        randomisation=flips.probability,
        at_floor=flips.at_floor,
        t_test=_t_probability(mean, spread, freedom),
        effect=_effect(tasks, mean),
        detectable=_detectable(spread) if any(np.ptp(values) for values in tasks) else None,
        wins=int((every > 0).sum()),
        ties=int((every == 0).sum()),
        losses=int((every < 0).sum()),
    )


def _mean(tasks: Sequence[Floats]) -> float:
    return float(np.mean([values.mean() for values in tasks]))


def randomisation_test(tasks: Sequence[Floats], permutations: int = PERMUTATIONS, seed: int = SEED) -> float:
    """Return the share of sign choices with a mean at least as far from 0: the two-sided p-value.

    >>> randomisation_test([np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.2, 0.1, 0.4])]) == 2 / 2**9
    True
    """
    return Flips.of(tasks, permutations, seed).probability


def randomisation_tests(several: Sequence[Sequence[Floats]], permutations: int = PERMUTATIONS) -> list[float]:
    """Return the p-values of many comparisons over the same queries: all go through the same flips at once.

    >>> ones, none = [np.full(9, 0.1)], [np.zeros(9)]
    >>> randomisation_tests([ones, none]) == [randomisation_test(ones), randomisation_test(none)]
    True
    """
    found = _many_tests(several, min(_FEWER, permutations))
    near = [place for place, p in enumerate(found) if _CLEAR[0] < p < _CLEAR[1]]
    if permutations > _FEWER and near and sum(map(len, several[0])) > EXACT:
        for place, p in zip(near, _many_tests([several[place] for place in near], permutations), strict=True):
            found[place] = p
    return found


def _many_tests(several: Sequence[Sequence[Floats]], permutations: int) -> list[float]:
    if not several:
        return []
    queries = sum(map(len, several[0]))
    exact = queries <= EXACT
    shares = _shares(several[0])
    columns = np.stack([np.concatenate(list(tasks)) * shares for tasks in several], axis=1)
    sizes = np.array([max(float(np.abs(values).max()) for values in tasks) for tasks in several])
    least = np.abs([_mean(tasks) for tasks in several]) - 1e-12 * sizes
    reached, flips = np.zeros(len(several)), 0
    for signs in _every_sign(queries) if exact else _random_signs(queries, permutations, SEED):
        reached += (np.abs(signs @ columns) >= least).sum(axis=0)
        flips += len(signs)
    found: list[float] = (reached / flips if exact else (reached + 1) / (flips + 1)).tolist()
    return found


def _shares(tasks: Sequence[Floats]) -> Floats:
    """Return each query's share in the mean over tasks."""
    return np.concatenate([np.full(len(values), 1 / len(values) / len(tasks)) for values in tasks])


@dataclass(frozen=True)
class Flips:
    """Means under flips of the signs of queries' differences: all flips, or a random choice of them."""

    mean: float
    """The observed mean."""
    size: float
    """The largest difference of a query."""
    means: Floats
    """The mean under each flip."""
    balances: Floats
    """The mean of the signs under each flip: the change of its mean per shift of all differences."""
    exact: bool

    @classmethod
    def of(cls, tasks: Sequence[Floats], permutations: int = PERMUTATIONS, seed: int = SEED) -> Flips:
        """Flip all differences of the tasks, each task with the same weight."""
        queries = sum(map(len, tasks))
        exact = queries <= EXACT
        shares = _shares(tasks)
        columns = np.stack([np.concatenate(list(tasks)) * shares, shares], axis=1)
        if exact:
            found = np.concatenate([signs @ columns for signs in _every_sign(queries)])
        else:
            found = np.concatenate([_flipped(bits, columns) for bits in _random_bits(queries, permutations, seed)])
        size = max(float(np.abs(values).max()) for values in tasks)
        return cls(_mean(tasks), size, found[:, 0], found[:, 1], exact)

    @property
    def probability(self) -> float:
        """Return the two-sided p-value; a random choice counts the observed arrangement as one more."""
        # With slack, so that arrangements that are equal but for rounding count as reached.
        reached = int((np.abs(self.means) >= abs(self.mean) - 1e-12 * self.size).sum())
        return reached / len(self.means) if self.exact else (reached + 1) / (len(self.means) + 1)

    @property
    def at_floor(self) -> bool:
        """Return whether no random flip reached the observed mean."""
        return not self.exact and self.probability <= 1 / (len(self.means) + 1)

    def interval(self) -> tuple[float, float]:
        """Return the shifts of all differences that the test would not reject at the 5% level.

        Under a shift the flipped mean is `means - shift * balances`, and the observed one `mean - shift`. The first is
        as far from 0 as the second up to a largest shift above the mean and a smallest one below, which are solved for
        every flip. With too few queries to reject any shift, the interval is all that is possible.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.stack(
                [(self.mean + self.means) / (1 + self.balances), (self.mean - self.means) / (1 - self.balances)]
            )
        whole = np.abs(self.balances) > 1 - 1e-9  # all signs alike: reached by every shift
        high = np.where(whole, np.inf, np.nanmax(np.where(np.isnan(ends), -np.inf, ends), axis=0))
        low = np.where(whole, -np.inf, np.nanmin(np.where(np.isnan(ends), np.inf, ends), axis=0))
        count = len(self.means)
        needed = math.ceil(ALPHA * count - 1e-9) if self.exact else max(1, math.ceil(ALPHA * (count + 1) - 1 - 1e-9))
        most, slack = max(1.0, self.size), 1e-12 * self.size
        lowest = float(np.partition(low, needed - 1)[needed - 1]) - slack
        highest = float(-np.partition(-high, needed - 1)[needed - 1]) + slack
        return min(self.mean, max(-most, lowest)), max(self.mean, min(most, highest))


def _every_sign(queries: int) -> Iterator[Floats]:
    """Yield all ways to flip signs but for flipping all at once, which changes no distance from 0."""
    numbers = np.arange(1 << max(0, queries - 1))[:, None]
    yield (1 - 2 * ((numbers >> np.arange(queries)) & 1)).astype(np.float64)


def _random_bits(queries: int, permutations: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Yield random flips, a row each, eight queries per byte: the highest bit is the first of them, 1 leaves a sign."""
    generator = np.random.default_rng(seed)
    block, width = max(1, min(_BLOCK, (1 << 21) // queries)), -(-queries // 8)
    for start in range(0, permutations, block):
        rows = min(block, permutations - start)
        yield np.frombuffer(generator.bytes(rows * width), dtype=np.uint8).reshape(rows, width)


def _random_signs(queries: int, permutations: int, seed: int) -> Iterator[Floats]:
    """Yield the same flips as signs."""
    for bits in _random_bits(queries, permutations, seed):
        yield np.unpackbits(bits, axis=1, count=queries).astype(np.float64) * 2 - 1


def _flipped(bits: NDArray[np.uint8], columns: Floats) -> Floats:
    """Return the sums of columns under flips; those of eight queries are looked up among their 256 possible flips."""
    padded = np.zeros((8 * bits.shape[1], columns.shape[1]))
    padded[: len(columns)] = columns
    sums = np.zeros((len(bits), columns.shape[1]))
    for place, eight in enumerate(padded.reshape(bits.shape[1], 8, -1)):
        sums += (_EIGHT @ eight)[bits[:, place]]
    return sums


_EIGHT = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * 2.0 - 1.0
"""All ways to flip eight signs."""


def difference_interval(tasks: Sequence[Floats]) -> Figure:
    """Return the mean difference with the interval of `difference`.

    >>> difference_interval([np.zeros(30)])
    Figure(value=0.0, low=0.0, high=0.0)
    """
    flips = Flips.of(tasks, _FEWER)
    return Figure(flips.mean, *flips.interval())


def shown_words(found: Difference, lead: str = "") -> str:
    """Return the words about the differences that these queries would show, for a comparison without a difference."""
    if found.detectable is None:
        return ""
    return f"; these queries would show {lead}{100 * found.detectable:.1f} points with {POWER:.0%} power"


def holm(probabilities: Sequence[float]) -> list[float]:
    """Correct p-values for several comparisons, after Holm.

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
    """Return the standard error of the mean over tasks, and its degrees of freedom."""
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

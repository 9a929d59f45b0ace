"""Tests of the difference of two systems: paired by query, within tasks, averaged over tasks.

The statistic is the mean over tasks of the mean difference over queries. The randomisation test flips the sign of each
query's difference, in all ways for few queries and in 100,000 random ways for many. The interval holds the differences
that it does not reject, so that it leaves out 0 exactly when p < 0.05. The t-test is the paired one (for several tasks
with added variances of the means, and degrees of freedom after Welch and Satterthwaite).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.measure.bootstrap import NORMAL, SEED
from r2med.measure.figure import Figure

Floats = NDArray[np.float64]
PERMUTATIONS = 100_000  # random flips of a comparison: a p-value of 0.02 is then known to 0.0005
_FEWER = 10_000  # flips if many intervals are computed, and in the first pass over many systems
_CLEAR = (0.0005, 0.2)  # p-values outside of these are settled by the first pass over many systems
ALPHA = 0.05
POWER = 0.8
EXACT = 16  # queries up to which all ways to flip signs are tried
_BLOCK = 2_000
_FEWEST = 6  # five queries have 32 flips, too few for any difference at the 5% level


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

    def queries_for(self, change: float) -> int | None:
        """Return how many queries, spread as these are, show a difference with 80% power; None if all are equal.

        The inverse of `detectable`, with Guenther's addition for a spread that is estimated from the queries.

        >>> change = difference([np.tile([0.3, -0.1, 0.1, 0.0], 25)])
        >>> change.queries_for(change.detectable), change.queries_for(0.02)
        (102, 436)
        """
        if self.detectable is None:
            return None
        return max(_FEWEST, math.ceil(self.queries * (self.detectable / change) ** 2 + NORMAL**2 / 2))

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return asdict(self)


def difference(tasks: Sequence[Floats], permutations: int = PERMUTATIONS, seed: int = SEED) -> Difference:
    """Compare by the per-query differences (B minus A) of each task.

    >>> change = difference([np.array([0.1, 0.2, 0.0, 0.3, 0.1, 0.2])])
    >>> round(change.mean, 3), change.wins, change.ties, change.losses
    (0.15, 5, 1, 0)
    """
    from scipy.special import ndtri, stdtr

    differences = np.concatenate(list(tasks))
    mean, flips = _mean(tasks), Flips.of(tasks, permutations, seed)
    low, high = flips.interval()
    several = [values for values in tasks if len(values) > 1]
    variances = [float(values.var(ddof=1)) / len(values) / len(tasks) ** 2 for values in several]
    error = math.sqrt(sum(variances))
    t_test = 1.0 if mean == 0.0 else 0.0
    if error:
        parts = zip(variances, several, strict=True)
        freedom = sum(variances) ** 2 / sum(part**2 / (len(values) - 1) for part, values in parts if part)
        t_test = float(2 * stdtr(freedom, -abs(mean) / error))
    pooled = math.sqrt(float(np.mean([values.var(ddof=1) if len(values) > 1 else 0.0 for values in tasks])))
    varies = any(np.ptp(values) for values in tasks)
    return Difference(
        queries=len(differences),
        mean=mean,
        low=low,
        high=high,
        randomisation=flips.probability,
        at_floor=flips.at_floor,
        t_test=t_test,
        effect=mean / pooled if pooled > 0 else 0.0,
        detectable=float((ndtri(1 - ALPHA / 2) + ndtri(POWER)) * error) if varies else None,
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
    )


def _mean(tasks: Sequence[Floats]) -> float:
    return float(np.mean([values.mean() for values in tasks]))


def randomisation_tests(several: Sequence[Sequence[Floats]], permutations: int = PERMUTATIONS) -> list[float]:
    """Return the p-values of many comparisons over the same queries: all go through the same flips at once.

    >>> randomisation_tests([[np.full(9, 0.1)], [np.zeros(9)]]) == [2 / 2**9, 1.0]
    True
    """
    probabilities = _many_tests(several, min(_FEWER, permutations))
    unclear = [place for place, p in enumerate(probabilities) if _CLEAR[0] < p < _CLEAR[1]]
    if permutations > _FEWER and unclear and sum(map(len, several[0])) > EXACT:
        again = _many_tests([several[place] for place in unclear], permutations)
        for place, p in zip(unclear, again, strict=True):
            probabilities[place] = p
    return probabilities


def _many_tests(several: Sequence[Sequence[Floats]], permutations: int) -> list[float]:
    if not several:
        return []
    shares = _shares(several[0])
    columns = np.stack([np.concatenate(list(tasks)) * shares for tasks in several], axis=1)
    sizes = np.array([max(float(np.abs(values).max()) for values in tasks) for tasks in several])
    least = np.abs([_mean(tasks) for tasks in several]) - 1e-12 * sizes
    reached, flips = np.zeros(len(several)), 0 if len(columns) <= EXACT else 1
    reached += flips  # a random choice counts the observed arrangement as one more
    for sums in _flipped_sums(columns, permutations, SEED):
        reached += (np.abs(sums) >= least).sum(axis=0)
        flips += len(sums)
    return list((reached / flips).tolist())


def _shares(tasks: Sequence[Floats]) -> Floats:
    return np.concatenate([np.full(len(values), 1 / len(values) / len(tasks)) for values in tasks])


@dataclass(frozen=True)
class Flips:
    """Means under flips of the signs of queries' differences: all flips, or a random choice of them."""

    mean: float
    size: float  # the largest difference of a query
    means: Floats
    balances: Floats  # the mean of the signs under each flip: the change of the mean per shift of all differences
    exact: bool

    @classmethod
    def of(cls, tasks: Sequence[Floats], permutations: int = PERMUTATIONS, seed: int = SEED) -> Flips:
        """Flip all differences of the tasks, each task with the same weight."""
        shares = _shares(tasks)
        columns = np.stack([np.concatenate(list(tasks)) * shares, shares], axis=1)
        sums = np.concatenate(list(_flipped_sums(columns, permutations, seed)))
        size = max(float(np.abs(values).max()) for values in tasks)
        return cls(_mean(tasks), size, sums[:, 0], sums[:, 1], len(shares) <= EXACT)

    @property
    def probability(self) -> float:
        """Return the two-sided p-value: the share of flips whose mean is at least as far from 0 as the observed one.

        A random choice counts the observed arrangement as one more.
        """
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
            above, below = self.mean + self.means, self.mean - self.means
            ends = np.stack([above / (1 + self.balances), below / (1 - self.balances)])
        whole = np.abs(self.balances) > 1 - 1e-9  # all signs alike: reached by every shift
        high = np.where(whole, np.inf, np.nanmax(np.where(np.isnan(ends), -np.inf, ends), axis=0))
        low = np.where(whole, -np.inf, np.nanmin(np.where(np.isnan(ends), np.inf, ends), axis=0))
        count = len(self.means)
        needed = math.ceil(ALPHA * count - 1e-9) if self.exact else max(1, math.ceil(ALPHA * (count + 1) - 1 - 1e-9))
        most, slack = max(1.0, self.size), 1e-12 * self.size
        lowest = float(np.partition(low, needed - 1)[needed - 1]) - slack
        highest = float(-np.partition(-high, needed - 1)[needed - 1]) + slack
        return min(self.mean, max(-most, lowest)), max(self.mean, min(most, highest))


_EIGHT = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * 2.0 - 1.0  # all ways to flip eight signs


def _flipped_sums(columns: Floats, permutations: int, seed: int) -> Iterator[Floats]:
    """Yield the sums of columns of queries under flips of signs: under all flips, or for many queries random ones."""
    queries = len(columns)
    if queries <= EXACT:
        # But for flipping all at once, which changes no distance from 0.
        numbers = np.arange(1 << max(0, queries - 1))[:, None]
        yield (1 - 2 * ((numbers >> np.arange(queries)) & 1)).astype(np.float64) @ columns
        return
    # A byte has the flips of eight queries, whose sums are looked up among their 256 possible flips.
    generator, width = np.random.default_rng(seed), -(-queries // 8)
    block = max(1, min(_BLOCK, (1 << 21) // queries))
    padded = np.concatenate([columns, np.zeros((8 * width - queries, columns.shape[1]))])
    tables = [_EIGHT @ eight for eight in padded.reshape(width, 8, -1)]
    for start in range(0, permutations, block):
        rows = min(block, permutations - start)
        flips = np.frombuffer(generator.bytes(rows * width), dtype=np.uint8).reshape(rows, width)
        sums = np.zeros((rows, columns.shape[1]))
        for place, table in enumerate(tables):
            sums += table[flips[:, place]]
        yield sums


def difference_interval(tasks: Sequence[Floats]) -> Figure:
    """Return the mean difference with the interval of `difference`.

    >>> difference_interval([np.zeros(30)])
    Figure(value=0.0, low=0.0, high=0.0)
    """
    flips = Flips.of(tasks, _FEWER)
    return Figure(flips.mean, *flips.interval())


def describe_detectable(difference: Difference, lead: str = "") -> str:
    """Return the words about the differences that these queries would show, for a comparison without a difference."""
    if difference.detectable is None:
        return ""
    return f"; these queries would show {lead}{100 * difference.detectable:.1f} points with {POWER:.0%} power"


def holm(probabilities: Sequence[float]) -> list[float]:
    """Correct p-values for several comparisons, after Holm.

    >>> [round(p, 4) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order, count = np.argsort(probabilities, kind="stable"), len(probabilities)
    corrected = np.empty(count)
    corrected[order] = np.maximum.accumulate(np.arange(count, 0, -1) * np.asarray(probabilities)[order])
    return list(np.minimum(1.0, corrected).tolist())

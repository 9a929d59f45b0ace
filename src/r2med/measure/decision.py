"""Comparison of systems from the labels that decide it: minimal test collections (Carterette et al. 2006).

The systems are compared on a pool: every passage that one of them ranks within the cutoff. A label that is not there
yet is a random variable. How likely a passage is relevant follows from its places in the lists by a Bayesian logistic
regression on the labels so far, so that the difference of two systems' means is a random variable, too: it is simulated
with the ideal ranking growing as relevant passages turn up. Both what the labels leave open and what the regression
does not know yet is in its spread. As the probability is one of a posterior, it may be looked at after every label.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import NormalDist

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from r2med.errors import R2medError
from r2med.measure.metrics import Floats, Measure
from r2med.store.typed import Typed

Integers = NDArray[np.int64]
OPEN = -1  # the label of a passage that is not judged
DEEPEST = 100  # a document below this rank, or in no list, counts as one at it
ALIKE = 0.005  # systems that differ by less than half a point are alike
_SAMPLES = 256
_INTERCEPT, _SLOPE = (-1.0, 1.5), (-0.8, 0.3)  # prior means and standard deviations; the slope is that of all lists
_APART = 0.15  # the prior standard deviation of each list's slope about the others': most systems differ by little
_BETWEEN = (0.5, 0.2)  # standard deviations of the intercept and the slopes between questions


class PairStanding(Typed, frozen=True):
    """How two systems stand by the labels so far."""

    a: int
    b: int
    difference: float
    """The expected difference of the means, a minus b."""
    deviation: float
    """Its standard deviation."""
    ahead: float
    """The probability that the one that is ahead is better."""
    alike: float
    """The probability that they are less than half a point apart."""

    @property
    def probability(self) -> float:
        """Return the probability of the likelier verdict: one is better, or they are alike."""
        return max(self.ahead, self.alike)


@dataclass(frozen=True, eq=False)
class PoolStanding:
    """What the labels so far say of the comparison, and what each further one would add."""

    means: Floats  # the expected mean of each system
    pairs: tuple[PairStanding, ...]
    worth: Floats  # how much the label of each passage would tell; 0 of those that are labelled or cannot matter

    @property
    def error(self) -> float:
        """Return a bound on the probability that one of the verdicts is wrong."""
        return sum(1 - pair.probability for pair in self.pairs)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Posterior of the coefficients: those of all questions, and each question's deviations given them."""

    mean: Floats
    spread: Floats
    local: Floats  # the deviations of each question at the mean
    scatter: Floats  # their covariance, given the mean
    response: Floats  # by how much they fall as the coefficients of all questions rise

    def draw(self, samples: int, chance: np.random.Generator) -> tuple[Floats, NDArray[np.float32]]:
        """Draw coefficients: those of all questions by sample, and by coefficient, question and sample."""
        drawn = chance.multivariate_normal(self.mean, self.spread, samples, method="cholesky")
        noise = chance.standard_normal((len(self.local), self.local.shape[1], samples), dtype=np.float32)
        shift = (drawn - self.mean).T
        deviations = np.linalg.cholesky(self.scatter).astype(np.float32) @ noise - self.response @ shift
        by_question = deviations + self.local[:, :, None] + drawn.T
        return drawn, np.ascontiguousarray(np.swapaxes(by_question, 0, 1), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class PoolComparison:
    """Systems to compare on a pool of passages, in the order of their questions."""

    questions: Integers  # the question of each passage, from 0, ascending
    ranks: Integers  # the place of each passage in the list of each system
    measure: Measure
    given: Floats  # for each question, how many relevant passages are known beforehand, and each system's gain by them
    seed: int = 0

    def __post_init__(self) -> None:
        if self.measure.name not in ("nDCG", "P", "Recall") or self.measure.cutoff is None:
            raise R2medError(f"a comparison can be decided by nDCG@k, P@k or Recall@k, not by {self.measure}")

    @classmethod
    def gains(cls, ranks: Integers, measure: Measure) -> Floats:
        """Return the gain of a relevant passage at each rank, before the measure's division."""
        discounts = 1 / np.log2(ranks + 1) if measure.name == "nDCG" else np.ones(ranks.shape)
        return np.where(ranks <= (measure.cutoff or 0), discounts, 0.0)

    @cached_property
    def _gains(self) -> Floats:
        return self.gains(self.ranks, self.measure)

    @cached_property
    def _scale(self) -> Floats:
        """Return the factor of the gains of a question by its number of relevant passages."""
        cutoff, most = self.measure.cutoff or 0, int(self.given[:, 0].max(initial=0)) + len(self.questions)
        counts = np.arange(1, most + 1)
        ideal = counts.astype(float)
        if self.measure.name == "nDCG":
            ideal = np.cumsum(np.where(counts <= cutoff, 1 / np.log2(counts + 1), 0.0))
        elif self.measure.name == "P":
            ideal = np.full(most, float(cutoff))
        return np.concatenate([[0.0], 1 / ideal])

    @cached_property
    def _features(self) -> Floats:
        depths = np.log2(np.minimum(self.ranks, DEEPEST)) - 2.0
        return np.column_stack([np.ones(len(depths)), depths])

    @cached_property
    def _noise(self) -> NDArray[np.float32]:
        uniform = np.random.default_rng(self.seed).random((len(self.questions), _SAMPLES), dtype=np.float32)
        uniform = np.clip(uniform, 1e-6, 1 - 1e-6)
        return np.log(uniform) - np.log1p(-uniform)

    def standing(self, labels: Integers) -> PoolStanding:
        """Return how the systems stand by labels (1 relevant, 0 not, `OPEN` unknown), one per passage.

        Several systems are compared two by two: the lists of a third would make the regression surer than it is.
        """
        systems = self.ranks.shape[1]
        if systems == 2:
            return self._standing_of_two(labels)
        means, pairs, worth = np.zeros(systems), [], np.zeros(len(labels))
        for (a, b), comparison in self._pairs.items():
            standing = comparison._standing_of_two(labels)
            means[[a, b]] += standing.means / (systems - 1)
            worth += standing.worth
            pairs += [replace(pair, a=a, b=b) for pair in standing.pairs]
        return PoolStanding(means, tuple(pairs), worth)

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], PoolComparison]:
        """Return the comparisons of each two systems, on the same pool."""
        return {
            (a, b): PoolComparison(
                self.questions, self.ranks[:, [a, b]], self.measure, self.given[:, [0, 1 + a, 1 + b]], self.seed
            )
            for a, b in combinations(range(self.ranks.shape[1]), 2)
        }

    def _standing_of_two(self, labels: Integers) -> PoolStanding:
        judged = labels != OPEN
        is_open = np.flatnonzero(~judged)
        totals, relevant = self._totals(labels)
        if not len(is_open):
            means = (totals * self._scale[relevant][:, None]).sum(axis=0) / max(1, (relevant > 0).sum())
            pairs = [self._exact(means, a, b) for a, b in combinations(range(len(means)), 2)]
            return PoolStanding(means, tuple(pairs), np.zeros(len(labels)))
        fit = self._fit(labels)
        drawn, by_question = fit.draw(_SAMPLES, np.random.default_rng(self.seed + 1))
        features, rows = self._features[is_open], self.questions[is_open]
        latent = -self._noise[is_open]
        for column in range(features.shape[1]):
            latent += by_question[column][rows] * features[:, column, None].astype(np.float32)
        hits = (latent > 0).astype(np.float32)  # a row per passage, a column per sample
        asked, starts = np.unique(rows, return_index=True)
        counts = np.repeat(relevant[:, None], _SAMPLES, axis=1)
        counts[asked] += np.add.reduceat(hits, starts, axis=0).astype(np.int64)
        scale = self._scale[counts] / np.maximum(1, (counts > 0).sum(axis=0))
        gains = self._gains[is_open].astype(np.float32)
        scores = []  # of each system: questions x samples
        for system in range(gains.shape[1]):
            score = np.repeat(totals[:, system, None], _SAMPLES, axis=1)
            score[asked] += np.add.reduceat(hits * gains[:, system, None], starts, axis=0)
            scores.append(score * scale)
        sampled = np.array([score.sum(axis=0) for score in scores])
        pairs, worth = [], np.zeros(len(labels))
        shares = hits.mean(axis=1)
        variances = np.maximum(shares * (1 - shares), 1 / _SAMPLES)
        for a, b in combinations(range(len(scores)), 2):
            total = sampled[a] - sampled[b]
            pair = self._sampled(total, labels, a, b)
            pairs.append(pair)
            if pair.deviation and pair.probability < 1:
                difference = scores[a] - scores[b]
                difference = (difference - difference.mean(axis=1)[:, None]).astype(np.float32)
                # What a label says of its own question, and by way of the regression of all others.
                within = np.einsum("ij,ij->i", hits, difference[rows]) / _SAMPLES
                learned = features @ ((drawn - fit.mean).T @ (total - total.mean())) / _SAMPLES
                effect = within + variances * learned
                worth[is_open] += (1 - pair.probability) * effect**2 / variances / pair.deviation**2
        return PoolStanding(sampled.mean(axis=1), tuple(pairs), worth)

    @staticmethod
    def forecast(standing: PoolStanding, error: float) -> int:
        """Return about how many more labels will decide if the differences stay as they are.

        A label takes its share of the variance away, the one that tells most first.
        """
        open_pairs = [pair for pair in standing.pairs if pair.deviation and pair.probability < 1]
        weight = sum(1 - pair.probability for pair in open_pairs)
        if not open_pairs or not weight:
            return 0
        quantile = NormalDist().inv_cdf(1 - error / len(open_pairs))
        margins = (max(abs(p.difference), ALIKE - abs(p.difference)) / (quantile * p.deviation) for p in open_pairs)
        left = np.cumprod(1 - np.minimum(0.99, -np.sort(-standing.worth[standing.worth > 0]) / weight))
        enough = np.flatnonzero(left <= min(margins) ** 2)
        return int(enough[0]) + 1 if len(enough) else len(left)

    def _fit(self, labels: Integers) -> _Fit:
        """Fit the regression, whose coefficients vary from question to question, by Newton's method."""
        judged = labels != OPEN
        features, rows, grades = self._features[judged], self.questions[judged], labels[judged]
        systems, count = self.ranks.shape[1], len(self.given)
        center = np.array([_INTERCEPT[0], *[_SLOPE[0] / systems] * systems])
        prior = np.diag([_INTERCEPT[1] ** 2, *[_APART**2] * systems])
        prior[1:, 1:] += _SLOPE[1] ** 2
        precision = np.linalg.inv(prior)
        between = np.diag([_BETWEEN[0] ** -2, *[_BETWEEN[1] ** -2] * systems])
        mean, local = center.copy(), np.zeros((count, len(center)))
        squares = features[:, :, None] * features[:, None, :]
        for _ in range(30):
            rates = 1 / (1 + np.exp(-(features * (mean + local[rows])).sum(axis=1)))
            slope, curvature = np.zeros(local.shape), np.zeros((*local.shape, len(center)))
            np.add.at(slope, rows, features * (grades - rates)[:, None])
            np.add.at(curvature, rows, squares * (rates * (1 - rates))[:, None, None])
            inverse = np.linalg.inv(curvature + between)
            pull = curvature @ inverse
            spread: Floats = np.linalg.inv(precision + (curvature - pull @ curvature).sum(axis=0))
            inner = slope - local @ between
            step = spread @ (slope.sum(axis=0) - precision @ (mean - center) - np.einsum("qij,qj->i", pull, inner))
            change = np.einsum("qij,qj->qi", inverse, inner - curvature @ step)
            largest = max(float(abs(step).max()), float(abs(change).max()))
            damping = min(1.0, 1 / max(largest, 1e-12))  # a whole step can overshoot where labels are few
            local, mean = local + damping * change, mean + damping * step
            if largest < _CONVERGED:
                break
        return _Fit(mean, spread, local, np.asarray(inverse, float), np.swapaxes(pull, 1, 2))

    def _totals(self, labels: Integers) -> tuple[Floats, Integers]:
        """Return each question's gains by system from known relevant passages, and how many there are."""
        totals, counts = self.given[:, 1:].copy(), self.given[:, 0].astype(np.int64)
        relevant = labels == 1
        np.add.at(totals, self.questions[relevant], self._gains[relevant])
        np.add.at(counts, self.questions[relevant], 1)
        return totals, counts

    def bounds(self, labels: Integers, a: int, b: int) -> tuple[float, float]:
        """Return the least and the greatest sum of differences over questions that the open labels can lead to."""
        totals, counts = self._totals(labels)
        is_open = labels == OPEN
        gain, asked = (self._gains[:, a] - self._gains[:, b])[is_open], self.questions[is_open]
        ends = []
        for sign in (-1, 1):
            base = sign * (totals[:, a] - totals[:, b])
            best = base * self._scale[counts]
            # For each number of relevant passages the best ones are those that gain most.
            order = np.lexsort((-sign * gain, asked))
            rows = asked[order]
            starts = np.searchsorted(rows, rows)
            sums = np.concatenate([[0.0], np.cumsum(sign * gain[order])])
            upto = sums[1:] - sums[starts]
            relevant = np.arange(len(rows)) - starts + 1
            np.maximum.at(best, rows, (base[rows] + upto) * self._scale[counts[rows] + relevant])
            ends.append(sign * float(best.sum()))
        return ends[0], ends[1]

    def _sampled(self, total: Floats, labels: Integers, a: int, b: int) -> PairStanding:
        mean, deviation = float(total.mean()), float(total.std())
        low, high = self.bounds(labels, a, b)
        if low > _ROUNDING or high < -_ROUNDING:
            return PairStanding(a, b, mean, deviation, 1.0, _share(total, deviation, -ALIKE, ALIKE))
        if max(high, -low) <= _ROUNDING:
            return PairStanding(a, b, 0.0, 0.0, 0.0, 1.0)
        side = (-np.inf, 0.0) if mean < 0 else (0.0, np.inf)
        return PairStanding(a, b, mean, deviation, *(_share(total, deviation, *s) for s in (side, (-ALIKE, ALIKE))))

    @staticmethod
    def _exact(means: Floats, a: int, b: int) -> PairStanding:
        difference = float(means[a] - means[b])
        return PairStanding(a, b, difference, 0.0, float(abs(difference) > _ROUNDING), float(abs(difference) < ALIKE))


_ROUNDING = 1e-9
_CONVERGED = 1e-4


def _share(total: Floats, deviation: float, low: float, high: float) -> float:
    """Return the probability of an interval: by the draws or by the normal curve, whichever is less."""
    drawn = float(((total > low) & (total < high)).mean())
    curve = NormalDist(float(total.mean()), max(deviation, 1e-12))
    smooth = (curve.cdf(high) if np.isfinite(high) else 1.0) - (curve.cdf(low) if np.isfinite(low) else 0.0)
    return min(drawn, smooth)

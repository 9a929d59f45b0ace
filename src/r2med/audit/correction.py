"""The mean of a measure if people had judged a whole pool, estimated from a judge's labels and few random human ones.

A measure of a query is a function of the labels of its pool. Missing labels are random draws of a calibrated
judge: a logistic regression of human labels on the judge's label, the ranks of the document and the share of documents
that the judge accepts for the query, with weak priors. The mean over draws is corrected by the sample: the effect of
each human label on the measure, less the effect that the calibration predicts for it without having seen that label,
extrapolated to all pairs that were not sampled (a difference estimator, prediction-powered). The calibration can thus
be wrong without making the estimate wrong to first order; it decides how wide the interval is.

The interval weights the sample by Dirichlet draws (a Bayesian bootstrap), with one relevant and one irrelevant hole
added that are drawn from the pool: for equal effects, this is the interval of a share under Laplace's prior. Without
them, a sample that happens to hold no error of the judge would give an interval of no width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from r2med.audit.noise import JudgedLists
from r2med.data.dataset import Qrels
from r2med.data.run import Run
from r2med.measure.bootstrap import SEED
from r2med.measure.figure import Figure
from r2med.measure.metrics import Gains, Measure

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
DRAWS = 64  # draws of the labels that were not given
RESAMPLES = 4_000
_PRIOR = 100  # holes of which the added relevant and the added irrelevant one are drawn
_MEANS = np.array([-2.0, 2.0, 0.5, 0.5])  # of the coefficients: a rare label, that a judge and ranks tell something of
_SPREADS = np.array([2.0, 1.5, 0.5, 0.5])


@dataclass(frozen=True, eq=False)
class HolePool:
    """The documents at the top of some systems' lists, and which of them the task does not judge."""

    measure: Measure
    systems: tuple[str, ...]
    queries: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]  # query and document of each place: what the task judges, and the holes
    published: Floats  # grade of each place as published; 0 for a hole
    holes: Places  # places of the pairs that the task does not judge
    asked: Places  # for each place its query
    ideal: Places  # query x documents: the places of its pool, padded with the place behind the last one
    lists: Places  # system x query x rank, padded the same

    @classmethod
    def of(cls, qrels: Qrels, runs: Mapping[str, Run], measure: Measure) -> HolePool:
        """Build the pool of some runs, for the queries of the judgements."""
        pool = {query: dict(judged) for query, judged in qrels.items()}
        for run in runs.values():
            for query in pool:
                for document in run[query].documents[: measure.cutoff] if query in run else ():
                    pool[query].setdefault(document, 0)
        judged = JudgedLists.of(pool, runs, measure)
        pairs = tuple((query, document) for query, documents in pool.items() for document in documents)
        holes = [place for place, (query, document) in enumerate(pairs) if document not in qrels[query]]
        width = max(places.shape[1] for places in judged.lists.values())
        lists = [
            np.pad(places, ((0, 0), (0, width - places.shape[1])), constant_values=len(pairs))
            for places in judged.lists.values()
        ]
        rows = {query: row for row, query in enumerate(pool)}
        asked = np.array([rows[query] for query, _ in pairs], dtype=np.intp)
        published = np.maximum(judged.grades, 0.0)
        return cls(
            measure, tuple(runs), tuple(pool), pairs, published, np.array(holes, dtype=np.intp), asked, judged.ideal,
            np.stack(lists),
        )  # fmt: skip

    @cached_property
    def votes(self) -> Floats:
        """Return how highly the systems rank each hole, standardised."""
        votes = np.zeros(len(self.pairs) + 1)
        discounts = 1 / np.log2(np.arange(2, self.lists.shape[2] + 2))
        np.add.at(votes, self.lists, np.broadcast_to(discounts, self.lists.shape))
        return _standardised(votes[self.holes])

    def values(self, labels: Floats) -> Floats:
        """Return system x query values under labels of the holes, or their means over draws of these (draw x hole)."""
        return self._mean(np.atleast_2d(labels), np.arange(len(self.queries)), None, 0.0)

    def effects(self, labels: Floats, holes: Places, grade: float) -> Floats:
        """Return system x hole values of the query of each hole if the hole has a grade, its other labels as drawn."""
        places = self.holes[holes]
        return self._mean(labels, self.asked[places], places, grade)

    def _mean(self, labels: Floats, rows: Places, changed: Places | None, grade: float) -> Floats:
        total = np.zeros((len(self.systems), len(rows)))
        lists, ideals = self.lists[:, rows], self.ideal[rows]
        gains = np.append(self.published, 0.0)
        for drawn in labels:
            gains[self.holes] = drawn
            retrieved, ideal = gains[lists], gains[ideals]
            if changed is not None:
                retrieved = np.where(lists == changed[:, None], grade, retrieved)
                ideal = np.where(ideals == changed[:, None], grade, ideal)
            ideal = -np.sort(-ideal, axis=1)
            relevant = (ideal > 0).sum(axis=1)
            shapes = (len(retrieved) * len(rows), -1)
            whole = (np.broadcast_to(part, (len(retrieved), *part.shape)) for part in (ideal, relevant))
            best, counts = (part.reshape(shapes[0], *part.shape[2:]) for part in whole)
            total += self.measure.values(Gains(retrieved.reshape(shapes), best, counts)).reshape(total.shape)
        return np.asarray(total / len(labels))


def _standardised(values: Floats) -> Floats:
    return np.asarray((values - values.mean()) / (values.std() or 1.0))


@dataclass(frozen=True, eq=False)
class Calibration:
    """Chances that people call holes relevant."""

    chances: Floats  # of every hole
    unseen: Floats  # of every sampled hole, by the other sampled holes


def calibrate(pool: HolePool, judged: Floats, sample: Places, relevant: Floats) -> Calibration:
    """Fit the chance that people call a hole relevant; `judged` is the share of the judge's replies that do."""
    asked = pool.asked[pool.holes]
    counts = np.bincount(asked, minlength=len(pool.queries))
    accepted = np.bincount(asked, judged, minlength=len(pool.queries))
    shares = (accepted[asked] - judged + judged.mean()) / counts[asked]  # by the other holes of the query
    columns = np.column_stack([np.ones(len(judged)), judged - judged.mean(), pool.votes, _standardised(shares)])
    table, precision = columns[sample], np.diag(_SPREADS**-2.0)
    fit = _MEANS.copy()
    for _ in range(25):
        chances = _logistic(table @ fit)
        weights = chances * (1 - chances)
        bend = (table * weights[:, None]).T @ table + precision
        step = np.linalg.solve(bend, table.T @ (relevant - chances) - precision @ (fit - _MEANS))
        fit = fit + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-6:
            break
    chances = _logistic(table @ fit)
    weights = chances * (1 - chances)
    leverage = np.einsum("ij,ji->i", table, np.linalg.solve((table * weights[:, None]).T @ table + precision, table.T))
    unseen = _logistic(table @ fit - leverage * (relevant - chances) / (1 - weights * leverage))
    return Calibration(_logistic(columns @ fit), unseen)


def _logistic(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -30, 30))))


@dataclass(frozen=True, eq=False)
class CorrectedMeans:
    """Means of systems if people had judged the whole pool."""

    means: Floats  # of every system
    draws: Floats  # system x resample: what the mean may be, for all that the sample says
    values: Floats  # system x query, expected under the calibrated judge

    def figure(self, system: int) -> Figure:
        """Return the mean of a system with its 95% interval."""
        ends = np.percentile(self.draws[system], [2.5, 97.5])
        return Figure(*np.clip([self.means[system], *ends], 0.0, 1.0).tolist())


def correct(
    pool: HolePool,
    judged: Floats,
    sample: Places,
    grades: Floats,
    draws: int = DRAWS,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> CorrectedMeans:
    """Estimate the mean of each system from the judge's labels of all holes, and people's of a random sample."""
    chance = np.random.default_rng([seed, len(sample)])
    relevant = (grades > 0).astype(np.float64)
    calibration = calibrate(pool, judged, sample, relevant)
    highest = grades[grades > 0] if relevant.any() else np.ones(1)
    given = chance.choice(highest, size=(draws, len(judged)))
    # A Latin hypercube: over all draws, each hole is relevant as often as its chance says.
    steps = chance.permuted(np.tile(np.arange(draws)[:, None], len(judged)), axis=0)
    uniform = (steps + chance.random(steps.shape)) / draws
    labels = np.where(uniform < calibration.chances, given, 0.0)
    labels[:, sample] = grades
    values = pool.values(labels)
    left = len(judged) - len(sample)
    if not left:
        return CorrectedMeans(values.mean(axis=1), np.repeat(values.mean(axis=1)[:, None], resamples, axis=1), values)
    # The sampled holes, and those of which the added ones are drawn.
    further = chance.choice(np.setdiff1d(np.arange(len(judged)), sample), min(_PRIOR, left), replace=False)
    tested = np.concatenate([sample, further])
    levels, shares = np.unique(highest, return_counts=True)
    effects = np.stack([pool.effects(labels, tested, grade) for grade in (0.0, *levels)])  # grade x system x hole
    if_relevant = np.tensordot(shares / shares.sum(), effects[1:], 1)
    chances = np.concatenate([calibration.unseen, calibration.chances[further]])
    predicted = (1 - chances) * effects[0] + chances * if_relevant
    given_level = np.where(grades > 0, np.searchsorted(levels, grades) + 1, 0)
    actual = effects[given_level, :, np.arange(len(sample))].T
    residuals = (actual - predicted[:, : len(sample)]).T  # hole x system
    prior = [(side - predicted)[:, len(sample) :].T for side in (if_relevant, effects[0])]
    scale = left / len(pool.queries)
    weights = chance.dirichlet(np.ones(len(sample) + 2), size=resamples)
    drawn = weights[:, : len(sample)] @ residuals
    for place, side in enumerate(prior, len(sample)):
        drawn += weights[:, place, None] * side[chance.integers(0, len(side), resamples)]
    mean = residuals.mean(axis=0)
    inflation = np.sqrt(len(judged) / left)
    base = values.mean(axis=1)
    spread = (drawn - mean) * inflation + mean
    return CorrectedMeans(base + scale * mean, base[:, None] + scale * spread.T, values)

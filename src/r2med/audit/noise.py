"""A simulation of label noise: how stable an order of systems is if labels were as wrong as two sets disagree.

Every judgement of the first set is drawn again by how often the second gives which grade where the first gives this
one, and the systems are scored by the drawn labels. Queries that lose all their relevant documents are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Qrels
from r2med.data.run import Run
from r2med.measure.agreement import Ratings
from r2med.measure.bootstrap import SEED, figure_of
from r2med.measure.correlation import compare_pairs, kendall
from r2med.measure.figure import Figure
from r2med.measure.metrics import Gains, Measure

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
SIMULATIONS = 500


@dataclass(frozen=True)
class Stability:
    """Effect of drawing the labels again on an order of systems."""

    simulations: int
    kept: Floats  # for each two systems the share of simulations in which they stand as under the first set
    kendall: Figure | None  # mean of Kendall's tau between the order under the first set and under drawn labels


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """Frequencies with which the second of two sets gives a grade if the first gives another."""

    scale: Floats
    shares: Floats  # a row for each grade of the first set; one that the first never gives stays as it is

    @classmethod
    def of(cls, ratings: Ratings) -> ErrorModel:
        """Return the model of the first two raters of a table."""
        counts = ratings.confusion().astype(np.float64)
        totals = counts.sum(axis=1, keepdims=True)
        stay = np.eye(len(ratings.scale))
        return cls(ratings.scale, np.where(totals > 0, counts / np.maximum(totals, 1), stay))

    def draw(self, grades: Floats, chance: np.random.Generator) -> Floats:
        """Draw a grade for each grade; one that is not on the scale stays as it is."""
        rows = np.searchsorted(self.scale, grades).clip(max=len(self.scale) - 1)
        limits = np.cumsum(self.shares, axis=1)[rows, :-1]
        drawn = self.scale[(chance.random(len(grades))[:, None] >= limits).sum(axis=1)]
        return np.where(self.scale[rows] == grades, drawn, grades)


@dataclass(frozen=True, eq=False)
class JudgedLists:
    """Ranked lists of systems as places in one column of grades, so that other grades are scored at once."""

    grades: Floats  # the grade of every judged pair; the place behind the last one stands for what is not judged
    ideal: Places  # for each query the places of its judged documents, padded with the place of what is not judged
    lists: Mapping[str, Places]  # for each system and query the places of its documents, padded the same

    @classmethod
    def of(cls, qrels: Qrels, runs: Mapping[str, Run], measure: Measure) -> JudgedLists:
        """Build the lists of some runs, for the queries of the judgements."""
        pairs = {(q, d): place for place, (q, d) in enumerate((q, d) for q, judged in qrels.items() for d in judged)}
        rows = [[pairs[query, document] for document in judged] for query, judged in qrels.items()]
        lists = {}
        for system, run in runs.items():
            top = ((query, run[query].documents[: measure.cutoff] if query in run else ()) for query in qrels)
            lists[system] = _padded([[pairs.get((q, d), len(pairs)) for d in names] for q, names in top], len(pairs))
        grades = np.array([grade for judged in qrels.values() for grade in judged.values()], dtype=np.float64)
        return cls(grades, _padded(rows, len(pairs)), lists)

    def means(self, grades: Floats, measure: Measure) -> Floats:
        """Return each system's mean under these grades of the pairs, over the queries with a relevant document."""
        gains = np.maximum(np.append(grades, 0.0), 0.0)
        ideal = -np.sort(-gains[self.ideal], axis=1)
        relevant = (ideal > 0).sum(axis=1)
        some = relevant > 0
        if not some.any():
            return np.full(len(self.lists), np.nan)
        scored = (Gains(gains[places][some], ideal[some], relevant[some]) for places in self.lists.values())
        return np.array([measure.values(scores).mean() for scores in scored])


def _padded(rows: Sequence[Sequence[int]], filler: int) -> Places:
    return np.array(list(zip_longest(*rows, fillvalue=filler)), dtype=np.intp).reshape(-1, len(rows)).T


def simulate(lists: JudgedLists, errors: ErrorModel, measure: Measure, simulations: int = SIMULATIONS) -> Stability:
    """Draw labels repeatedly and count how often systems keep their order; the same draws every time."""
    chance = np.random.default_rng([SEED, simulations])
    base = lists.means(lists.grades, measure)
    drawn = np.stack([lists.means(errors.draw(lists.grades, chance), measure) for _ in range(simulations)], axis=1)
    same = (compare_pairs(drawn) == compare_pairs(base)[:, :, None]) & (compare_pairs(base) != 0)[:, :, None]
    taus = kendall(np.repeat(base[:, None], simulations, axis=1), drawn) if len(base) > 1 else np.array([])
    finite = taus[np.isfinite(taus)]
    # No queries are drawn, so there is nothing by which to take the ends further out.
    mean = figure_of(finite.mean(), taus, []) if len(finite) else None
    return Stability(simulations, same.mean(axis=2), mean)

"""Estimates of the quality of a task's own labels, from judgements of the part that was drawn at random.

People look at few items, models at many. A rate is that of the people, corrected by what models say of the items that
no person has looked at (prediction-powered inference); without a model it is that of the people alone. A ruling goes
before everything; if several people judged, an item counts as relevant by the share of them that say so, so that no
disagreement is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.measure.figure import Figure, figure_dict
from r2med.measure.population import prediction_powered_mean, share
from r2med.reviews.rows import GRADED, IMPORTED, MODEL, PERSON, RANDOM, Decision, ReviewItem
from r2med.reviews.store import ReviewStore

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RateEstimate:
    """A rate with its 95% interval, and the numbers of judgements behind it."""

    figure: Figure
    human: int
    """Items that people judged."""
    predicted: int
    """Further items that only models judged."""

    def as_dict(self) -> dict[str, Any]:
        """Return the rate in the shape of `--json`."""
        method = "prediction-powered" if self.predicted else "people alone"
        return {**figure_dict(self.figure), "human": self.human, "predicted": self.predicted, "method": method}


@dataclass(frozen=True)
class LabelEstimates:
    """Estimates about the labels of the task, from the random part; None if there is too little to estimate."""

    frame: int
    """Pairs that the random part was drawn from."""
    drawn: int
    precision: RateEstimate | None
    """Of the pairs that the task labels relevant, the share that is."""
    overlooked: RateEstimate | None
    """Of all other pairs, the share that is relevant all the same."""
    missed: RateEstimate | None
    """Of all relevant pairs, the share that the task does not label relevant."""

    def as_dict(self) -> dict[str, Any]:
        """Return the estimates in the shape of `--json`."""
        rates = {name: getattr(self, name) for name in ("precision", "overlooked", "missed")}
        return vars(self) | {name: rate and rate.as_dict() for name, rate in rates.items()}


@dataclass(frozen=True, eq=False)
class Votes:
    """Relevance of items by people and by models, and whether the task lacks a label for them."""

    human: Floats
    """From 0 to 1; not a number if no person has judged."""
    predicted: Floats
    unlabelled: Floats
    """1 if the task does not label the pair relevant."""

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Return a mask of the items that a person has judged."""
        return ~np.isnan(self.human)

    @property
    def powered(self) -> bool:
        """Return whether models have judged some of the items that people have, and some that they have not."""
        by_models = ~np.isnan(self.predicted)
        return bool((by_models & self.judged).any() and (by_models & ~self.judged).any())

    def interval(self, score: Callable[[Floats, Floats], Floats]) -> Figure:
        """Return the mean of a score of relevance and label over all pairs, with its interval."""
        human = score(self.human[self.judged], self.unlabelled[self.judged])
        if not self.powered:
            return prediction_powered_mean(human, np.zeros(len(human)), np.zeros(1))
        # A model's unreadable vote counts as its mean, for judged and unjudged items alike.
        votes = np.where(np.isnan(self.predicted), np.nanmean(self.predicted), self.predicted)
        predicted = score(votes, self.unlabelled)
        return prediction_powered_mean(human, predicted[self.judged], predicted[~self.judged])

    def estimate(self, value: float, low: float, high: float) -> RateEstimate:
        """Return a rate and its ends with the numbers of judgements behind them."""
        figure = Figure(*(float(min(1.0, max(0.0, end))) for end in (value, low, high)))
        return RateEstimate(figure, int(self.judged.sum()), int((~self.judged).sum()) if self.powered else 0)


def estimate_labels(store: ReviewStore, items: Sequence[ReviewItem], standing: Sequence[Decision]) -> LabelEstimates:
    """Estimate the quality of the task's labels from the votes of people and models."""
    drawn = [item for item in items if item.drawn == RANDOM]
    kinds = {reviewer.id: reviewer.kind for reviewer in store.reviewers()}
    cut = store.project.scale.relevant_from
    votes: dict[str, dict[int, list[bool]]] = {kind: defaultdict(list) for kind in (PERSON, MODEL, IMPORTED)}
    for row in standing:
        if row.verdict == GRADED and row.grade is not None and not row.again:
            votes[kinds[row.reviewer]][row.item].append(row.grade >= cut)
    for number, ruling in store.rulings().items():
        votes[PERSON][number] = [(ruling.grade or 0) >= cut]
    means = (
        np.array([np.mean(v) if (v := votes[kind].get(item.number)) else np.nan for item in drawn], np.float64)
        for kind in (PERSON, MODEL)
    )
    every = Votes(*means, np.array([(item.facts.get("label") or 0) <= 0 for item in drawn], dtype=np.float64))
    precision, overlooked = (
        _rate(Votes(*(column[every.unlabelled == side] for column in vars(every).values()))) for side in (0, 1)
    )
    return LabelEstimates(store.project.frames.get(RANDOM, 0), len(drawn), precision, overlooked, missed_share(every))


def _rate(votes: Votes) -> RateEstimate | None:
    """Return the share of relevant pairs; Wilson's interval if all people agree, as the sample then has no variance."""
    human = votes.human[votes.judged]
    if len(human) < 2:
        return None
    mean = votes.interval(lambda relevant, _: relevant)
    mean = _wilson(human) if np.ptp(human) == 0 or mean.low == mean.high else mean
    return votes.estimate(mean.value, *mean.ends)


def _wilson(human: Floats) -> Figure:
    rate = share(round(float(human.sum())), len(human))
    return rate.figure if rate else Figure(0.0, 0.0, 1.0)


def missed_share(votes: Votes) -> RateEstimate | None:
    """Return the share of the relevant pairs without a label, with all values in the interval of its equation.

    The share t solves E[relevant x (unlabelled - t)] = 0; a t belongs to the interval when 0 lies in that of the mean.
    """
    human, unlabelled = votes.human[votes.judged], votes.unlabelled[votes.judged]
    if len(human) < 2 or not human.sum():
        return None
    relevant = unlabelled[human > 0]
    if np.ptp(relevant) == 0:
        rate = _wilson(relevant)
        return votes.estimate(rate.value, *rate.ends)
    steps = np.linspace(0.0, 1.0, 201)
    means = [votes.interval(lambda relevant, off, step=step: relevant * (off - step)) for step in steps]  # type: ignore[misc]
    inside = [float(step) for step, mean in zip(steps, means, strict=True) if mean.ends[0] <= 0 <= mean.ends[1]]
    value = float(steps[int(np.argmin([abs(mean.value) for mean in means]))])
    return votes.estimate(value, min([*inside, value]), max([*inside, value]))

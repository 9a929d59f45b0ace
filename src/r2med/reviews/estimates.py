"""Estimates of the quality of a task's own labels, from judgements of the part that was drawn at random.

People look at few items, models at many. A rate is that of the people, corrected by what models say of the items that
no person has looked at (prediction-powered inference); without a model it is that of the people alone. What an
adjudicator said goes before everything; where several people judged, an item counts as relevant by the share of them
that say so, so that no disagreement is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.measure.figure import Figure
from r2med.measure.population import prediction_powered_mean, share
from r2med.reviews.rows import GRADED, MODEL, PERSON, RANDOM, Decision, ReviewItem
from r2med.reviews.store import ReviewStore

Floats = NDArray[np.float64]
POWERED, ALONE = "prediction-powered", "people alone"


@dataclass(frozen=True)
class RateEstimate:
    """A rate with its 95% interval, and the numbers of judgements behind it."""

    value: float
    low: float
    high: float
    human: int
    """Items that people judged."""
    predicted: int
    """Further items that only models judged."""
    method: str


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
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Votes:
    """Relevance of items by people and by models, and whether the task lacks a label for them."""

    human: Floats
    """From 0 to 1; not a number where no person has judged."""
    predicted: Floats
    unlabelled: Floats
    """1 where the task does not label the pair relevant."""

    def some(self, chosen: NDArray[np.bool_]) -> Votes:
        """Return the votes on some items."""
        return Votes(self.human[chosen], self.predicted[chosen], self.unlabelled[chosen])

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Return a mask of the items that a person has judged."""
        return ~np.isnan(self.human)

    @property
    def powered(self) -> bool:
        """Return whether models have judged some of the items that people have, and some that they have not."""
        known = ~np.isnan(self.predicted)
        return bool((known & self.judged).any() and (known & ~self.judged).any())

    @property
    def guessed(self) -> Floats:
        """Return the models' votes, an unreadable one as their mean, for judged and unjudged items alike."""
        return np.asarray(np.where(np.isnan(self.predicted), np.nanmean(self.predicted), self.predicted))

    def interval(self, score: Callable[[Floats, Floats], Floats]) -> Figure:
        """Return the mean of a score of relevance and label over all pairs, with its interval."""
        human = score(self.human[self.judged], self.unlabelled[self.judged])
        if not self.powered:
            return prediction_powered_mean(human, np.zeros(len(human)), np.zeros(1))
        predicted = score(self.guessed, self.unlabelled)
        return prediction_powered_mean(human, predicted[self.judged], predicted[~self.judged])

    def estimate(self, found: Figure) -> RateEstimate:
        """Return a rate and its ends with the numbers of judgements behind them."""
        further = int((~self.judged).sum()) if self.powered else 0
        value, low, high = (float(min(1.0, max(0.0, end))) for end in (found.value, *found.ends))
        return RateEstimate(value, low, high, int(self.judged.sum()), further, POWERED if self.powered else ALONE)


def estimate_labels(store: ReviewStore, items: Sequence[ReviewItem], held: Sequence[Decision]) -> LabelEstimates:
    """Estimate the quality of the task's labels from the votes of people and models."""
    drawn = [item for item in items if item.drawn == RANDOM]
    votes = _votes(store, drawn, held)
    labelled = votes.unlabelled == 0
    return LabelEstimates(
        store.project.frames.get(RANDOM, 0),
        len(drawn),
        _rate(votes.some(labelled)),
        _rate(votes.some(~labelled)),
        missed_share(votes),
    )


def _votes(store: ReviewStore, items: Sequence[ReviewItem], held: Sequence[Decision]) -> Votes:
    kinds = {each.id: each.kind for each in store.reviewers()}
    cut = store.project.scale.relevant_from
    said: dict[str, dict[int, list[bool]]] = {PERSON: defaultdict(list), MODEL: defaultdict(list)}
    for row in held:
        if row.verdict == GRADED and row.grade is not None and not row.again and kinds[row.reviewer] in said:
            said[kinds[row.reviewer]][row.item].append(row.grade >= cut)
    for item, ruling in store.rulings().items():
        said[PERSON][item] = [(ruling.grade or 0) >= cut]
    human, predicted = ([_mean(said[kind], item) for item in items] for kind in (PERSON, MODEL))
    unlabelled = [float((item.facts.get("label") or 0) <= 0) for item in items]
    return Votes(*(np.array(column, dtype=np.float64) for column in (human, predicted, unlabelled)))


def _mean(votes: Mapping[int, Sequence[bool]], item: ReviewItem) -> float:
    given = votes.get(item.number)
    return sum(given) / len(given) if given else float("nan")


def _rate(votes: Votes) -> RateEstimate | None:
    """Return the share of relevant pairs; Wilson's interval if all people agree, as the sample then has no variance."""
    human = votes.human[votes.judged]
    if len(human) < 2:
        return None
    found = votes.interval(lambda relevant, _: relevant)
    return votes.estimate(_wilson(human) if np.ptp(human) == 0 or found.low == found.high else found)


def _wilson(human: Floats) -> Figure:
    found = share(round(float(human.sum())), len(human))
    return found.figure if found else Figure(0.0, 0.0, 1.0)


def missed_share(votes: Votes) -> RateEstimate | None:
    """Return the share of the relevant pairs without a label, with all values in the interval of its equation.

    The share t solves E[relevant x (unlabelled - t)] = 0; a t belongs to the interval when 0 lies in that of the mean.
    """
    human, unlabelled = votes.human[votes.judged], votes.unlabelled[votes.judged]
    if len(human) < 2 or not human.sum():
        return None
    relevant = unlabelled[human > 0]
    if np.ptp(relevant) == 0:
        return votes.estimate(_wilson(relevant))
    steps = np.linspace(0.0, 1.0, 201)

    def equation(step: float) -> Figure:
        return votes.interval(lambda relevant, off: relevant * (off - step))

    around = [equation(step) for step in steps]
    inside = [float(step) for step, each in zip(steps, around, strict=True) if each.ends[0] <= 0 <= each.ends[1]]
    value = float(steps[int(np.argmin([abs(each.value) for each in around]))])
    return votes.estimate(Figure(value, min([*inside, value]), max([*inside, value])))

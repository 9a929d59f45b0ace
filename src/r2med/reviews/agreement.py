"""Agreement of the reviewers of a project, and estimates of the quality of the task's own labels.

The figures are over items drawn at random, since only these stand for the rest: people agree less on items chosen
because something is odd about them. If people have judged, the figures are theirs; models and imports are compared
with them in pairs.

People look at few items, models at many. A rate is that of the people, corrected by what models say of the items that
no person has looked at (prediction-powered inference); without a model it is that of the people alone. A ruling goes
before everything; if several people judged, an item counts as relevant by the share of them that say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.audit.study import OF_PAIR, AgreementRow, SetPair, figure_dicts, slice_members
from r2med.data.labels import Labels
from r2med.formatting import counted
from r2med.measure.agreement import Ratings, coefficients
from r2med.measure.figure import Figure
from r2med.measure.population import CaughtShare, prediction_powered_mean
from r2med.measure.score import Tertile, tertiles
from r2med.reviews.deciding import Decider
from r2med.reviews.progress import grades_by_item
from r2med.reviews.rows import (
    AGREED,
    ANSWER,
    GRADED,
    MODEL,
    PERSON,
    POOLED,
    RANDOM,
    UNSURE,
    Decision,
    Reviewer,
    ReviewItem,
)
from r2med.reviews.sampling import DEPTH
from r2med.reviews.store import ReviewStore

Mask = NDArray[np.bool_]
Places = NDArray[np.intp]


@dataclass(frozen=True)
class ReviewAgreement:
    """Agreement of a project's reviewers, and estimates of the quality of the labels under review."""

    review: str
    scale: tuple[int, ...]
    reviewers: Sequence[str]  # people, or everybody if fewer than two people have judged
    items: int  # items that two of them at least graded, and that the figures are over
    questions: int
    at_random: bool  # whether these were drawn at random; otherwise no item that two graded was
    set_aside: int  # items that two graded and that the figures leave out, since they were not drawn at random
    coefficients: Mapping[str, Figure | None]
    pairs: Sequence[SetPair]  # every two reviewers, models and imports included
    slices: Mapping[str, Sequence[AgreementRow]]
    periods: Sequence[AgreementRow]  # in the order in which items were decided, by thirds
    repeats: Sequence[AgreementRow]  # each person's second look against the first
    gold: Sequence[AgreementRow]  # each reviewer against what is known to be right
    estimates: LabelEstimates
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the agreement in the shape of `--json`."""
        rows = {name: [row.as_dict() for row in getattr(self, name)] for name in ("periods", "repeats", "gold")}
        shapes = {
            "agreement": figure_dicts(self.coefficients),
            "pairs": [pair.as_dict() for pair in self.pairs],
            "slices": {way: [row.as_dict() for row in rows] for way, rows in self.slices.items()},
        }
        facts = {name: value for name, value in vars(self).items() if name != "coefficients"}
        return facts | shapes | rows


class _Grades:
    """The first looks of a project as a table: a row per item, a column per reviewer."""

    def __init__(self, store: ReviewStore, standing: Sequence[Decision]) -> None:
        self.items = store.items()
        self.questions = {question.number: question for question in store.questions()}
        self.scale = list(map(float, store.project.scale.values))
        self.graded = [row for row in standing if row.verdict == GRADED and row.grade is not None]
        first = [row for row in self.graded if not row.again]
        judges = {row.reviewer for row in first}
        self.reviewers = [reviewer for reviewer in store.reviewers() if reviewer.id in judges]
        self.asked = np.array([item.question for item in self.items])
        self.rows = {item.number: place for place, item in enumerate(self.items)}
        columns = {reviewer.id: place for place, reviewer in enumerate(self.reviewers)}
        self.table = np.full((len(self.items), len(self.reviewers)), np.nan)
        self.decided = np.zeros(self.table.shape, dtype=np.int64)  # the number of each decision
        for row in first:
            place = self.rows[row.item], columns[row.reviewer]
            self.table[place], self.decided[place] = row.grade, row.id
        self.random = np.array([item.drawn == RANDOM for item in self.items], dtype=bool)
        if not np.isnan(self.table).all(axis=1).any():
            # Once the pool of a build is judged whole, those that all reviewers judge are a random part of it.
            self.random |= [item.shared and item.drawn in (AGREED, POOLED) for item in self.items]
        people = [place for place, reviewer in enumerate(self.reviewers) if reviewer.kind == PERSON]
        # The columns of people, or all columns if fewer than two people have judged.
        self.compared = people if len(people) > 1 else list(range(len(self.reviewers)))

    def by_two(self, columns: Sequence[int]) -> Mask:
        """Return the items that at least two of these reviewers have graded."""
        return np.asarray((~np.isnan(self.table[:, columns])).sum(axis=1) > 1)

    def ratings(self, columns: Sequence[int], items: Mask | Places) -> Ratings:
        return Ratings.of(self.table[items][:, columns], self.asked[items], self.scale)

    def row(self, name: str, items: Places) -> AgreementRow:
        """Return the agreement of the compared reviewers on some items."""
        return AgreementRow(name, len(items), coefficients(self.ratings(self.compared, items), ("raw", "kappa", "ac1")))

    def row_of_pairs(self, name: str, pairs: Mapping[int, tuple[object, object]]) -> Iterator[AgreementRow]:
        """Yield the agreement of two grades of each item, if there are any."""
        if pairs:
            grades = np.array(list(pairs.values()), dtype=np.float64)
            ratings = Ratings.of(grades, self.asked[[self.rows[number] for number in pairs]], self.scale)
            yield AgreementRow(name, len(pairs), coefficients(ratings, ("raw", "kappa")))

    def pairs(self, *, at_random: bool) -> Iterator[SetPair]:
        """Yield each two reviewers who graded an item in common, on the random part if there is one."""
        for one, other in combinations(range(len(self.reviewers)), 2):
            both = self.by_two([one, other]) & (self.random if at_random else True)
            if both.any():
                names = self.reviewers[one].name, self.reviewers[other].name
                yield SetPair.of(*names, self.ratings([one, other], both))

    def periods(self, used: Mask) -> Iterator[AgreementRow]:
        """Yield agreement by thirds of the items in the order of their last decision, by row number, not time."""
        if used.sum() >= 3:
            order = np.argsort(self.decided[:, self.compared].max(axis=1), kind="stable")
            parts = np.array_split(order[used[order]], 3)
            for name, part in zip(("first third", "middle third", "last third"), parts, strict=True):
                yield self.row(name, part)

    def repeats(self) -> Iterator[AgreementRow]:
        for reviewer in self.reviewers:
            rows = [row for row in self.graded if row.reviewer == reviewer.id]
            first = {row.item: row.grade for row in rows if not row.again}
            second = {row.item: (first[row.item], row.grade) for row in rows if row.again and row.item in first}
            yield from self.row_of_pairs(reviewer.name, second)

    def against_gold(self) -> Iterator[AgreementRow]:
        for reviewer, column in zip(self.reviewers, self.table.T.tolist(), strict=True):
            graded = zip(self.items, column, strict=True)
            pairs = {i.number: (grade, i.gold) for i, grade in graded if i.gold is not None and not np.isnan(grade)}
            yield from self.row_of_pairs(reviewer.name, pairs)


def review_agreement(store: ReviewStore, labels: Labels | None = None) -> ReviewAgreement:
    """Measure a project as it stands; `labels` sort its questions, by body system for example."""
    standing = store.standing()
    grades = _Grades(store, standing)
    columns = grades.compared
    both = grades.by_two(columns)
    random = both & grades.random
    used = random if random.any() else both
    return ReviewAgreement(
        store.project.name,
        store.project.scale.values,
        reviewers=[grades.reviewers[place].name for place in columns],
        items=int(used.sum()),
        questions=len(set(grades.asked[used])),
        at_random=bool(random.any()),
        set_aside=int((both & ~used).sum()),
        coefficients=coefficients(grades.ratings(columns, used), OF_PAIR) if used.any() else dict.fromkeys(OF_PAIR),
        pairs=list(grades.pairs(at_random=bool(random.any()))),
        slices=_slices(grades, both, used, labels) if used.any() else {},
        periods=list(grades.periods(used)),
        repeats=list(grades.repeats()),
        gold=list(grades.against_gold()),
        estimates=estimate_labels(store, grades.items, standing),
        notes=[*_notes(standing, [grades.reviewers[place] for place in columns]), *_decision(store)],
    )


def _decision(store: ReviewStore) -> list[str]:
    return [Decider(store).report().summary] if store.project.rule else []


def _notes(standing: Sequence[Decision], compared: Sequence[Reviewer]) -> list[str]:
    people = {reviewer.id for reviewer in compared if reviewer.kind == PERSON}
    others = [reviewer.name for reviewer in compared if reviewer.kind != PERSON]
    notes = []
    if others and len(compared) > 1:
        notes.append(
            f"fewer than two people have judged: the figures are those of {' and '.join(others)} (not a person) and"
            " others, and say nothing about how far people agree"
        )
    recorded = {row.reviewer for row in standing if row.position is not None or row.revealed} & people
    given = [row for row in standing if row.verdict == GRADED and not row.again and row.reviewer in recorded]
    informed = sum(any(fact.what == ANSWER for fact in row.revealed) for row in given)
    if informed:
        notes.append(f"{informed:,} of {len(given):,} grades were given with the gold answer in view")
    unsure = len({(row.reviewer, row.item) for row in standing if row.verdict == UNSURE and not row.again})
    if unsure:
        answers = counted(unsure, "answer is", "answers are")
        notes.append(
            f"{answers} `unsure` and counted nowhere; the harder items are among them,"
            " so agreement looks a little better"
        )
    return notes


def _slices(grades: _Grades, both: Mask, used: Mask, labels: Labels | None) -> Mapping[str, Sequence[AgreementRow]]:
    """Return agreement by facts on items; slices by how items were drawn cover all items."""
    questions, items = grades.questions, list(compress(grades.items, used))
    words = {number: len(question.text.split()) for number, question in questions.items()}
    by_question = tertiles([words[item.question] for item in items], "{:.0f} words")
    by_passage = tertiles([len(item.text.split()) for item in items], "{:.0f} words")
    ways: dict[str, list[Tertile]] = {
        "drawn": [(0, item.drawn) for item in compress(grades.items, both)],
        "task": [(0, questions[item.question].task) for item in items],
        "place": list(map(_rank, items)),
        "question": [by_question(words[item.question]) for item in items],
        "passage": [by_passage(len(item.text.split())) for item in items],
    }
    if labels is not None:
        classes = {number: labels.of(question.task, question.query) for number, question in questions.items()}
        ways["label"] = [(0, label) if (label := classes[item.question]) else (1, "(no label)") for item in items]
    slices: dict[str, list[AgreementRow]] = {way: [] for way in ways}
    for way, name, members in slice_members(ways):
        slices[way].append(grades.row(name, np.flatnonzero(both if way == "drawn" else used)[members]))
    return slices


def _rank(item: ReviewItem) -> Tertile:
    """Return the position of an item in the lists of runs."""
    ranks, near = list(item.facts.get("ranks", {}).values()), DEPTH // 2
    if not ranks:
        return 2, "in no list"
    if abs(sum(ranks) / len(ranks) - DEPTH - 0.5) > near:
        return 0, "at the top of lists"
    return 1, f"near the cut, places {DEPTH - near + 1} to {DEPTH + near}"


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RateEstimate:
    """A rate with its 95% interval, and the numbers of judgements behind it."""

    value: float
    low: float
    high: float
    human: int  # items that people judged
    predicted: int  # further items that only models judged
    method: str  # whether it is prediction-powered, or of people alone


@dataclass(frozen=True)
class LabelEstimates:
    """Estimates about the labels of the task, from the random part; None if there is too little to estimate."""

    frame: int  # pairs that the random part was drawn from
    drawn: int
    precision: RateEstimate | None  # of the pairs that the task labels relevant, the share that is
    overlooked: RateEstimate | None  # of all other pairs, the share that is relevant all the same
    missed: RateEstimate | None  # of all relevant pairs, the share that the task does not label relevant


@dataclass(frozen=True, eq=False)
class Votes:
    """Relevance of items by people and by models, and whether the task lacks a label for them."""

    human: Floats  # from 0 to 1; not a number if no person has judged
    predicted: Floats
    unlabelled: Floats  # 1 if the task does not label the pair relevant

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
        value, low, high = np.clip([value, low, high], 0.0, 1.0).tolist()
        predicted, method = (int((~self.judged).sum()), "prediction-powered") if self.powered else (0, "people alone")
        return RateEstimate(value, low, high, int(self.judged.sum()), predicted, method)


def estimate_labels(store: ReviewStore, items: Sequence[ReviewItem], standing: Sequence[Decision]) -> LabelEstimates:
    """Estimate the quality of the task's labels from the votes of people and models."""
    drawn = [item for item in items if item.drawn == RANDOM]
    kinds = {reviewer.id: reviewer.kind for reviewer in store.reviewers()}
    grades, rulings, cut = grades_by_item(standing), store.rulings(), store.project.scale.relevant_from

    def vote(item: int, kind: str) -> float:
        given = [grade >= cut for reviewer, grade in grades.get(item, {}).items() if kinds[reviewer] == kind]
        if kind == PERSON and item in rulings:
            given = [(rulings[item].grade or 0) >= cut]
        return float(np.mean(given)) if given else np.nan

    human, predicted = (np.array([vote(item.number, kind) for item in drawn]) for kind in (PERSON, MODEL))
    unlabelled = np.array([(item.facts.get("label") or 0) <= 0 for item in drawn], dtype=np.float64)
    precision, overlooked = (
        _rate(Votes(human[unlabelled == side], predicted[unlabelled == side], unlabelled[unlabelled == side]))
        for side in (0, 1)
    )
    missed = missed_share(Votes(human, predicted, unlabelled))
    return LabelEstimates(store.project.frames.get(RANDOM, 0), len(drawn), precision, overlooked, missed)


def _rate(votes: Votes) -> RateEstimate | None:
    """Return the share of relevant pairs; Wilson's interval if all people agree, as the sample then has no variance."""
    human = votes.human[votes.judged]
    if len(human) < 2:
        return None
    mean = votes.interval(lambda relevant, _: relevant)
    mean = _wilson(human) if np.ptp(human) == 0 or mean.low == mean.high else mean
    return votes.estimate(mean.value, *mean.ends)


def _wilson(votes: Floats) -> Figure:
    return CaughtShare(round(float(votes.sum())), len(votes)).figure


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

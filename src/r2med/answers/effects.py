"""Effects of passages on the answers of an arm: fixed and broken, grounded or not, and predictable or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.answers.samples import AnswerKind, QuestionAnswers
from r2med.measure.bootstrap import average_intervals, percentile_ends, resampled_means
from r2med.measure.correlation import Discrimination, discrimination
from r2med.measure.figure import Figure
from r2med.measure.significance import Difference, difference

Floats = NDArray[np.float64]
Answers = Mapping[str, QuestionAnswers]
"""An arm's answers on one task, by question."""
ByTask = Mapping[str, Answers]
SIGNALS = ("score", "gap", "agreement")
"""What is known before a question is answered with passages."""


def decided(*arms: Answers) -> list[str]:
    """Return the questions that were decided in every one of some arms, in the order of the first."""
    return [query for query in arms[0] if all(query in arm and arm[query].value is not None for arm in arms)]


def values(arm: Answers, queries: Sequence[str]) -> Floats:
    """Return the share of right samples of each question."""
    return np.array([arm[query].value for query in queries], dtype=np.float64)


def accuracy(tasks: ByTask) -> Figure | None:
    """Average over tasks the share of right answers, with its interval; None if nothing was decided."""
    tables = [values(arm, queries) for arm in tasks.values() if (queries := decided(arm))]
    return average_intervals(tables)[0] if tables else None


@dataclass(frozen=True)
class Counts:
    """Numbers of samples by kind, and of those that words alone decide."""

    right: int
    wrong: int
    abstained: int
    unparsable: int
    unjudged: int
    failed: int
    exact: int
    contained: int

    @property
    def asked(self) -> int:
        """Count all samples."""
        return self.right + self.wrong + self.abstained + self.unparsable + self.unjudged + self.failed

    @property
    def undecided(self) -> int:
        """Count the samples that are in no accuracy."""
        return self.unparsable + self.unjudged + self.failed

    @property
    def decided_share(self) -> float | None:
        """Return the share that counts in an accuracy; None if nothing was asked."""
        return 1 - self.undecided / self.asked if self.asked else None

    @classmethod
    def of(cls, tasks: ByTask) -> Counts:
        """Count the samples of an arm."""
        samples = [sample for arm in tasks.values() for each in arm.values() for sample in each.samples]
        kinds = {kind.value: sum(each.kind is kind for each in samples) for kind in AnswerKind}
        words = {name: sum(getattr(each, name) for each in samples) for name in ("exact", "contained")}
        return cls(**kinds, **words)


@dataclass(frozen=True)
class Paired:
    """An arm against the same questions without passages."""

    fixed: int
    """Wrong without passages, right with them."""
    broken: int
    """Right without passages, wrong with them."""
    both_right: int
    both_wrong: int
    difference: Difference
    """The arm minus closed, paired by question within tasks."""
    switch: float
    """What a perfect choice between the two, question by question, would add to the better of them."""

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {**asdict(self), "difference": self.difference.as_dict()}


def paired(closed: ByTask, arm: ByTask) -> Paired | None:
    """Compare arms on the questions that were decided both ways; None if there are none."""
    shared = {task: queries for task in arm if task in closed and (queries := decided(closed[task], arm[task]))}
    if not shared:
        return None
    before = [closed[task][query].right for task, queries in shared.items() for query in queries]
    after = [arm[task][query].right for task, queries in shared.items() for query in queries]
    pairs = list(zip(before, after, strict=True))
    tables = [(values(closed[task], queries), values(arm[task], queries)) for task, queries in shared.items()]
    best = float(np.mean([np.maximum(one, other).mean() for one, other in tables]))
    better = max(float(np.mean([side.mean() for side in sides])) for sides in zip(*tables, strict=True))
    return Paired(
        fixed=pairs.count((False, True)),
        broken=pairs.count((True, False)),
        both_right=pairs.count((True, True)),
        both_wrong=pairs.count((False, False)),
        difference=difference([other - one for one, other in tables]),
        switch=best - better,
    )


@dataclass(frozen=True)
class Quadrants:
    """Questions by whether a relevant passage was in view, and whether the answer was right."""

    evidence_right: int = 0
    evidence_wrong: int = 0
    no_evidence_right: int = 0
    no_evidence_wrong: int = 0

    @classmethod
    def of(cls, tasks: ByTask) -> Quadrants:
        """Count the questions of an arm that were decided."""
        pairs = [(arm[q].evidence, arm[q].right) for arm in tasks.values() for q in decided(arm)]
        order = ((True, True), (True, False), (False, True), (False, False))
        return cls(*(pairs.count(pair) for pair in order))


@dataclass(frozen=True)
class Grounding:
    """Counts of what the answers rest on, over samples that give an answer."""

    answers: int = 0
    """Samples that are right or wrong."""
    cited: int = 0
    """Of these, how many name a source that was shown."""
    cited_relevant: int = 0
    """Of these, how many name a relevant source."""
    right_cited_relevant: int = 0
    """Right answers that name a relevant source."""
    no_evidence: int = 0
    """Answers with no relevant passage in view."""
    citations: int = 0
    """Sources named, in all."""
    relevant_citations: int = 0
    not_shown: int = 0
    """Sources named that were not shown."""

    @classmethod
    def of(cls, tasks: ByTask) -> Grounding:
        """Count the answers of an arm."""
        counts = dict.fromkeys(cls.__dataclass_fields__, 0)
        for arm in tasks.values():
            for each in arm.values():
                for sample in each.samples:
                    if sample.kind in (AnswerKind.RIGHT, AnswerKind.WRONG):
                        shown = [each.shown[number - 1] for number in sample.cited if 1 <= number <= len(each.shown)]
                        relevant = sum(passage.relevant for passage in shown)
                        counts["answers"] += 1
                        counts["cited"] += bool(shown)
                        counts["cited_relevant"] += bool(relevant)
                        counts["right_cited_relevant"] += bool(relevant) and sample.kind is AnswerKind.RIGHT
                        counts["no_evidence"] += not each.evidence
                        counts["citations"] += len(sample.cited)
                        counts["relevant_citations"] += relevant
                        counts["not_shown"] += len(sample.cited) - len(shown)
        return cls(**counts)


@dataclass(frozen=True)
class WayToGold:
    """Part of the way from closed to gold that an arm goes; below 0 it goes backwards."""

    share: float | None = None
    low: float | None = None
    high: float | None = None
    undefined: str = ""
    """Why there is none."""

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return asdict(self)


def way_to_gold(closed: ByTask, gold: ByTask, arm: ByTask) -> WayToGold:
    """Return the share of the gain of gold passages that an arm reaches, on the questions decided in all three."""
    shared = {task: found for task in arm if task in closed and task in gold
              and (found := decided(closed[task], gold[task], arm[task]))}  # fmt: skip
    if not shared:
        return WayToGold(undefined="no question was decided in all three")
    tables = [np.stack([values(side[t], queries) for side in (closed, gold, arm)]) for t, queries in shared.items()]
    means = np.mean([table.mean(axis=1) for table in tables], axis=0)
    if means[1] <= means[0]:
        return WayToGold(undefined=f"gold ({100 * means[1]:.1f}) does not exceed closed ({100 * means[0]:.1f})")
    drawn = np.mean([resampled_means(table, place) for place, table in enumerate(tables)], axis=0)
    gain = np.where(drawn[1] > drawn[0], drawn[1] - drawn[0], np.nan)
    ends = percentile_ends((drawn[2] - drawn[0]) / gain, [table.shape[1] for table in tables])
    return WayToGold(float((means[2] - means[0]) / (means[1] - means[0])), *(ends or (None, None)))


def foresee_harm(closed: ByTask, arm: ByTask) -> dict[str, Discrimination]:
    """Test if a low value of a signal known before answering goes with answers that passages break.

    Counted over the questions that were right without passages, the only ones that can be broken. `score` and `gap` are
    of the first passages of the list, `agreement` is that of the samples without passages.
    """
    found: dict[str, Discrimination] = {}
    for signal in SIGNALS:
        tasks = []
        for task in arm:
            at_risk = [q for q in decided(closed.get(task, {}), arm[task]) if closed[task][q].right]
            signals = [_signal(signal, closed[task][q], arm[task][q]) for q in at_risk]
            known = [(value, q) for value, q in zip(signals, at_risk, strict=True) if value is not None]
            if known:
                harmed = np.array([not arm[task][q].right for _, q in known])
                tasks.append((np.array([value for value, _ in known]), harmed))
        if tasks:
            found[signal] = discrimination(tasks)
    return found


def _signal(name: str, closed: QuestionAnswers, arm: QuestionAnswers) -> float | None:
    if name == "agreement":
        return closed.agreement
    scores = sorted((each.score for each in arm.shown if each.score is not None), reverse=True)
    if name == "score":
        return scores[0] if scores else None
    return scores[0] - scores[1] if len(scores) > 1 else None

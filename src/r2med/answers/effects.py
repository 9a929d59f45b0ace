"""Effects of passages on the answers of an arm: fixed and broken, grounded or not, and predictable or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.answers.nuggets import RECALLS
from r2med.answers.samples import AnswerKind, QuestionAnswers
from r2med.measure.bootstrap import average_intervals, percentile_ends, resampled_means
from r2med.measure.correlation import Discrimination, discrimination
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.significance import Difference, difference

Floats = NDArray[np.float64]
Answers = Mapping[str, QuestionAnswers]  # an arm's answers on one task, by question
ByTask = Mapping[str, Answers]
SIGNALS = ("score", "gap", "agreement")  # signals that are known before a question is answered with passages


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


def shown(heading: str, form: str = "{:,}") -> Any:
    """Declare a field that tables show under a heading; the text below the field describes it in the schema."""
    return field(metadata={"heading": heading, "form": form.format})


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Samples by what became of them."""

    right: int = shown("right")
    wrong: int = shown("wrong")
    abstained: int = shown("abstained")
    """Not right, and not wrong either."""
    unparsable: int = shown("unparsable")
    """Replies that hold no answer, or several; they count in no accuracy."""
    unjudged: int = shown("unjudged")
    """Answers whose verdict could not be read; they count in no accuracy."""
    failed: int = shown("failed")
    """Requests without a reply; they count in no accuracy."""
    exact: int = shown("exact")
    """Answers with the words of the gold answer and no others."""
    contained: int = shown("contained")
    """Answers with the words of the gold answer in them."""

    @property
    def asked(self) -> int:
        """Count all samples."""
        return self.right + self.wrong + self.abstained + self.undecided

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
        samples = [sample for question in questions_of(tasks) for sample in question.samples]
        kinds = {kind.value: sum(sample.kind is kind for sample in samples) for kind in AnswerKind}
        words = {name: sum(getattr(sample, name) for sample in samples) for name in ("exact", "contained")}
        return cls(**kinds, **words)


def questions_of(tasks: ByTask) -> list[QuestionAnswers]:
    """Return the answers of an arm to the questions of all tasks."""
    return [question for arm in tasks.values() for question in arm.values()]


@dataclass(frozen=True, kw_only=True)
class InView:
    """Passages that were shown."""

    passages: float = shown("passages", "{:.1f}")
    """In view, the mean over questions."""
    passage_tokens: float = shown("tokens", "{:,.0f}")
    """About how many tokens these take."""
    passages_cut: int = shown("cut by the budget")
    """By the budget."""

    @classmethod
    def of(cls, tasks: ByTask) -> InView:
        """Count the passages of an arm."""
        views = [question.shown for question in questions_of(tasks)]
        questions = max(1, len(views))
        passages = [passage for view in views for passage in view]
        return cls(
            passages=len(passages) / questions,
            passage_tokens=sum(passage.tokens for passage in passages) / questions,
            passages_cut=sum(passage.cut for passage in passages),
        )


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The arm against the same questions without passages."""

    fixed: int = shown("fixed")
    """Wrong without passages, right with them."""
    broken: int = shown("broken")
    """Right without passages, wrong with them."""
    both_right: int = shown("both right")
    both_wrong: int = shown("both wrong")
    difference: Difference
    """The arm minus closed, paired by question within tasks."""
    switch: float
    """What a perfect choice between the two, question by question, would add to the better of them."""

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return vars(self) | {"difference": self.difference.as_dict()}


def paired(closed: ByTask, arm: ByTask) -> Paired | None:
    """Compare arms on the questions that were decided both ways; None if there are none."""
    shared = {task: queries for task in arm if task in closed and (queries := decided(closed[task], arm[task]))}
    if not shared:
        return None
    pairs = [(closed[task][q].right, arm[task][q].right) for task, queries in shared.items() for q in queries]
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


@dataclass(frozen=True, kw_only=True)
class Quadrants:
    """Questions by whether a relevant passage was in view and the answer was right."""

    evidence_right: int = shown("evidence, right")
    """Right, with a relevant passage in view."""
    evidence_wrong: int = shown("evidence, wrong")
    """Wrong, with a relevant passage in view."""
    no_evidence_right: int = shown("none, right")
    """Right, without a relevant passage in view."""
    no_evidence_wrong: int = shown("none, wrong")
    """Wrong, without a relevant passage in view."""

    @classmethod
    def of(cls, tasks: ByTask) -> Quadrants:
        """Count the questions of an arm that were decided."""
        pairs = [(arm[q].evidence, arm[q].right) for arm in tasks.values() for q in decided(arm)]
        return cls(
            evidence_right=pairs.count((True, True)),
            evidence_wrong=pairs.count((True, False)),
            no_evidence_right=pairs.count((False, True)),
            no_evidence_wrong=pairs.count((False, False)),
        )


@dataclass(frozen=True, kw_only=True)
class Grounding:
    """Sources that the answers name, over samples that give an answer."""

    answers: int = shown("answers")
    """Samples that are right or wrong."""
    cited: int = shown("cite")
    """Those that name a source which was shown."""
    cited_relevant: int = shown("cite relevant")
    """Those that name a relevant one."""
    right_cited_relevant: int = shown("right and cite relevant")
    """Right ones that do."""
    no_evidence: int = shown("no evidence in view")
    """Answers with no relevant passage in view."""
    citations: int
    """Sources named in all."""
    relevant_citations: int
    """Sources named that are relevant."""
    not_shown: int = shown("cite unseen")
    """Sources named that were not shown."""

    @classmethod
    def of(cls, tasks: ByTask) -> Grounding:
        """Count the answers of an arm."""
        answers = [
            (question, sample, [question.shown[n - 1] for n in sample.cited if 1 <= n <= len(question.shown)])
            for question in questions_of(tasks)
            for sample in question.samples
            if sample.kind in (AnswerKind.RIGHT, AnswerKind.WRONG)
        ]
        relevant = [sum(passage.relevant for passage in cited) for _, _, cited in answers]
        right = [sample.kind is AnswerKind.RIGHT for _, sample, _ in answers]
        citations = sum(len(sample.cited) for _, sample, _ in answers)
        return cls(
            answers=len(answers),
            cited=sum(bool(cited) for _, _, cited in answers),
            cited_relevant=sum(map(bool, relevant)),
            right_cited_relevant=sum(bool(count) and ok for count, ok in zip(relevant, right, strict=True)),
            no_evidence=sum(not question.evidence for question, _, _ in answers),
            not_shown=citations - sum(len(cited) for _, _, cited in answers),
            citations=citations,
            relevant_citations=sum(relevant),
        )


@dataclass(frozen=True, kw_only=True)
class NuggetRecall:
    """Nuggets that the answers of an arm hold."""

    questions: int
    """Questions with nuggets."""
    without: int
    """Questions without nuggets, which are left out."""
    answers: int = shown("answers")
    """Answers to questions with nuggets."""
    unread: int = shown("unread")
    """Those of them without a label for every nugget, or that could not be read themselves; they are in no recall."""
    unread_share: float
    """Of the answers to questions with nuggets."""
    recall: Mapping[str, Figure | None]
    """Kind of recall to the mean over tasks with its 95% interval; null where no question has nuggets that count."""
    differences: Mapping[str, Difference | None]
    """Kind of recall to the arm minus closed, paired by question within tasks; null if closed was not asked."""

    @classmethod
    def of(cls, closed: ByTask | None, tasks: ByTask) -> NuggetRecall | None:
        """Average the recall of an arm; None if no question has nuggets."""
        questions = questions_of(tasks)
        support = [sample.support for question in questions if question.nuggets for sample in question.samples]
        if not support:
            return None
        unread = support.count(None)
        return cls(
            questions=sum(bool(question.nuggets) for question in questions),
            without=sum(not question.nuggets for question in questions),
            answers=len(support),
            unread=unread,
            unread_share=unread / len(support),
            recall={kind: _mean_recall(kind, tasks) for kind in RECALLS},
            differences={kind: None if closed is None else _recall_change(kind, closed, tasks) for kind in RECALLS},
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        recall = {kind: figure and figure_dict(figure, "mean") for kind, figure in self.recall.items()}
        changes = {kind: change and change.as_dict() for kind, change in self.differences.items()}
        return vars(self) | {"recall": recall, "differences": changes}


def _recalls(kind: str, arm: Answers) -> dict[str, float]:
    return {query: value for query, question in arm.items() if (value := question.recall(kind)) is not None}


def _mean_recall(kind: str, tasks: ByTask) -> Figure | None:
    tables = [np.array(list(recalls.values())) for arm in tasks.values() if (recalls := _recalls(kind, arm))]
    return average_intervals(tables)[0] if tables else None


def _recall_change(kind: str, closed: ByTask, arm: ByTask) -> Difference | None:
    """Compare recall on the questions that have one under both arms."""
    changes = []
    for task in arm:
        before, after = _recalls(kind, closed.get(task, {})), _recalls(kind, arm[task])
        if shared := [query for query in after if query in before]:
            changes.append(np.array([after[query] - before[query] for query in shared]))
    return difference(changes) if changes else None


@dataclass(frozen=True)
class WayToGold:
    """Part of the way from closed to gold that an arm goes; below 0 it goes backwards."""

    share: Figure | None = None
    undefined: str = ""
    """Why there is none."""

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {**figure_dict(self.share, "share"), "undefined": self.undefined}


def way_to_gold(closed: ByTask | None, gold: ByTask | None, arm: ByTask) -> WayToGold:
    """Return the share of the gain of gold passages that an arm reaches, on the questions decided in all three."""
    if closed is None or gold is None:
        return WayToGold(undefined=f"the arm {'closed' if closed is None else 'gold'} was not asked")
    sides = [[side[task] for side in (closed, gold, arm)] for task in arm if task in closed and task in gold]
    tables = [np.stack([values(s, queries) for s in three]) for three in sides if (queries := decided(*three))]
    if not tables:
        return WayToGold(undefined="no question was decided in all three")
    means = np.mean([table.mean(axis=1) for table in tables], axis=0)
    if means[1] <= means[0]:
        return WayToGold(undefined=f"gold ({100 * means[1]:.1f}) does not exceed closed ({100 * means[0]:.1f})")
    drawn = np.mean([resampled_means(table, place) for place, table in enumerate(tables)], axis=0)
    gain = np.where(drawn[1] > drawn[0], drawn[1] - drawn[0], np.nan)
    ends = percentile_ends((drawn[2] - drawn[0]) / gain, [table.shape[1] for table in tables])
    return WayToGold(Figure(float((means[2] - means[0]) / (means[1] - means[0])), *(ends or (None, None))))


def foresee_harm(closed: ByTask, arm: ByTask) -> dict[str, Discrimination]:
    """Test if a low value of a signal known before answering goes with answers that passages break.

    Counted over the questions that were right without passages, the only ones that can be broken. `score` and `gap` are
    of the first passages of the list, `agreement` is that of the samples without passages.
    """
    harm: dict[str, Discrimination] = {}
    for signal in SIGNALS:
        tasks = []
        for task in arm:
            at_risk = [q for q in decided(closed.get(task, {}), arm[task]) if closed[task][q].right]
            signals = {q: _signal(signal, closed[task][q], arm[task][q]) for q in at_risk}
            present = {q: value for q, value in signals.items() if value is not None}
            if present:
                harmed = np.array([not arm[task][q].right for q in present])
                tasks.append((np.array(list(present.values())), harmed))
        if tasks:
            harm[signal] = discrimination(tasks)
    return harm


def _signal(name: str, closed: QuestionAnswers, arm: QuestionAnswers) -> float | None:
    if name == "agreement":
        return closed.agreement
    first, second, *_ = *sorted((p.score for p in arm.shown if p.score is not None), reverse=True), None, None
    if name == "score":
        return first
    return None if first is None or second is None else first - second

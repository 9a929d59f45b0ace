"""Resolution of one label per item from all decisions on it: an adjudicator's ruling first, then a named rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low, multimode
from typing import Any, NoReturn

from r2med.audit.label_sets import ReviewedLabels
from r2med.errors import R2medError
from r2med.reviews.progress import grades_by_item
from r2med.reviews.rows import PERSON, ReviewItem, ReviewQuestion
from r2med.reviews.store import ReviewStore

RULED = "ruling"


def _majority(grades: Sequence[int]) -> int | None:
    most_common = multimode(grades)
    return most_common[0] if len(most_common) == 1 else None


RULES: Mapping[str, Callable[[Sequence[int]], int | None]] = {
    "majority": _majority,
    "median": median_low,
    "min": min,
    "max": max,
}
"""How several grades become one; None if they cannot."""


@dataclass(frozen=True)
class ResolvedLabel:
    """The label that an item resolves to."""

    item: ReviewItem
    question: ReviewQuestion
    grade: int  # on the scale of the review
    score: int  # as judgements have it: 0 if it is not relevant, else from 1 on
    by: str  # `ruling`, or the rule


@dataclass(frozen=True)
class ResolvedLabels:
    """The labels of a review, and how they were resolved."""

    labels: Sequence[ResolvedLabel]
    undecided: int
    """Items that people gave different grades, which neither a ruling nor the rule decides; they are left out."""
    rule: str
    reviewers: Sequence[str]
    binary: bool
    open_answer: bool = False  # whether the review shows everybody the gold answer from the start

    def settings(self) -> dict[str, Any]:
        """Return the settings that an export records."""
        facts = {name: getattr(self, name) for name in ("reviewers", "binary", "open_answer")}
        ruled = sum(label.by == RULED for label in self.labels)
        counts = {"labels": len(self.labels), "ruled": ruled, "undecided": self.undecided}
        return {"rule": f"{RULED}, then {self.rule}", **facts, **counts}


def resolve_labels(
    store: ReviewStore,
    rule: str = "majority",
    reviewers: Sequence[str] = (),
    *,
    binary: bool = False,
    ruled: bool = True,
) -> ResolvedLabels:
    """Resolve one label per item; the grades of people count, or of the named reviewers.

    A grade below the scale's `relevant_from` is written as 0, that grade as 1, the next one as 2; with `binary`, every
    relevant one as 1. Rulings go first, unless they shall not count.
    """
    if rule not in RULES:
        raise R2medError(f"there is no rule {rule!r}; choose {', '.join(RULES)}")
    people = [reviewer for reviewer in store.reviewers() if reviewer.kind == PERSON]
    counted = {reviewer.id: reviewer.name for reviewer in map(store.reviewer, reviewers)} or {
        person.id: person.name for person in people
    }
    grades = grades_by_item(store.standing())
    rulings = store.rulings() if ruled else {}
    questions = {question.number: question for question in store.questions()}
    labels, undecided = [], 0
    for item in store.items():
        given = [grade for who, grade in grades.get(item.number, {}).items() if who in counted]
        grade = rulings[item.number].grade if item.number in rulings else None
        by = rule if grade is None else RULED
        if grade is None and given:
            grade = RULES[rule](given)
            undecided += grade is None
        if grade is not None:
            score = written_score(grade, store.project.scale.relevant_from, binary=binary)
            labels.append(ResolvedLabel(item, questions[item.question], grade, score, by))
    if not labels:
        raise R2medError(_explain_none(store, undecided))
    return ResolvedLabels(labels, undecided, rule, sorted(counted.values()), binary, store.project.open_answer)


def _explain_none(store: ReviewStore, undecided: int) -> str:
    name = store.project.name
    if undecided:
        return f"no item of {name} has one label: reviewers differ on all {undecided:,}; let somebody adjudicate"
    others = [reviewer.name for reviewer in store.reviewers() if reviewer.kind != PERSON]
    if others:
        return f"no person has graded an item of {name}; --reviewer {others[0]!r} takes the labels of a model or import"
    return f"nobody has graded an item of {name} yet"


def written_score(grade: int, relevant_from: int, *, binary: bool = False) -> int:
    """Return a grade as judgements have it.

    >>> [written_score(grade, 2) for grade in range(4)], written_score(3, 2, binary=True)
    ([0, 0, 1, 2], 1)
    """
    score = max(0, grade - relevant_from + 1)
    return min(1, score) if binary else score


def labels_by_source(source: str, task: str) -> dict[str, ReviewedLabels]:
    """Return the labels of `review:NAME`, of one reviewer, or with `review:NAME:*` of each of its reviewers."""
    name, _, reviewer = source.removeprefix("review:").partition(":")
    with ReviewStore.open(name) as store:
        if reviewer != "*":
            return {f"review:{name}:{reviewer}" if reviewer else source: _reviewed_labels(store, task, reviewer)}
        # Of all reviewers with a grade for the task, models and imports included.
        questions = {question.number for question in store.questions() if question.task == task}
        items = {item.number for item in store.items() if item.question in questions}
        judges = [judge for judge, grades in store.labels().items() if items & grades.keys()] or _refuse(store, task)
        return {f"review:{name}:{judge}": _reviewed_labels(store, task, judge) for judge in judges}


def _reviewed_labels(store: ReviewStore, task: str, reviewer: str) -> ReviewedLabels:
    scores: dict[str, dict[str, int]] = {}
    grades: dict[str, dict[str, int]] = {}
    for label in resolve_labels(store, reviewers=[reviewer] if reviewer else (), ruled=not reviewer).labels:
        if label.question.task == task:
            scores.setdefault(label.question.query, {})[label.item.document] = label.score
            grades.setdefault(label.question.query, {})[label.item.document] = label.grade
    if not scores:
        _refuse(store, task)
    return ReviewedLabels(scores, store.project.name, store.project.scale.values, grades)


def _refuse(store: ReviewStore, task: str) -> NoReturn:
    tasks = ", ".join(store.project.data)
    raise R2medError(f"the review {store.project.name} has no label of {task}; it is of {tasks}")

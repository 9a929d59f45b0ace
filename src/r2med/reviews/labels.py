"""Resolution of one label per item from all decisions on it: an adjudicator's ruling first, then a named rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2med.audit.label_sets import GivenGrades, LookedUpLabels
from r2med.errors import R2medError
from r2med.reviews.progress import grades_by_item
from r2med.reviews.rows import PERSON, ReviewItem, ReviewQuestion
from r2med.reviews.store import ReviewStore

RULED = "ruling"


def _majority(grades: Sequence[int]) -> int | None:
    """Return the most frequent grade; None for a tie."""
    counts = Counter(grades).most_common(2)
    return None if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]


def _median(grades: Sequence[int]) -> int:
    """Return the middle grade, the lower one of two."""
    return sorted(grades)[(len(grades) - 1) // 2]


RULES: Mapping[str, Callable[[Sequence[int]], int | None]] = {
    "majority": _majority,
    "median": _median,
    "min": min,
    "max": max,
}
"""How several grades become one; none where they cannot."""


@dataclass(frozen=True)
class ResolvedLabel:
    """The label that an item resolves to."""

    item: ReviewItem
    question: ReviewQuestion
    grade: int
    """On the scale of the review."""
    score: int
    """As judgements have it: 0 where it is not relevant, and from 1 on where it is."""
    by: str
    """`ruling`, or the rule."""
    given: Mapping[str, int]
    """What reviewers said, by name."""


@dataclass(frozen=True)
class ResolvedLabels:
    """The labels of a review, and how they were resolved."""

    labels: Sequence[ResolvedLabel]
    undecided: int
    """Items that people gave different grades, which neither a ruling nor the rule decides; they are left out."""
    rule: str
    reviewers: Sequence[str]
    binary: bool
    open_answer: bool = False
    """Whether the review shows everybody the gold answer from the start."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that an export records."""
        return {
            "rule": f"{RULED}, then {self.rule}",
            "reviewers": list(self.reviewers),
            "binary": self.binary,
            "open_answer": self.open_answer,
            "labels": len(self.labels),
            "ruled": sum(label.by == RULED for label in self.labels),
            "undecided": self.undecided,
        }


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
    names = {each.id: each.name for each in store.reviewers()}
    chosen = set(reviewers) or {each.name for each in store.reviewers() if each.kind == PERSON}
    for name in reviewers:
        store.reviewer(name)
    said = grades_by_item(store.standing())
    rulings = store.rulings() if ruled else {}
    questions = {each.number: each for each in store.questions()}
    found, undecided = [], 0
    for item in store.items():
        given = {names[who]: grade for who, grade in said.get(item.number, {}).items() if names[who] in chosen}
        decided = rulings[item.number].grade if item.number in rulings else None
        if decided is None and not given:
            continue
        grade = decided if decided is not None else RULES[rule](list(given.values()))
        if grade is None:
            undecided += 1
            continue
        score = written_score(grade, store.project.scale.relevant_from, binary=binary)
        by = RULED if decided is not None else rule
        found.append(ResolvedLabel(item, questions[item.question], grade, score, by, given))
    if not found:
        raise R2medError(_nothing(store, undecided))
    return ResolvedLabels(found, undecided, rule, sorted(chosen), binary, store.project.open_answer)


def reviewed_labels(store: ReviewStore, task: str, reviewer: str = "") -> LookedUpLabels:
    """Return the labels of a review, or of one of its reviewers, for the pairs of a task."""
    found: dict[str, dict[str, int]] = {}
    grades: dict[str, dict[str, int]] = {}
    for label in resolve_labels(store, reviewers=[reviewer] if reviewer else (), ruled=not reviewer).labels:
        if label.question.task == task:
            found.setdefault(label.question.query, {})[label.item.document] = label.score
            grades.setdefault(label.question.query, {})[label.item.document] = label.grade
    if not found:
        raise R2medError(f"the review {store.project.name} has no label of {task}; it is of {_tasks(store)}")
    return LookedUpLabels(found, GivenGrades(store.project.name, store.project.scale.values, grades))


def reviewers_of(store: ReviewStore, task: str) -> list[str]:
    """Return the names of all reviewers with a grade for a task, models and imports included."""
    questions = {each.number for each in store.questions() if each.task == task}
    items = {item.number for item in store.items() if item.question in questions}
    found = [name for name, grades in store.labels().items() if items & grades.keys()]
    if not found:
        raise R2medError(f"the review {store.project.name} has no label of {task}; it is of {_tasks(store)}")
    return found


def _tasks(store: ReviewStore) -> str:
    return ", ".join(store.project.data)


def written_score(grade: int, relevant_from: int, *, binary: bool = False) -> int:
    """Return a grade as judgements have it.

    >>> [written_score(grade, 2) for grade in range(4)], written_score(3, 2, binary=True)
    ([0, 0, 1, 2], 1)
    """
    score = max(0, grade - relevant_from + 1)
    return min(1, score) if binary else score


def _nothing(store: ReviewStore, undecided: int) -> str:
    name = store.project.name
    if undecided:
        return f"no item of {name} has one label: reviewers differ on all {undecided:,}; let somebody adjudicate"
    others = [each.name for each in store.reviewers() if each.kind != PERSON]
    if others:
        return f"no person has graded an item of {name}; --reviewer {others[0]!r} takes the labels of a model or import"
    return f"nobody has graded an item of {name} yet"


def labels_by_source(source: str, task: str) -> dict[str, LookedUpLabels]:
    """Return the labels of `review:NAME`, of one reviewer, or with `review:NAME:*` of each of its reviewers."""
    name, _, reviewer = source.removeprefix(_SOURCE).partition(":")
    with ReviewStore.open(name) as store:
        people = reviewers_of(store, task) if reviewer == "*" else [reviewer]
        names = {person: f"{_SOURCE}{name}:{person}" if person else source for person in people}
        return {names[person]: reviewed_labels(store, task, person) for person in people}


_SOURCE = "review:"

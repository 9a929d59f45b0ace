"""The progress of a review for its owner: counts and pace by reviewer, agreement, unclear sentences, and its items."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2med.errors import R2medError, suggest
from r2med.reviews.rows import (
    GRADED,
    PERSON,
    SKIPPED,
    UNSURE,
    Decision,
    ReviewDecision,
    Reviewer,
    ReviewProject,
    Ruling,
    review_names,
)
from r2med.reviews.scale import sentences
from r2med.reviews.store import ReviewStore

Grades = Mapping[int, Mapping[int, int]]  # item to reviewer to grade; 0 is no reviewer


@dataclass(frozen=True)
class HitCount:
    """A count out of a total; the share is unknown if the total is 0."""

    count: int = 0
    total: int = 0

    @property
    def value(self) -> float | None:
        """Return the share; None if the total is 0."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True)
class PersonProgress:
    """Progress of one reviewer."""

    name: str
    kind: str
    role: str
    links: int  # How many links of theirs are valid.
    graded: int
    unsure: int
    skipped: int
    ruled: int
    seconds: float | None  # The median of an item; None if no time is known.
    agreement: HitCount  # Same grade as another person, of all pairs of grades on one item.
    models: HitCount  # Same grade as a model or an import.
    repeats: HitCount  # Same grade as the first time, of the items that came twice.
    gold: HitCount  # The grade that is known to be right.


@dataclass(frozen=True)
class SentenceTrouble:
    """A sentence of the guideline, and how often reviewers named it as unclear."""

    number: int
    text: str
    count: int


@dataclass(frozen=True)
class ReviewProgress:
    """Progress of a whole review."""

    project: ReviewProject
    questions: int
    items: int
    drawn: Mapping[str, int]
    judged: int  # Items that a person graded.
    by_two: int  # Items that two people at least have graded.
    disagreements: int  # Of these, how many have different grades.
    by_models: int  # Items that a model or an import graded, which count for nothing above.
    ruled: int
    people: Sequence[PersonProgress]
    trouble: Sequence[SentenceTrouble]
    causes: Mapping[str, int]  # Why people disagreed, as adjudicators named it.
    decision: ReviewDecision | None = None  # How the comparison stands, with `--queue decide`.


def contested_items(store: ReviewStore) -> dict[int, list[Decision]]:
    """Return what people, not models or imports, said of the items on which they differ or are unsure, in order."""
    people = {reviewer.id for reviewer in store.reviewers() if reviewer.kind == PERSON}
    opinions: dict[int, list[Decision]] = defaultdict(list)
    for row in store.standing():
        if row.reviewer in people and row.verdict != SKIPPED and not row.again:
            opinions[row.item].append(row)
    grades = {item: {row.grade if row.verdict == GRADED else UNSURE for row in rows} for item, rows in opinions.items()}
    return {item: opinions[item] for item in sorted(opinions) if len(grades[item]) > 1 or UNSURE in grades[item]}


def grades_by_item(decisions: Sequence[Decision]) -> dict[int, dict[int, int]]:
    """Return the grades of each item by reviewer, first looks only."""
    grades: dict[int, dict[int, int]] = defaultdict(dict)
    for row in decisions:
        if row.verdict == GRADED and row.grade is not None and not row.again:
            grades[row.item][row.reviewer] = row.grade
    return grades


def review_progress(store: ReviewStore) -> ReviewProgress:
    """Count everything."""
    standing, rulings, reviewers = store.standing(), store.rulings().values(), store.reviewers()
    people = {reviewer.id for reviewer in reviewers if reviewer.kind == PERSON}
    by_people = grades_by_item([row for row in standing if row.reviewer in people])
    by_models = grades_by_item([row for row in standing if row.reviewer not in people])
    shared = [grades for grades in by_people.values() if len(grades) > 1]
    gold = {number: {0: grade} for number, grade in store.rows("SELECT number, gold FROM item WHERE gold IS NOT NULL")}
    links = Counter(invitation.reviewer for invitation in store.invitations())
    ruled = Counter(ruling.reviewer for ruling in rulings)
    rows_of: dict[int, list[Decision]] = defaultdict(list)
    for row in standing:
        rows_of[row.reviewer].append(row)
    rows: list[Decision | Ruling] = [*standing, *rulings]
    unclear = Counter(row.sentence for row in rows if row.sentence is not None)
    texts = dict(enumerate(sentences(store.project.guideline)))
    return ReviewProgress(
        project=store.project,
        questions=int(store.rows("SELECT count(*) FROM question")[0][0]),
        items=store.item_count,
        drawn=dict(store.rows("SELECT drawn, count(*) FROM item GROUP BY drawn ORDER BY drawn")),
        judged=len(by_people),
        by_two=len(shared),
        disagreements=sum(len(set(grades.values())) > 1 for grades in shared),
        by_models=len(by_models),
        ruled=len(rulings),
        people=[
            _person(person, rows_of[person.id], links[person.id], ruled[person.id], (by_people, by_models, gold))
            for person in reviewers
        ],
        trouble=[SentenceTrouble(number, texts.get(number, ""), count) for number, count in unclear.most_common()],
        causes=dict(Counter(ruling.cause for ruling in rulings if ruling.cause)),
    )


def _person(
    reviewer: Reviewer, rows: Sequence[Decision], links: int, ruled: int, others: tuple[Grades, Grades, Grades]
) -> PersonProgress:
    """Count the decisions of a reviewer; `others` are the grades of people, of models, and those known to be right."""
    by_people, by_models, gold = others
    verdicts = Counter(row.verdict for row in rows if not row.again)
    seconds = [row.seconds for row in rows if row.seconds is not None and row.verdict != SKIPPED]
    graded = [row for row in rows if row.verdict == GRADED]
    first = {row.item: row.grade for row in graded if not row.again}
    again = {row.item: {0: row.grade or 0} for row in graded if row.again}

    def compare_with(table: Grades) -> HitCount:
        pairs = ((first[item], grades.items()) for item, grades in table.items() if item in first)
        hits = [mine == grade for mine, row in pairs for who, grade in row if who != reviewer.id]
        return HitCount(sum(hits), len(hits))

    return PersonProgress(
        *(reviewer.name, reviewer.kind, reviewer.role, links),
        *(verdicts[GRADED], verdicts[UNSURE], verdicts[SKIPPED], ruled),
        statistics.median(seconds) if seconds else None,
        *map(compare_with, (by_people, by_models, again, gold)),
    )


def every_progress() -> tuple[list[ReviewProgress], list[str]]:
    """Return the progress of all local projects, and the errors of those that cannot be read."""
    reviews, errors = [], []
    for name in review_names():
        try:
            with ReviewStore.open(name) as store:
                reviews.append(review_progress(store))
        except R2medError as error:
            errors.append(str(error))
    return reviews, errors


FILTERS: Mapping[str, tuple[str, Callable[[Sequence[Decision], frozenset[int]], bool]]] = {
    "": ("All items", lambda rows, people: True),
    "unsure": ("Somebody is unsure", lambda rows, people: any(row.verdict == UNSURE for row in rows)),
    "disagree": (
        "People disagree",
        lambda rows, people: len({row.grade for row in rows if row.verdict == GRADED and row.reviewer in people}) > 1,
    ),
    "noted": ("With a note", lambda rows, people: any(row.note for row in rows)),
    "marked": ("With a marked stretch", lambda rows, people: any(row.span for row in rows)),
    "skipped": ("Skipped", lambda rows, people: any(row.verdict == SKIPPED for row in rows)),
    "open": (
        "Judged by no person",
        lambda rows, people: not any(row.verdict in (GRADED, UNSURE) and row.reviewer in people for row in rows),
    ),
}
"""The filters of items, by their names in an address."""


def filter_items(store: ReviewStore, name: str = "", reviewer: str = "") -> list[int]:
    """Return the numbers of the items that a filter keeps, by one reviewer's decisions or by all."""
    if name not in FILTERS:
        raise R2medError(f"there is no filter {name!r}{suggest(name, FILTERS)}")
    keeps = FILTERS[name][1]
    people = frozenset(person.id for person in store.reviewers() if person.kind == PERSON)
    rows: dict[int, list[Decision]] = defaultdict(list)
    for row in store.standing():
        if not row.again:
            rows[row.item].append(row)
    numbers = [number for (number,) in store.rows("SELECT number FROM item ORDER BY number")]
    if not reviewer:
        return [number for number in numbers if keeps(rows[number], people)]
    identifier = store.reviewer(reviewer).id
    by_reviewer = {number: [row for row in rows[number] if row.reviewer == identifier] for number in numbers}
    # Disagreement takes two; everything else is asked of this reviewer's own decisions.
    tested = rows if name == "disagree" else by_reviewer
    return [number for number in numbers if by_reviewer[number] and keeps(tested[number], people)]


def item_rows(store: ReviewStore, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Return items with the opinions on them and their rulings, second looks after first ones."""
    reviewers = {reviewer.id: reviewer for reviewer in store.reviewers()}
    rulings = store.rulings()
    items = {number: store.item(number) for number in numbers}
    opinions: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(store.standing(), key=lambda row: (row.again, row.reviewer)):
        if row.item in items:
            quote = items[row.item].text[slice(*row.span)] if row.span else ""
            opinions[row.item].append({"reviewer": reviewers[row.reviewer], "decision": row, "quote": quote})
    questions = {number: store.question(item.question) for number, item in items.items()}
    return [
        {"item": item, "question": questions[number], "opinions": opinions[number], "ruling": rulings.get(number)}
        for number, item in items.items()
    ]

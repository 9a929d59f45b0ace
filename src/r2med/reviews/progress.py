"""How a review stands, for its owner: who has judged what, how fast, how far they agree, and what is unclear."""

from __future__ import annotations

import statistics
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from r2med.errors import R2medError
from r2med.reviews.rows import GRADED, PERSON, SKIPPED, UNSURE, Decision, Reviewer, ReviewProject, Ruling, review_names
from r2med.reviews.scale import sentences
from r2med.reviews.store import ReviewStore


@dataclass(frozen=True)
class HitCount:
    """How many of how many; the share is unknown where there is nothing to count."""

    count: int = 0
    total: int = 0

    @property
    def value(self) -> float | None:
        """The share; None where there is nothing."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True)
class PersonProgress:
    """How far one reviewer has come."""

    name: str
    kind: str
    role: str
    links: int
    """How many links of theirs hold."""
    graded: int
    unsure: int
    skipped: int
    ruled: int
    seconds: float | None
    """The median of an item; None where no time is known."""
    agreement: HitCount
    """Same grade as another person, of all pairs of grades on one item."""
    models: HitCount
    """Same grade as a model or an import."""
    repeats: HitCount
    """Same grade as the first time, of the items that came twice."""
    gold: HitCount
    """The grade that is known to be right."""


@dataclass(frozen=True)
class SentenceTrouble:
    """A sentence of the guideline, and how often somebody named it as unclear."""

    number: int
    text: str
    count: int


@dataclass(frozen=True)
class ReviewProgress:
    """How a whole review stands."""

    project: ReviewProject
    questions: int
    items: int
    drawn: Mapping[str, int]
    judged: int
    """Items that a person graded."""
    by_two: int
    """Items that two people at least have graded."""
    disagreements: int
    """Of these, how many have different grades."""
    by_models: int
    """Items that a model or an import graded, which count for nothing above."""
    ruled: int
    people: Sequence[PersonProgress]
    trouble: Sequence[SentenceTrouble]
    causes: Mapping[str, int]
    """Why people disagreed, as adjudicators named it."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {**asdict(self), "project": self.project.as_dict()}


class StandingDecisions:
    """The decisions that hold and what people disagree about, brought up to date by what was appended since.

    Models and imports are never among those who disagree. Several threads may ask.
    """

    def __init__(self, store: ReviewStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._last = 0
        self._rows: dict[int, Decision] = {}
        self._stacks: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
        """What a reviewer said of an item and did not take back, by ids, the last one last."""
        self._said: dict[int, dict[int, Decision]] = defaultdict(dict)
        """Of each item what holds by person, first looks only."""
        self._people: dict[int, bool] = {}
        """Whether a reviewer is a person."""
        self._contested: set[int] = set()

    def current(self) -> list[Decision]:
        """Every decision that holds, second looks included."""
        with self._lock:
            self._catch_up()
            return [self._rows[stack[-1]] for stack in self._stacks.values() if stack]

    def contested(self) -> list[int]:
        """The items that an adjudicator is asked about: people differ, or one is unsure; in the order of items."""
        with self._lock:
            self._catch_up()
            return sorted(self._contested)

    def said_of(self, item: int) -> list[Decision]:
        """What people say of an item and holds, first looks only."""
        with self._lock:
            self._catch_up()
            return list(self._said[item].values())

    def _catch_up(self) -> None:
        for row in self._store.decisions(self._last):
            self._last = row.id
            stack = self._stacks[row.reviewer, row.item, row.again]
            if row.undoes is None:
                self._rows[row.id] = row
                stack.append(row.id)
            elif row.undoes in self._rows:
                del self._rows[row.undoes]
                stack.remove(row.undoes)
            if not row.again and self._is_person(row.reviewer):
                self._judge_item(row, stack)

    def _is_person(self, reviewer: int) -> bool:
        if reviewer not in self._people:
            self._people = {each.id: each.kind == PERSON for each in self._store.reviewers()}
        return self._people.get(reviewer, False)

    def _judge_item(self, row: Decision, stack: Sequence[int]) -> None:
        said = self._said[row.item]
        said.pop(row.reviewer, None)
        if stack:
            said[row.reviewer] = self._rows[stack[-1]]
        heard = [each.grade if each.verdict == GRADED else UNSURE for each in said.values() if each.verdict != SKIPPED]
        if len(set(heard)) > 1 or UNSURE in heard:
            self._contested.add(row.item)
        else:
            self._contested.discard(row.item)


def grades_by_item(decisions: Sequence[Decision]) -> dict[int, dict[int, int]]:
    """The grades of each item by reviewer, first looks only."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for row in decisions:
        if row.verdict == GRADED and row.grade is not None and not row.again:
            found[row.item][row.reviewer] = row.grade
    return found


def review_progress(store: ReviewStore, decisions: Sequence[Decision] | None = None) -> ReviewProgress:
    """Count everything; `decisions` are those that hold where they are known already."""
    held = store.standing() if decisions is None else decisions
    rulings = store.rulings()
    reviewers = store.reviewers()
    people = {each.id for each in reviewers if each.kind == PERSON}
    grades = grades_by_item(held)
    by_people = grades_by_item([row for row in held if row.reviewer in people])
    by_models = grades_by_item([row for row in held if row.reviewer not in people])
    gold = {row[0]: row[1] for row in store.rows("SELECT number, gold FROM item WHERE gold IS NOT NULL")}
    drawn = {row[0]: row[1] for row in store.rows("SELECT drawn, count(*) FROM item GROUP BY drawn ORDER BY drawn")}
    shared = [each for each in by_people.values() if len(each) > 1]
    links = Counter(each.reviewer for each in store.invitations() if not each.withdrawn)
    mine: dict[int, list[Decision]] = defaultdict(list)
    for row in held:
        mine[row.reviewer].append(row)
    ruled = Counter(ruling.reviewer for ruling in rulings.values())
    progress = [
        _person(
            each,
            mine[each.id],
            links[each.id],
            ruled[each.id],
            (_agreement(each.id, grades, by_people), _agreement(each.id, grades, by_models)),
            gold,
        )
        for each in reviewers
    ]
    return ReviewProgress(
        store.project,
        int(store.rows("SELECT count(*) FROM question")[0][0]),
        store.item_count,
        drawn,
        len(by_people),
        len(shared),
        sum(len(set(each.values())) > 1 for each in shared),
        len(by_models),
        len(rulings),
        progress,
        _trouble(store.project.guideline, held, list(rulings.values())),
        dict(Counter(ruling.cause for ruling in rulings.values() if ruling.cause)),
    )


def every_progress() -> tuple[list[ReviewProgress], list[str]]:
    """How every project of this machine stands, and what is wrong with those that cannot be read."""
    found, broken = [], []
    for name in review_names():
        try:
            with ReviewStore.open(name) as store:
                found.append(review_progress(store))
        except R2medError as error:
            broken.append(str(error))
    return found, broken


def _person(
    reviewer: Reviewer,
    rows: Sequence[Decision],
    links: int,
    ruled: int,
    agreement: tuple[HitCount, HitCount],
    gold: Mapping[int, int],
) -> PersonProgress:
    verdicts = Counter(row.verdict for row in rows if not row.again)
    seconds = [row.seconds for row in rows if row.seconds is not None and row.verdict != SKIPPED]
    first = {row.item: row.grade for row in rows if row.verdict == GRADED and not row.again}
    second = {row.item: row.grade for row in rows if row.verdict == GRADED and row.again}
    both = [(first[item], grade) for item, grade in second.items() if item in first]
    known = [(first[item], grade) for item, grade in gold.items() if item in first]
    return PersonProgress(
        reviewer.name,
        reviewer.kind,
        reviewer.role,
        links,
        verdicts[GRADED],
        verdicts[UNSURE],
        verdicts[SKIPPED],
        ruled,
        statistics.median(seconds) if seconds else None,
        agreement[0],
        agreement[1],
        _equal(both),
        _equal(known),
    )


def _equal(pairs: Sequence[tuple[int | None, int | None]]) -> HitCount:
    return HitCount(sum(one == other for one, other in pairs), len(pairs))


def _agreement(
    reviewer: int, grades: Mapping[int, Mapping[int, int]], others: Mapping[int, Mapping[int, int]]
) -> HitCount:
    """Compare what a reviewer said of each item with what each of some others did."""
    pairs: list[tuple[int | None, int | None]] = [
        (given[reviewer], grade)
        for item, given in grades.items()
        if reviewer in given
        for other, grade in others.get(item, {}).items()
        if other != reviewer
    ]
    return _equal(pairs)


def _trouble(guideline: str, held: Sequence[Decision], rulings: Sequence[Ruling]) -> list[SentenceTrouble]:
    named = [*(row.sentence for row in held), *(row.sentence for row in rulings)]
    counts = Counter(number for number in named if number is not None)
    texts = dict(enumerate(sentences(guideline)))
    return [SentenceTrouble(number, texts.get(number, ""), count) for number, count in counts.most_common()]

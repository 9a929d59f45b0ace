"""The items of a review for its owner: all reviewers' decisions on each, with notes and marked stretches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from r2med.errors import R2medError, suggest
from r2med.reviews.rows import GRADED, PERSON, SKIPPED, UNSURE, Decision, Reviewer, ReviewItem, ReviewQuestion, Ruling
from r2med.reviews.store import ReviewStore


@dataclass(frozen=True)
class ItemOpinion:
    """Opinion of a reviewer on an item."""

    reviewer: Reviewer
    decision: Decision
    quote: str
    """The stretch of the passage that they marked."""


@dataclass(frozen=True)
class ItemRow:
    """An item with all opinions on it."""

    item: ReviewItem
    question: ReviewQuestion
    opinions: Sequence[ItemOpinion]
    ruling: Ruling | None


Said = Sequence[Decision]
FILTERS: Mapping[str, tuple[str, Callable[[Said, frozenset[int]], bool]]] = {
    "": ("All items", lambda said, people: True),
    "unsure": ("Somebody is unsure", lambda said, people: any(row.verdict == UNSURE for row in said)),
    "disagree": (
        "People disagree",
        lambda said, people: len({row.grade for row in said if row.verdict == GRADED and row.reviewer in people}) > 1,
    ),
    "noted": ("With a note", lambda said, people: any(row.note for row in said)),
    "marked": ("With a marked stretch", lambda said, people: any(row.span for row in said)),
    "skipped": ("Skipped", lambda said, people: any(row.verdict == SKIPPED for row in said)),
    "open": (
        "Judged by no person",
        lambda said, people: not any(row.verdict in (GRADED, UNSURE) and row.reviewer in people for row in said),
    ),
}
"""What can be asked for, by its name in an address."""


def chosen_items(store: ReviewStore, held: Sequence[Decision], show: str = "", reviewer: str = "") -> list[int]:
    """Return the numbers of the items that a filter keeps, by one reviewer's decisions or by all."""
    if show not in FILTERS:
        raise R2medError(f"there is no filter {show!r}{suggest(show, FILTERS)}")
    asked = store.reviewer(reviewer).id if reviewer else None
    people = frozenset(each.id for each in store.reviewers() if each.kind == PERSON)
    said: dict[int, list[Decision]] = defaultdict(list)
    for row in held:
        if not row.again:
            said[row.item].append(row)
    keeps = FILTERS[show][1]
    numbers = [row[0] for row in store.rows("SELECT number FROM item ORDER BY number")]
    if asked is None:
        return [number for number in numbers if keeps(said[number], people)]
    # Disagreement takes two; everything else is asked of this reviewer's own decisions.
    of = {number: [row for row in said[number] if row.reviewer == asked] for number in numbers}
    return [n for n in numbers if of[n] and keeps(said[n] if show == "disagree" else of[n], people)]


def item_rows(store: ReviewStore, held: Sequence[Decision], numbers: Sequence[int]) -> list[ItemRow]:
    """Return items with the opinions on them, second looks after first ones."""
    reviewers = {each.id: each for each in store.reviewers()}
    rulings = store.rulings()
    wanted = set(numbers)
    said: dict[int, list[Decision]] = defaultdict(list)
    for row in sorted(held, key=lambda row: (row.again, row.reviewer)):
        if row.item in wanted:
            said[row.item].append(row)
    rows = []
    for number in numbers:
        item = store.item(number)
        opinions = [
            ItemOpinion(reviewers[row.reviewer], row, item.text[slice(*row.span)] if row.span else "")
            for row in said[number]
        ]
        rows.append(ItemRow(item, store.question(item.question), opinions, rulings.get(number)))
    return rows

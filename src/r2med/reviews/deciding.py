"""Dealing of what decides a comparison: the passage whose label tells most goes first, until the verdict is sure.

Passages that every reviewer judges go to the others as soon as one has been dealt them; repeats come among new ones, at
least ten places later. Nothing is dealt ahead, so that each decision counts for what is dealt next. No page of the desk
says how many are left, where a passage comes from or how the systems stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from r2med.measure.decision import DEEPEST, OPEN, Integers, PoolComparison, PoolStanding
from r2med.measure.metrics import Floats, Measure
from r2med.reviews.batches import Dealer
from r2med.reviews.labels import RULES
from r2med.reviews.progress import ReviewProgress, grades_by_item, review_progress
from r2med.reviews.rows import PERSON, DealtItem, ReviewDecision, Reviewer, SystemPair
from r2med.reviews.store import OPEN as UNDECIDED
from r2med.reviews.store import ReviewStore

_APART = 10  # places between a passage and its repeat


class Decider:
    """Comparison of a review, and its standing by the decisions so far."""

    def __init__(self, store: ReviewStore) -> None:
        assert store.project.rule is not None
        self.store, self.rule = store, store.project.rule
        self._standing: tuple[int, Integers, PoolStanding] | None = None

    @cached_property
    def _pool(self) -> tuple[list[int], PoolComparison]:
        """Return the numbers of the items and the comparison."""
        items = self.store.items()
        first = len(self.rule.given)  # questions with labels of the task, then all others
        rows = {number: row for row, (number, _) in enumerate(self.rule.given) if number}
        for item in items:
            if item.question not in rows:
                rows[item.question] = first
                first += 1
        given: Floats = np.zeros((first, 1 + len(self.rule.systems)))
        for row, (_, gains) in enumerate(self.rule.given):
            given[row] = gains
        items.sort(key=lambda item: (rows[item.question], item.number))
        ranks = [[item.facts["ranks"].get(system, DEEPEST) for system in self.rule.systems] for item in items]
        questions = np.array([rows[item.question] for item in items])
        measure = Measure.parse(self.rule.measure)
        comparison = PoolComparison(questions, np.array(ranks), measure, given, self.store.project.seed)
        return [item.number for item in items], comparison

    def standing(self) -> tuple[Integers, PoolStanding]:
        """Return the labels and the standing by them, computed once for each state of the review."""
        state = self.store.state()
        if self._standing is None or self._standing[0] != state:
            labels = self._labels()
            self._standing = state, labels, self._pool[1].standing(labels)
        return self._standing[1:]

    def _labels(self) -> Integers:
        """Return the label of each passage: of an adjudicator, else of the majority of people."""
        people = {reviewer.id for reviewer in self.store.reviewers() if reviewer.kind == PERSON}
        by_item = grades_by_item([row for row in self.store.standing() if row.reviewer in people])
        grades = {item: RULES["majority"](list(given.values())) for item, given in by_item.items()}
        grades |= {item: ruling.grade for item, ruling in self.store.rulings().items()}
        relevant = self.store.project.scale.relevant_from
        values = (grades.get(number) for number in self._pool[0])
        return np.array([OPEN if grade is None else int(grade >= relevant) for grade in values])

    def decided(self) -> bool:
        """Return whether nothing more needs to be dealt."""
        return self.standing()[1].error <= self.rule.error

    def next_items(self) -> list[int]:
        """Return the items whose label would tell something, the one that tells most first; none once decided."""
        worth = self.standing()[1].worth
        order = np.argsort(-worth, kind="stable")
        return [] if self.decided() else [self._pool[0][place] for place in order[: np.count_nonzero(worth)]]

    def report(self) -> ReviewDecision:
        """Return how the comparison stands."""
        names = self.rule.systems
        labels, standing = self.standing()
        pairs = tuple(
            SystemPair(names[p.a], names[p.b], p.difference, p.deviation, p.ahead, p.alike) for p in standing.pairs
        )
        decided = self.decided()
        more = 0 if decided else self._pool[1].forecast(standing, self.rule.error)
        facts = (self.rule.measure, names, tuple(standing.means.tolist()), pairs, standing.error, self.rule.error)
        return ReviewDecision(*facts, decided, int((labels != OPEN).sum()), len(labels), more)


def progress_of(store: ReviewStore) -> ReviewProgress:
    """Return the progress of a review, with the standing of its comparison if it has one."""
    progress = review_progress(store)
    return replace(progress, decision=Decider(store).report()) if store.project.rule else progress


class DecidingDealer(Dealer):
    """Dealing of the items of a review that decides a comparison."""

    def __init__(self, store: ReviewStore) -> None:
        super().__init__(store)
        self.decider = Decider(store)

    def next_open(self, reviewer: Reviewer, after: int = 0) -> DealtItem | None:
        """Return the next undecided item after a place, then any; if there is none, deal the one that tells most."""
        which = "reviewer = ? AND state = ? ORDER BY position <= ?, position LIMIT 1"
        ready = self.store.dealt_items(which, (reviewer.id, UNDECIDED, after))
        if not ready and self.deal(reviewer):
            ready = self.store.dealt_items(which, (reviewer.id, UNDECIDED, after))
        return ready[0] if ready else None

    def waiting(self, reviewer: Reviewer) -> int | None:
        """Return None: how many are left is not known before, and would tell how the comparison stands."""
        return None

    def deal(self, reviewer: Reviewer) -> int:
        """Deal one item, unless the comparison is decided, and return how many were dealt."""
        order = self.decider.next_items()  # before the transaction, which keeps others waiting
        if not order:
            return 0
        with self.store.transaction() as connection:
            if self.store.dealt_items("reviewer = ? AND state = ? LIMIT 1", (reviewer.id, UNDECIDED)):
                return 1  # dealt meanwhile, in another tab
            if repeat := self._repeat(reviewer):
                return self._put(connection, reviewer, [(repeat, 1)])
            items = self._free(reviewer, order)
            return self._put(connection, reviewer, [(item, 0) for item in items[:1]])

    def _free(self, reviewer: Reviewer, order: Sequence[int]) -> list[int]:
        """Return what can be dealt to a reviewer, in order: first what another was dealt that all judge."""
        dealt = set(self._column("SELECT item FROM deal WHERE reviewer = ?", reviewer.id))
        begun = "SELECT DISTINCT item FROM deal WHERE shared = 1 ORDER BY item"
        waiting = [item for item in self._column(begun) if item not in dealt]
        held = "SELECT item FROM hold WHERE reviewer IS NOT NULL AND reviewer <> ?"
        excluded = dealt | set(self._column(held, reviewer.id))
        return [*waiting, *(item for item in order if item not in excluded)]

    def _repeat(self, reviewer: Reviewer) -> int:
        """Draw whether an earlier item comes again now, and which; 0 for none."""
        rows = "SELECT item, max(again), count(*), max(position) FROM deal WHERE reviewer = ? GROUP BY item"
        dealt = self.store.rows(rows, (reviewer.id,))
        last = max((position for *_, position in dealt), default=0)
        chance = self._chance(reviewer, f"again {last}")
        ready = sorted(item for item, again, _, position in dealt if not again and position <= last - _APART)
        return chance.choice(ready) if ready and chance.random() < self.store.project.repeat else 0

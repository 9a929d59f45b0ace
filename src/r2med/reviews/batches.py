"""Dealing of items to reviewers: a random order of questions per reviewer, each question's passages together.

A reviewer passes all questions in an order that depends only on the project's seed and the reviewer's name. Each
question deals the shared items, and those of the others that no reviewer holds yet; these are held from then on. So the
number of reviewers need not be known beforehand, and a quick one judges more. Within a question the order is random.

Some questions come twice: first with half of the items, later with the other half and some of the first ones again. A
repeat therefore stands among new passages and cannot be told from them.

Of the pool of a build, all questions come twice: first with what all members of its committee found, then with the
rest, so that a review which is never finished has judged what is most likely to be relevant.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from sqlite3 import Connection
from typing import NamedTuple

from r2med.reviews.rows import AGREED, DealtItem, Reviewer
from r2med.reviews.store import DECIDED, LEFT, OPEN, ReviewStore

WHOLE, FIRST, SECOND, EARLY = 0, 1, 2, 3  # which part of a question's items is dealt at a stop
AHEAD = 8  # undecided items that are dealt ahead, so that the next one is there before it is asked for
_REPEATED = 0.25  # the share of a question's items that come again where any do: half of its first half


class Stop(NamedTuple):
    """A question on a reviewer's tour, with all or half of its items."""

    question: int
    part: int


def plan_stops(questions: Sequence[int], repeat: float, chance: random.Random) -> list[Stop]:
    """Return the order of a reviewer's questions; as many of them come twice as the share of repeats needs.

    >>> stops = plan_stops(range(100), 0.05, random.Random(1))
    >>> len(stops), sum(stop.part == SECOND for stop in stops) > 5
    (119, True)
    """
    order = list(questions)
    chance.shuffle(order)
    share = min(1.0, repeat / _REPEATED)
    twice = {question for question in order if chance.random() < share}
    keys = [(float(n), Stop(question, FIRST if question in twice else WHOLE)) for n, question in enumerate(order)]
    # A second stop lies anywhere after a tenth of the way, and then in the order of its draw.
    gap, end = max(1.0, len(order) / 10), len(order)
    for place, question in enumerate(order):
        if question in twice:
            keys.append((chance.uniform(min(place + gap, end), end + gap), Stop(question, SECOND)))
    return [stop for _, stop in sorted(keys)]


class Dealer:
    """Dealing of the items of one project."""

    def __init__(self, store: ReviewStore) -> None:
        self.store = store

    def next_open(self, reviewer: Reviewer, after: int = 0) -> DealtItem | None:
        """Return the next undecided item after a place, then any before it; None if all are decided."""
        which = "reviewer = ? AND state = ? AND position > ? ORDER BY position LIMIT ?"
        ready = self.store.dealt_items(which, (reviewer.id, OPEN, after, AHEAD))
        if len(ready) < AHEAD and self.deal(reviewer):
            ready = self.store.dealt_items(which, (reviewer.id, OPEN, after, 1))
        if not ready and after:
            ready = self.store.dealt_items(which, (reviewer.id, OPEN, 0, 1))
        return ready[0] if ready else None

    def neighbour(self, reviewer: Reviewer, position: int, step: int) -> int | None:
        """Return the dealt place before (-1) or after (1) a place, decided or not; None at the ends."""
        side, end = (">", "min") if step > 0 else ("<", "max")
        query = f"SELECT {end}(position) FROM deal WHERE reviewer = ? AND position {side} ?"
        return self._column(query, reviewer.id, position)[0]

    def skipped(self, reviewer: Reviewer) -> list[int]:
        """Return the places that a reviewer has skipped."""
        query = "SELECT position FROM deal WHERE reviewer = ? AND state = ? ORDER BY position"
        return self._column(query, reviewer.id, LEFT)

    def done(self, reviewer: Reviewer) -> int:
        """Count the reviewer's decisions, repeats included: a count that stood still would reveal a repeat."""
        return self._column("SELECT count(*) FROM deal WHERE reviewer = ? AND state = ?", reviewer.id, DECIDED)[0]

    def waiting(self, reviewer: Reviewer) -> int | None:
        """Count what a reviewer may still decide: dealt or skipped, free, held for later, shared, and repeats.

        With what is done it adds up to the same number, unless others judge some of it meanwhile.
        """
        query = """SELECT (SELECT count(*) FROM deal WHERE reviewer = ?1 AND state <> ?2)
                        + (SELECT count(*) FROM hold WHERE reviewer IS NULL OR reviewer = ?1)
                        - (SELECT count(*) FROM deal WHERE reviewer = ?1 AND again = 0)"""
        dealt = self._column(query, reviewer.id, DECIDED)[0] + self.store.shared_count
        return dealt + (self._repeats_to_come(reviewer) if self.store.project.repeat else 0)

    def _repeats_to_come(self, reviewer: Reviewer) -> int:
        """Count the repeats at the second stops that are left for a reviewer, as far as they are known."""
        if not self.store.rows(_TOUR, (reviewer.id,)):
            with self.store.transaction() as connection:
                self._plan(connection, reviewer)
        first, second = (f"SELECT question FROM tour WHERE reviewer = ?1 AND part = ?{part}" for part in (2, 3))
        begun = f"""SELECT item.question, count(*) FROM deal JOIN item ON item.number = deal.item
                    WHERE deal.reviewer = ?1 AND deal.again = 0 AND item.question IN ({second})
                    AND item.question NOT IN ({first}) GROUP BY item.question"""
        fresh = f"""SELECT item.question, (count(*) + 1) / 2 FROM item LEFT JOIN hold ON hold.item = item.number
                    WHERE item.question IN ({first}) AND ?3 AND (hold.reviewer IS NULL OR hold.reviewer = ?1)
                    GROUP BY item.question"""
        halves = [row for query in (begun, fresh) for row in self.store.rows(query, (reviewer.id, FIRST, SECOND))]
        return sum(self._repeats(reviewer, question, half) for question, half in halves)

    def _repeats(self, reviewer: Reviewer, question: int, seen: int) -> int:
        """Draw how many of the items of a first stop come again at the second."""
        return int(seen / 2 + self._chance(reviewer, f"repeats {question}").random())

    def _chance(self, reviewer: Reviewer, what: object) -> random.Random:
        return random.Random(f"{self.store.project.seed}\t{reviewer.name}\t{what}")

    def _column(self, query: str, *values: int | str) -> list[int]:
        return [row[0] for row in self.store.rows(query, values)]

    def deal(self, reviewer: Reviewer) -> int:
        """Deal the next questions until enough items lie ready, and return how many items were dealt."""
        dealt = 0
        with self.store.transaction() as connection:
            self._plan(connection, reviewer)
            while dealt < AHEAD:
                place, question, part = connection.execute(_NEXT, (reviewer.id,)).fetchone() or (_END, 0, 0)
                if place == _END:
                    return dealt + self._deal_rest(connection, reviewer)
                dealt += self._deal_stop(connection, reviewer, place, Stop(question, part))
        return dealt

    def release(self, reviewer: Reviewer) -> int:
        """Release the items that a reviewer holds and has not seen, and return how many there were."""
        query = """SELECT item FROM hold WHERE reviewer = ?1 AND item NOT IN
                   (SELECT item FROM deal WHERE reviewer = ?1 AND state <> ?2)"""
        with self.store.transaction() as connection:
            pairs = [(reviewer.id, item) for item in self._column(query, reviewer.id, OPEN)]
            connection.executemany("UPDATE hold SET reviewer = NULL WHERE reviewer = ? AND item = ?", pairs)
            connection.executemany("DELETE FROM deal WHERE reviewer = ? AND item = ?", pairs)
        return len(pairs)

    def _plan(self, connection: Connection, reviewer: Reviewer) -> None:
        """Store a reviewer's tour, once."""
        if not self.store.rows(_TOUR, (reviewer.id,)):
            numbers = self._column("SELECT number FROM question ORDER BY number")
            stops = plan_stops(numbers, self.store.project.repeat, self._chance(reviewer, "way"))
            early = self._column("SELECT DISTINCT question FROM item WHERE drawn = ? ORDER BY question", AGREED)
            self._chance(reviewer, AGREED).shuffle(early)
            stops = [*(Stop(question, EARLY) for question in early), *stops]
            rows = [(reviewer.id, place, *stop) for place, stop in enumerate(stops)]
            connection.executemany("INSERT INTO tour VALUES (?, ?, ?, ?)", rows)

    def _deal_stop(self, connection: Connection, reviewer: Reviewer, place: int, stop: Stop) -> int:
        connection.execute("DELETE FROM tour WHERE reviewer = ? AND place = ?", (reviewer.id, place))
        # A reviewer at the last stop must not be given a new tour.
        connection.execute("INSERT OR IGNORE INTO tour VALUES (?, ?, 0, 0)", (reviewer.id, _END))
        chance = self._chance(reviewer, place)
        fresh = self._column(_CLAIMABLE, stop.question, reviewer.id, AGREED if stop.part == EARLY else "")
        chance.shuffle(fresh)
        if stop.part == FIRST:
            self._hold(connection, reviewer, fresh)
            fresh = fresh[: (len(fresh) + 1) // 2]
        repeats: list[int] = []
        if stop.part == SECOND:
            query = """SELECT deal.item FROM deal JOIN item ON item.number = deal.item
                       WHERE deal.reviewer = ? AND item.question = ? AND again = 0 ORDER BY deal.position"""
            seen = self._column(query, reviewer.id, stop.question)
            repeats = chance.sample(seen, self._repeats(reviewer, stop.question, len(seen)))
        dealt = [(item, 0) for item in fresh] + [(item, 1) for item in repeats]
        chance.shuffle(dealt)
        return self._put(connection, reviewer, dealt)

    def _deal_rest(self, connection: Connection, reviewer: Reviewer) -> int:
        """Deal the items of a question that are left at the end of the tour, released by reviewers who have left."""
        query = """SELECT question FROM hold WHERE reviewer IS NULL UNION ALL
                   SELECT question FROM item WHERE shared = 1 AND number NOT IN
                   (SELECT item FROM deal WHERE reviewer = ?) LIMIT 1"""
        for question in self._column(query, reviewer.id):
            items = self._column(_CLAIMABLE, question, reviewer.id, "")
            self._chance(reviewer, f"rest {question}").shuffle(items)
            return self._put(connection, reviewer, [(item, 0) for item in items])
        return 0

    def _put(self, connection: Connection, reviewer: Reviewer, dealt: Sequence[tuple[int, int]]) -> int:
        """Append items to those dealt to a reviewer, hold those that are not repeats, and return how many there are."""
        query = """SELECT max((SELECT coalesce(max(position), 0) FROM deal WHERE reviewer = ?1),
                              (SELECT coalesce(max(position), 0) FROM decision WHERE reviewer = ?1))"""
        last = self._column(query, reviewer.id)[0]
        self._hold(connection, reviewer, [item for item, again in dealt if not again])
        insert = """INSERT INTO deal SELECT ?1, ?2, number, ?3, shared, ?4, seal(?2, ?1, number, ?3, shared)
                    FROM item WHERE number = ?5"""
        rows = [(reviewer.id, place, again, OPEN, item) for place, (item, again) in enumerate(dealt, last + 1)]
        connection.executemany(insert, rows)
        return len(rows)

    @staticmethod
    def _hold(connection: Connection, reviewer: Reviewer, items: Sequence[int]) -> None:
        rows = [(reviewer.id, item) for item in items]
        connection.executemany("UPDATE hold SET reviewer = ? WHERE item = ? AND reviewer IS NULL", rows)


_CLAIMABLE = """
    SELECT number FROM item WHERE question = ?1 AND ?3 IN ('', drawn)
    AND (shared = 1 OR number IN
         (SELECT item FROM hold WHERE question = ?1 AND (reviewer IS NULL OR reviewer = ?2)))
    AND number NOT IN (SELECT deal.item FROM deal JOIN item ON item.number = deal.item
                       WHERE deal.reviewer = ?2 AND item.question = ?1)
    ORDER BY number
"""
"""The items of a question that can be dealt to a reviewer for the first time now."""
_TOUR = "SELECT 1 FROM tour WHERE reviewer = ? LIMIT 1"
_NEXT = "SELECT place, question, part FROM tour WHERE reviewer = ? ORDER BY place LIMIT 1"
_END = 1 << 40  # a place beyond every tour, which tells a reviewer at the end from one who has not begun

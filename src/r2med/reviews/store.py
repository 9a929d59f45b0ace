"""The store of a review: one SQLite file a project, to which decisions are only ever appended.

The contract for callers:

- `reviews/NAME.sqlite` in `R2MED_HOME` is one project, whole: questions, passages, people, every decision. Nothing
  outside of it is needed to judge, to measure agreement or to export.
- An **item** is a passage to be judged for a question. It is known by its number. `ReviewItem.drawn` says how it was
  drawn; only `random` items may feed an estimate, and `ReviewProject.frames["random"]` says out of how many.
- A **reviewer** is a person, a model or an imported label set (`kind`); all of them make the same rows. People are
  dealt items by position (`r2med.reviews.batches`); models and imports write with `record_all`, without positions.
- A **decision** is an appended row and is never changed or removed. Undoing appends a row with verdict `undone` that
  names the row it takes back. What holds is `standing()`: the last row that was not taken back, by reviewer, item and
  `again` (a second look at the same item, which is for self-agreement and for nothing else). `labels()` is the short
  form: grades by reviewer's name and item, first looks only.
- A **ruling** is an adjudicator's, with a cause; `rulings()` gives the one that holds for each item.
- A call that returns has been written and synced: whatever happens to the process or the machine, the row is there. A
  call that raises has written nothing.
- Order is by id, never by time: a clock that jumps changes no outcome.
- A row whose seal is broken is left out with a warning (decisions) or refused (everything else).
- One store may be used by many threads, one file by many processes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import orjson

from r2med.errors import R2medError, suggest
from r2med.reviews.rows import (
    ANSWER,
    FORMAT,
    GRADED,
    PERSON,
    REVIEWER,
    SKIPPED,
    SOURCES,
    UNDONE,
    ChangedElsewhere,
    DealtItem,
    Decision,
    DraftDecision,
    Invitation,
    ProofSpan,
    Revealed,
    Reviewer,
    ReviewItem,
    ReviewProject,
    ReviewQuestion,
    Ruling,
    now,
    review_names,
    review_path,
    sealed,
    standing_rows,
    write_review,
)
from r2med.reviews.scale import sentences
from r2med.store.sqlite import DamagedError, Database, Value, seal, warn

OPEN, DECIDED, LEFT = 1, 0, 2
"""How a dealt item stands: not decided, decided, skipped."""
_DECISION = (
    "id, reviewer, item, position, again, verdict, grade, span_start, span_end, note, sentence, seconds, revealed,"
    " created, undoes, token"
)
_RULING = "id, reviewer, item, grade, cause, sentence, note, seconds, created, undoes, token, revealed"


def create_review(
    project: ReviewProject, questions: Sequence[ReviewQuestion], items: Sequence[ReviewItem]
) -> ReviewStore:
    """Create a project, as a whole or not at all."""
    return ReviewStore(write_review(project, questions, items))


def secret_hash(secret: str) -> bytes:
    """Return the stored hash of a secret: with 192 random bits in it, a slow hash is not needed."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


class ReviewStore:
    """One project; see the contract at the head of this module."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise R2medError(f"no review {path.stem}{suggest(path.stem, review_names())}")
        self.path = path
        self._file = Database(path, FORMAT, shared=True, durable=True)
        self._lock = threading.RLock()
        self._sound_reveals = 0
        """The last row of `reveal` whose seal was compared."""
        rows = self._file.rows("SELECT value, seal FROM project")
        if not rows or seal(rows[0][0]) != rows[0][1]:
            raise DamagedError(f"{path}: the head of the review is damaged; restore the file from a copy")
        self.project = ReviewProject.from_dict(orjson.loads(rows[0][0]))

    @classmethod
    def open(cls, name: str) -> ReviewStore:
        """Open a project by its name."""
        return cls(review_path(name))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> ReviewStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        """Return all rows of a query; safe from any thread."""
        with self._lock:
            return self._file.rows(query, values)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction whose writes are on the disk at its end, all or none, one thread at a time."""
        with self._lock, self._file.transaction() as connection:
            yield connection

    # ------------------------------------------------------------------------------------------ what is reviewed

    def question(self, number: int) -> ReviewQuestion:
        """Return a question by its number."""
        return next(self._questions("WHERE number = ?", (number,)))

    def questions(self) -> list[ReviewQuestion]:
        """Return all questions, in order."""
        return list(self._questions("ORDER BY number"))

    def _questions(self, which: str, values: Sequence[Value] = ()) -> Iterator[ReviewQuestion]:
        columns = "number, task, query, text, answer, reasoning, seal"
        for row in self.rows(f"SELECT {columns} FROM question {which}", values):
            yield ReviewQuestion(*self._sound(row, "question"))

    def item(self, number: int) -> ReviewItem:
        """Return an item by its number."""
        return next(self._items("WHERE number = ?", (number,)))

    def items(self) -> list[ReviewItem]:
        """Return all items with their texts, in order."""
        return list(self._items("ORDER BY number"))

    @cached_property
    def item_count(self) -> int:
        """Return the number of items."""
        return int(self.rows("SELECT count(*) FROM item")[0][0])

    @cached_property
    def shared_count(self) -> int:
        """Return the number of items that every reviewer judges."""
        return self.item_count - int(self.rows("SELECT count(*) FROM hold")[0][0])

    def _items(self, which: str, values: Sequence[Value] = ()) -> Iterator[ReviewItem]:
        columns = "number, question, document, text, drawn, shared, gold, facts, seal"
        for row in self.rows(f"SELECT {columns} FROM item {which}", values):
            number, question, document, text, drawn, shared, gold, facts = self._sound(row, "item")
            place = (number, question, document, text, drawn)
            yield ReviewItem(*place, bool(shared), gold, orjson.loads(facts))

    def _sound(self, row: Sequence[Any], what: str) -> Sequence[Any]:
        if seal(*row[:-1]) != row[-1]:
            raise DamagedError(f"{self.path}: {what} {row[0]} is damaged; restore the file from a copy")
        return row[:-1]

    def state(self) -> int:
        """Return a number that grows with every decision, ruling and reviewer."""
        tables = ("decision", "ruling", "reviewer")
        return int(
            self.rows(f"SELECT {' + '.join(f'(SELECT coalesce(max(id), 0) FROM {each})' for each in tables)}")[0][0]
        )

    # ------------------------------------------------------------------------------------------ who reviews

    def reviewers(self) -> list[Reviewer]:
        """Return all reviewers, in the order in which they were added."""
        rows = self.rows("SELECT id, name, kind, role, settings, seal FROM reviewer ORDER BY id")
        sound = (self._sound(row, "reviewer") for row in rows)
        return [
            Reviewer(number, name, kind, role, orjson.loads(settings)) for number, name, kind, role, settings in sound
        ]

    def reviewer(self, name: str) -> Reviewer:
        """Return a reviewer by name."""
        known = {each.name: each for each in self.reviewers()}
        if name not in known:
            raise R2medError(f"the review {self.project.name} has no reviewer {name!r}{suggest(name, known)}")
        return known[name]

    def add_reviewer(
        self, name: str, kind: str = PERSON, role: str = REVIEWER, settings: Mapping[str, Any] | None = None
    ) -> Reviewer:
        """Add a reviewer, unless there is one of that name, and return the reviewer."""
        name = " ".join(name.split())
        if not 0 < len(name) <= 100 or not name.isprintable():
            raise R2medError("a reviewer needs a name of at most 100 characters")
        with self.transaction() as connection:
            known = {each.name: each for each in self.reviewers()}
            if name in known:
                if (known[name].kind, known[name].role) != (kind, role):
                    raise R2medError(f"{name} is a {known[name].kind} ({known[name].role}) here; choose another name")
                return known[name]
            last = connection.execute("SELECT coalesce(max(id), 0) FROM reviewer").fetchone()[0]
            row = (last + 1, name, kind, role, orjson.dumps(dict(settings or {})))
            connection.execute("INSERT INTO reviewer VALUES (?, ?, ?, ?, ?, ?)", sealed(*row))
        return self.reviewer(name)

    def add_invitation(self, reviewer: int, secret: str) -> None:
        """Add a secret that opens the desk for a reviewer."""
        with self.transaction() as connection:
            last = connection.execute("SELECT coalesce(max(id), 0) FROM invitation").fetchone()[0]
            row = sealed(last + 1, reviewer, secret_hash(secret), now())
            connection.execute("INSERT INTO invitation VALUES (?, ?, ?, ?, ?)", row)

    def invitations(self) -> list[Invitation]:
        """Return all links that were created."""
        withdrawn = self._withdrawals()
        rows = self.rows("SELECT id, reviewer, hash, created, seal FROM invitation ORDER BY id")
        sound = (self._sound(row, "invitation") for row in rows)
        return [
            Invitation(number, reviewer, created, withdrawn.get(number, "")) for number, reviewer, _, created in sound
        ]

    def _withdrawals(self) -> dict[int, str]:
        """Return when invitations were withdrawn. A damaged row is an error: its invitation is unknown."""
        rows = self.rows("SELECT invitation, created, seal FROM withdrawal")
        sound = [self._sound(row, "withdrawal") for row in rows]
        return {row[0]: row[1] for row in sound}

    def admitted(self, secret: str) -> Reviewer | None:
        """Return the reviewer of a secret; None if the secret is unknown or withdrawn."""
        query = "SELECT id, reviewer, hash, created, seal FROM invitation WHERE hash = ?"
        rows = self.rows(query, (secret_hash(secret),))
        if not rows or rows[0][0] in self._withdrawals():
            return None
        known = self._sound(rows[0], "invitation")[1]
        return next((each for each in self.reviewers() if each.id == known), None)

    def withdraw(self, reviewer: int) -> int:
        """Withdraw all links of a reviewer and return how many there were."""
        held = [each.id for each in self.invitations() if each.reviewer == reviewer and not each.withdrawn]
        with self.transaction() as connection:
            rows = [sealed(each, now()) for each in held]
            connection.executemany("INSERT OR IGNORE INTO withdrawal VALUES (?, ?, ?)", rows)
        return len(held)

    # ------------------------------------------------------------------------------------------ what they say

    def dealt(self, reviewer: int, position: int) -> DealtItem | None:
        """Return the item at a place of a reviewer's order; None if there is none."""
        if position >= 1 << 63:  # more than SQLite counts to
            return None
        return next(iter(self.dealt_items("reviewer = ? AND position = ?", (reviewer, position))), None)

    def dealt_items(self, which: str, values: Sequence[Value]) -> list[DealtItem]:
        """Return the dealt items for which a condition of SQL holds."""
        rows = self.rows(f"SELECT position, reviewer, item, again, shared, seal FROM deal WHERE {which}", values)
        sound = (self._sound(row, "dealt item") for row in rows)
        return [DealtItem(position, item, bool(again)) for position, _, item, again, _ in sound]

    def record(
        self, reviewer: int, position: int, draft: DraftDecision, token: str, seen: int | None = None
    ) -> Decision:
        """Append a reviewer's decision, and return it once it is on the disk.

        A token that was used before is the same form sent twice: nothing is written, and the first row comes back.
        `seen` is the decision that stood there when the page was made (0 for none). Where another one stands now, or
        the form says something else the second time, `ChangedElsewhere` is raised.
        """
        with self.transaction() as connection:
            before = self._with_token("decision", reviewer, token)
            if before:
                return _as_sent(self._decision(before[0]), draft)
            place = self.dealt(reviewer, position)
            if place is None:
                raise R2medError(f"there is no item {position} in this order")
            draft.check(self.project.scale, len(self.item(place.item).text), len(sentences(self.project.guideline)))
            held = self.standing_at(reviewer, position)
            if seen is not None and seen != (held.id if held else 0):
                raise ChangedElsewhere(_MEANWHILE)
            revealed = self.revealed(reviewer, position)
            identifier = _append(connection, (reviewer, place.item, position, int(place.again)), draft, revealed, token)
            _mark(connection, reviewer, position, LEFT if draft.verdict == SKIPPED else DECIDED)
        return self.decision(identifier)

    def record_all(self, reviewer: int, drafts: Iterable[tuple[int, DraftDecision]]) -> int:
        """Append the decisions of a model or an import on items, all or none, and return how many there were.

        A decision that says what stands already is not written again, so that the same command may be given twice.
        """
        count = 0
        held = {row.item: row for row in self.standing() if row.reviewer == reviewer}
        with self.transaction() as connection:
            first = connection.execute("SELECT coalesce(max(id), 0) FROM decision").fetchone()[0]
            for item, draft in drafts:
                draft.check(self.project.scale, 1 << 40, 1 << 40)
                known = held.get(item)
                if known and _content(known) == _content(draft):
                    continue
                count += 1
                _append(connection, (reviewer, item, None, 0), draft, draft.revealed, f"{first}-{count}")
        return count

    def undo(self, reviewer: int, token: str) -> Decision | None:
        """Undo a reviewer's last standing decision by an appended row; None if there is none."""
        query = """SELECT max(id) FROM decision d WHERE reviewer = ? AND verdict <> ?
                   AND NOT EXISTS (SELECT 1 FROM decision u WHERE u.undoes = d.id)"""
        with self.transaction() as connection:
            before = self._with_token("decision", reviewer, token)
            if before:
                return self._decision(before[0])
            last = self.rows(query, (reviewer, UNDONE))[0][0]
            if last is None:
                return None
            row = self.decision(last)
            place = (reviewer, row.item, row.position, int(row.again))
            identifier = _append(connection, place, DraftDecision(UNDONE), (), token, undoes=last)
            held = self.standing_at(reviewer, row.position or 0)
            state = OPEN if held is None else LEFT if held.verdict == SKIPPED else DECIDED
            _mark(connection, reviewer, row.position or 0, state)
        return self.decision(identifier)

    def _with_token(self, table: str, reviewer: int, token: str) -> list[Any]:
        columns = _DECISION if table == "decision" else _RULING
        return self.rows(f"SELECT {columns}, seal FROM {table} WHERE reviewer = ? AND token = ?", (reviewer, token))

    def decision(self, identifier: int) -> Decision:
        """Return a decision by its id."""
        return self._decision(self.rows(f"SELECT {_DECISION}, seal FROM decision WHERE id = ?", (identifier,))[0])

    def kept(self, reviewer: int, identifier: int) -> Decision | None:
        """Return a reviewer's decision by its id; None if it is another reviewer's or does not exist."""
        query = f"SELECT {_DECISION}, seal FROM decision WHERE id = ? AND reviewer = ?"
        return next(map(self._decision, self.rows(query, (identifier, reviewer))), None)

    def _decision(self, row: Sequence[Any]) -> Decision:
        return _read_decision(self._sound(row, "decision"))

    def decisions(self, after: int = 0) -> list[Decision]:
        """Return all decisions, undone ones included, or those after an id; damaged rows are skipped with a warning."""
        rows = self.rows(f"SELECT {_DECISION}, seal FROM decision WHERE id > ? ORDER BY id", (after,))
        sound = [row for row in rows if seal(*row[:-1]) == row[-1]]
        if len(sound) < len(rows):
            warn(
                f"{self.path}: {len(rows) - len(sound)} decisions are damaged and left out; restore a copy of the file"
            )
        return [_read_decision(row[:-1]) for row in sound]

    def standing(self) -> list[Decision]:
        """Return the standing decisions, second looks included."""
        return list(standing_rows(self.decisions()).values())

    def standing_at(self, reviewer: int, position: int) -> Decision | None:
        """Return the standing decision at a place of a reviewer's order."""
        query = f"""SELECT {_DECISION}, seal FROM decision d WHERE reviewer = ? AND position = ? AND verdict <> ?
                    AND NOT EXISTS (SELECT 1 FROM decision u WHERE u.undoes = d.id) ORDER BY id DESC LIMIT 1"""
        rows = self.rows(query, (reviewer, position, UNDONE))
        return self._decision(rows[0]) if rows else None

    def last_at(self, reviewer: int, position: int) -> Decision | None:
        """Return the last decision at a place of a reviewer's order, undone or not."""
        query = f"""SELECT {_DECISION}, seal FROM decision WHERE reviewer = ? AND position = ? AND verdict <> ?
                    ORDER BY id DESC LIMIT 1"""
        rows = self.rows(query, (reviewer, position, UNDONE))
        return self._decision(rows[0]) if rows else None

    def labels(self) -> dict[str, dict[int, int]]:
        """Return standing grades by reviewer's name and item, first looks only."""
        names = {each.id: each.name for each in self.reviewers()}
        found: dict[str, dict[int, int]] = {name: {} for name in names.values()}
        for row in self.standing():
            if row.verdict == GRADED and row.grade is not None and not row.again:
                found[names[row.reviewer]][row.item] = row.grade
        return {name: grades for name, grades in found.items() if grades}

    def reveal(self, reviewer: int, position: int, what: str) -> None:
        """Record a revelation to a reviewer, before it is shown; an adjudicator's places are the items."""
        with self.transaction() as connection:
            last = connection.execute("SELECT coalesce(max(id), 0) FROM reveal").fetchone()[0]
            row = sealed(last + 1, reviewer, position, what, now())
            connection.execute("INSERT INTO reveal VALUES (?, ?, ?, ?, ?, ?)", row)

    def revealed(self, reviewer: int, position: int) -> tuple[Revealed, ...]:
        """Return what was revealed to a reviewer at a place.

        An answer that is revealed once is known from then on, at every passage of the question.
        """
        place = self.dealt(reviewer, position)
        if place is None:
            return ()
        places = """SELECT deal.position FROM deal JOIN item ON item.number = deal.item
                    WHERE deal.reviewer = ?1 AND item.question = (SELECT question FROM item WHERE number = ?3)"""
        return self._revealed(reviewer, position, place.item, places)

    def revealed_ruling(self, reviewer: int, item: int) -> tuple[Revealed, ...]:
        """Return what was revealed to an adjudicator of an item's question."""
        places = "SELECT number FROM item WHERE question = (SELECT question FROM item WHERE number = ?3)"
        return self._revealed(reviewer, item, item, places)

    def _revealed(self, reviewer: int, position: int, item: int, places: str) -> tuple[Revealed, ...]:
        query = f"""SELECT what, min(created) FROM reveal
                    WHERE reviewer = ?1 AND (position = ?2 OR what <> ?4 AND position IN ({places}))
                    GROUP BY what ORDER BY min(id)"""
        self._check_reveals()
        seen = [Revealed(*row) for row in self.rows(query, (reviewer, position, item, SOURCES))]
        if self.project.open_answer and self.question(self.item(item).question).answer:
            seen = [Revealed(ANSWER, self.project.created), *(each for each in seen if each.what != ANSWER)]
        return tuple(seen)

    def _check_reveals(self) -> None:
        """Check the seals of new revelations: a damaged row could count for another place."""
        columns = "id, reviewer, position, what, created, seal"
        for row in self.rows(f"SELECT {columns} FROM reveal WHERE id > ? ORDER BY id", (self._sound_reveals,)):
            self._sound_reveals = self._sound(row, "revealed text")[0]

    # ------------------------------------------------------------------------------------------ adjudication

    def rule(self, ruling: Ruling, token: str) -> Ruling:
        """Append an adjudicator's ruling (its id and time are given here); the same form sent twice is written once."""
        if ruling.grade is not None:
            self.project.scale.grade(ruling.grade)
        with self.transaction() as connection:
            if not self._with_token("ruling", ruling.reviewer, token):
                last = connection.execute("SELECT coalesce(max(id), 0) FROM ruling").fetchone()[0]
                head = (last + 1, ruling.reviewer, ruling.item, ruling.grade, ruling.cause, ruling.sentence)
                seen = orjson.dumps([list(each) for each in self.revealed_ruling(ruling.reviewer, ruling.item)])
                row = sealed(*head, ruling.note, ruling.seconds, now(), ruling.undoes, token, seen)
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO ruling ({_RULING}, seal) VALUES ({marks})", row)
        return self._ruling(self._with_token("ruling", ruling.reviewer, token)[0])

    def _ruling(self, row: Sequence[Any]) -> Ruling:
        *head, _, seen = self._sound(row, "ruling")
        return replace(Ruling(*head), revealed=tuple(Revealed(*each) for each in orjson.loads(seen)))

    def all_rulings(self) -> list[Ruling]:
        """Return all rulings, undone or not."""
        return [self._ruling(row) for row in self.rows(f"SELECT {_RULING}, seal FROM ruling ORDER BY id")]

    def rulings(self) -> dict[int, Ruling]:
        """Return the standing ruling of each item: the last that was not undone."""
        rows = self.all_rulings()
        undone = {row.undoes for row in rows if row.undoes is not None}
        return {row.item: row for row in rows if row.grade is not None and row.id not in undone}


_MEANWHILE = "this passage was decided meanwhile, in another tab or on another device; look at it again"


def _as_sent(row: Decision, draft: DraftDecision) -> Decision:
    """Return a row that an earlier submission of a form made; raise an error if the form has changed."""
    if (row.verdict, row.grade, row.span, row.note) != (draft.verdict, draft.grade, draft.span, draft.note):
        raise ChangedElsewhere(_MEANWHILE)
    return row


def _content(row: Decision | DraftDecision) -> tuple[object, ...]:
    """Return the content of a model's or an import's decision, for comparison."""
    return row.verdict, row.grade, row.note, [each.what for each in row.revealed]


def _append(
    connection: Connection,
    place: tuple[int, int, int | None, int],
    draft: DraftDecision,
    revealed: Sequence[Revealed],
    token: str,
    undoes: int | None = None,
) -> int:
    """Append a row of decisions and return its id."""
    identifier: int = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM decision").fetchone()[0]
    span = draft.span or (None, None)
    seen = orjson.dumps([list(each) for each in revealed])
    seconds = None if draft.seconds is None else float(draft.seconds)
    said = (draft.verdict, draft.grade, *span, draft.note, draft.sentence, seconds, seen, now(), undoes, token)
    row = sealed(identifier, *place, *said)
    connection.execute(f"INSERT INTO decision VALUES ({', '.join('?' * len(row))})", row)
    return identifier


def _mark(connection: Connection, reviewer: int, position: int, state: int) -> None:
    connection.execute("UPDATE deal SET state = ? WHERE reviewer = ? AND position = ?", (state, reviewer, position))


def _read_decision(row: Sequence[Any]) -> Decision:
    identifier, reviewer, item, position, again, verdict, grade, start, end, note, sentence, seconds, *rest = row
    span = None if start is None else ProofSpan(start, end)
    revealed = tuple(Revealed(*each) for each in orjson.loads(rest[0]))
    head = (identifier, reviewer, item, position, bool(again), verdict, grade, span, note, sentence, seconds)
    return Decision(*head, revealed, rest[1], rest[2])

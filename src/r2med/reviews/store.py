"""The store of a review: one SQLite file a project, to which decisions are only ever appended.

- `reviews/NAME.sqlite` in `R2MED_HOME` is one project, whole: nothing outside of it is needed.
- An **item** is a passage to be judged for a question, known by its number.
- A **reviewer** is a person, a model or an imported label set (`kind`); all of them make the same rows. People are
  dealt items by position (`r2med.reviews.batches`); models and imports write with `record_all`, without positions.
- A **decision** is an appended row and is never changed or removed. Undoing appends a row with verdict `undone` that
  names the row it takes back. What holds is `standing()`: the last row that was not taken back, by reviewer, item and
  `again` (a second look at the same item, which is for self-agreement and for nothing else).
- A **ruling** is an adjudicator's, with a cause; `rulings()` gives the one that holds for each item.
- A call that returns has been written and synced, whatever happens next; one that raises has written nothing.
- Order is by id, never by time: a clock that jumps changes no outcome.
- A row whose seal is broken is left out with a warning (decisions) or refused (everything else).
- One store may be used by many threads, one file by many processes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

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
    AnyRow,
    AspectCoverage,
    DealtItem,
    Decision,
    DecisionConflict,
    DraftDecision,
    Invitation,
    Revealed,
    Reviewer,
    ReviewItem,
    ReviewProject,
    ReviewQuestion,
    Ruling,
    now,
    review_names,
    review_path,
)
from r2med.reviews.scale import sentences
from r2med.store.files import draft_file
from r2med.store.sqlite import DamagedError, Database, Value, seal, warn
from r2med.store.typed import json_bytes

Row = TypeVar("Row", bound=AnyRow)
OPEN, DECIDED, LEFT = 1, 0, 2  # states of a dealt item: not decided, decided, skipped
_MEANWHILE = "this passage was decided meanwhile, in another tab or on another device; look at it again"


def create_review(
    project: ReviewProject, questions: Sequence[ReviewQuestion], items: Sequence[ReviewItem]
) -> ReviewStore:
    """Create a project, as a whole or not at all."""
    path = review_path(project.name)
    if path.exists():
        raise R2medError(f"there is a review {project.name} already; choose another name")
    with draft_file(path, parents=True) as draft:
        # What is in it may be about patients, and every name.
        draft.chmod(0o600)
        database = Database(draft, FORMAT)
        with database.transaction() as connection:
            value = json_bytes(project)
            connection.execute("INSERT INTO project VALUES (1, ?, ?)", (value, seal(value)))
            rows: list[AnyRow] = [*questions, *items]
            for row in rows:
                _insert(connection, row)
            private = ((item.number, item.question) for item in items if not item.shared)
            connection.executemany("INSERT INTO hold VALUES (?, ?, NULL)", private)
        # One file takes the name: what the log holds is moved into it first.
        database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        database.rows("PRAGMA journal_mode = DELETE")
        database.close()
    return ReviewStore(path)


class ReviewStore:
    """One project, under the contract at the head of this module."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise R2medError(f"no review {path.stem}{suggest(path.stem, review_names())}")
        self.path = path
        self._file = Database(path, FORMAT, shared=True, durable=True)
        self._lock = threading.RLock()
        self._standing: tuple[int, list[Decision]] = (-1, [])  # as of a state
        self._checked_reveals = 0  # the last row of `reveal` whose seal was compared
        rows = self._file.rows("SELECT value, seal FROM project")
        if not rows or seal(rows[0][0]) != rows[0][1]:
            raise DamagedError(f"{path}: the head of the review is damaged; restore the file from a copy")
        self.project = msgspec.json.decode(rows[0][0], type=ReviewProject)

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

    def _read(self, kind: type[Row], condition: str, values: Sequence[Value] = ()) -> list[Row]:
        """Return the rows of a table for which a condition of SQL holds; a damaged one is an error."""
        return [_decode(kind, self._check(row, kind.table)) for row in self._select(kind, condition, values)]

    def _select(self, kind: type[Row], condition: str, values: Sequence[Value] = ()) -> list[Any]:
        return self.rows(f"SELECT {', '.join(kind.__struct_fields__)}, seal FROM {kind.table} {condition}", values)

    def _check(self, row: Sequence[Any], what: str) -> Sequence[Any]:
        """Return the values of a row without its seal; a broken seal is an error."""
        if seal(*row[:-1]) != row[-1]:
            raise DamagedError(f"{self.path}: {what} {row[0]} is damaged; restore the file from a copy")
        return row[:-1]

    def question(self, number: int) -> ReviewQuestion:
        """Return a question by its number."""
        return self._read(ReviewQuestion, "WHERE number = ?", (number,))[0]

    def questions(self) -> list[ReviewQuestion]:
        """Return all questions, in order."""
        return self._read(ReviewQuestion, "ORDER BY number")

    def item(self, number: int) -> ReviewItem:
        """Return an item by its number."""
        return self._read(ReviewItem, "WHERE number = ?", (number,))[0]

    def items(self) -> list[ReviewItem]:
        """Return all items with their texts, in order."""
        return self._read(ReviewItem, "ORDER BY number")

    @cached_property
    def item_count(self) -> int:
        """Return the number of items."""
        return int(self.rows("SELECT count(*) FROM item")[0][0])

    @cached_property
    def shared_count(self) -> int:
        """Return the number of items that every reviewer judges."""
        return self.item_count - int(self.rows("SELECT count(*) FROM hold")[0][0])

    def state(self) -> int:
        """Return a number that grows with every decision, ruling and reviewer."""
        last = (f"(SELECT coalesce(max(id), 0) FROM {table})" for table in ("decision", "ruling", "reviewer"))
        return int(self.rows(f"SELECT {' + '.join(last)}")[0][0])

    def reviewers(self) -> list[Reviewer]:
        """Return all reviewers, in the order in which they were added."""
        return self._read(Reviewer, "ORDER BY id")

    def reviewer(self, name: str) -> Reviewer:
        """Return a reviewer by name."""
        by_name = {reviewer.name: reviewer for reviewer in self.reviewers()}
        if name in by_name:
            return by_name[name]
        raise R2medError(f"the review {self.project.name} has no reviewer {name!r}{suggest(name, by_name)}")

    def add_reviewer(
        self, name: str, kind: str = PERSON, role: str = REVIEWER, settings: Mapping[str, Any] | None = None
    ) -> Reviewer:
        """Add a reviewer, unless there is one of that name, and return the reviewer."""
        name = " ".join(name.split())
        if not 0 < len(name) <= 100 or not name.isprintable():
            raise R2medError("a reviewer needs a name of at most 100 characters")
        with self.transaction() as connection:
            present = next((reviewer for reviewer in self.reviewers() if reviewer.name == name), None)
            if present is None:
                present = Reviewer(_next_id(connection, "reviewer"), name, kind, role, dict(settings or {}))
                _insert(connection, present)
            elif (present.kind, present.role) != (kind, role):
                raise R2medError(f"{name} is a {present.kind} ({present.role}) here; choose another name")
        return present

    def add_invitation(self, reviewer: int, secret: str) -> None:
        """Add a secret that opens the desk for a reviewer."""
        with self.transaction() as connection:
            _insert(connection, Invitation(_next_id(connection, "invitation"), reviewer, _hash_secret(secret), now()))

    def invitations(self, condition: str = "ORDER BY id", values: Sequence[Value] = ()) -> list[Invitation]:
        """Return the links that are valid, of those for which a condition of SQL holds."""
        # A damaged withdrawal is an error: its invitation is unknown.
        rows = self.rows("SELECT invitation, created, seal FROM withdrawal")
        withdrawn = {self._check(row, "withdrawal")[0] for row in rows}
        return [row for row in self._read(Invitation, condition, values) if row.id not in withdrawn]

    def admitted(self, secret: str) -> Reviewer | None:
        """Return the reviewer of a secret; None if the secret is unknown or withdrawn."""
        invited = {row.reviewer for row in self.invitations("WHERE hash = ?", (_hash_secret(secret),))}
        return next((reviewer for reviewer in self.reviewers() if reviewer.id in invited), None)

    def withdraw(self, reviewer: int) -> int:
        """Withdraw all links of a reviewer and return how many there were."""
        rows = [_sealed(row.id, now()) for row in self.invitations() if row.reviewer == reviewer]
        with self.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO withdrawal VALUES (?, ?, ?)", rows)
        return len(rows)

    def dealt(self, reviewer: int, position: int) -> DealtItem | None:
        """Return the item at a place of a reviewer's order; None if there is none."""
        if position >= 1 << 63:  # more than SQLite counts to
            return None
        return next(iter(self.dealt_items("reviewer = ? AND position = ?", (reviewer, position))), None)

    def dealt_items(self, condition: str, values: Sequence[Value]) -> list[DealtItem]:
        """Return the dealt items for which a condition of SQL holds."""
        rows = self.rows(f"SELECT position, reviewer, item, again, shared, seal FROM deal WHERE {condition}", values)
        checked = (self._check(row, "dealt item") for row in rows)
        return [DealtItem(position, item, bool(again)) for position, _, item, again, _ in checked]

    def record(
        self, reviewer: int, position: int, draft: DraftDecision, token: str, seen: int | None = None
    ) -> Decision:
        """Append a reviewer's decision, and return it once it is on the disk.

        A token that was used before is the same form sent twice: nothing is written, and the first row comes back.
        `seen` is the decision that stood there when the page was made (0 for none). If another one stands now, or
        the form says something else the second time, `DecisionConflict` is raised.
        """
        with self.transaction() as connection:
            for sent in self._with_token(Decision, reviewer, token):
                if any(getattr(sent, name) != getattr(draft, name) for name in ("verdict", "grade", "span", "note")):
                    raise DecisionConflict(_MEANWHILE)
                return sent
            place = self.dealt(reviewer, position)
            if place is None:
                raise R2medError(f"there is no item {position} in this order")
            draft.check(self.project.scale, len(self.item(place.item).text), len(sentences(self.project.guideline)))
            standing = self.standing_at(reviewer, position)
            if seen is not None and seen != (standing.id if standing else 0):
                raise DecisionConflict(_MEANWHILE)
            draft = replace(draft, revealed=self.revealed(reviewer, position))
            row = _append(connection, reviewer, (place.item, position, place.again), draft, token)
            _mark(connection, reviewer, position, row)
        return row

    def record_all(self, reviewer: int, drafts: Iterable[tuple[int, DraftDecision]]) -> int:
        """Append the decisions of a model or an import on items, all or none, and return how many there were.

        A decision that says what stands already is not written again, so that the same command may be given twice.
        """
        count = 0
        covered = self.coverage()
        mine = (row for row in self.standing() if row.reviewer == reviewer)
        standing = {row.item: (*_content(row), covered.get(row.id)) for row in mine}
        with self.transaction() as connection:
            first = _next_id(connection, "decision")
            for item, draft in drafts:
                draft.check(self.project.scale, 1 << 40, 1 << 40)
                if standing.get(item) != (*_content(draft), draft.aspects):
                    count += 1
                    _append(connection, reviewer, (item, None, False), draft, f"{first}-{count}")
        return count

    def undo(self, reviewer: int, token: str) -> Decision | None:
        """Undo a reviewer's last standing decision by an appended row; None if there is none."""
        with self.transaction() as connection:
            for sent in self._with_token(Decision, reviewer, token):
                return sent
            condition = f"WHERE reviewer = ?1 AND verdict <> ?2 AND {_NOT_UNDONE} ORDER BY id DESC LIMIT 1"
            for last in self._read(Decision, condition, (reviewer, UNDONE)):
                where, position = (last.item, last.position, last.again), last.position or 0
                row = _append(connection, reviewer, where, DraftDecision(UNDONE), token, undoes=last.id)
                _mark(connection, reviewer, position, self.standing_at(reviewer, position))
                return row
        return None

    def _with_token(self, kind: type[Row], reviewer: int, token: str) -> list[Row]:
        """Return the row that a form with this token made, if any."""
        return self._read(kind, "WHERE reviewer = ? AND token = ?", (reviewer, token))

    def decision_of(self, reviewer: int, identifier: int) -> Decision | None:
        """Return a reviewer's decision by its id; None if it is another reviewer's or does not exist."""
        return next(iter(self._read(Decision, "WHERE id = ? AND reviewer = ?", (identifier, reviewer))), None)

    def decisions(self) -> list[Decision]:
        """Return all decisions, undone ones included; damaged rows are skipped with a warning."""
        rows = self._select(Decision, "ORDER BY id")
        sound = [row for row in rows if seal(*row[:-1]) == row[-1]]
        if damaged := len(rows) - len(sound):
            warn(f"{self.path}: {damaged} decisions are damaged and left out; restore a copy of the file")
        return [_decode(Decision, row[:-1]) for row in sound]

    def standing(self) -> list[Decision]:
        """Return the standing decisions, second looks included; they are read again if something was appended."""
        if (state := self.state()) != self._standing[0]:
            rows = self.decisions()
            undone = {row.undoes for row in rows}
            valid = (row for row in rows if row.verdict != UNDONE and row.id not in undone)
            self._standing = state, list({(row.reviewer, row.item, row.again): row for row in valid}.values())
        return self._standing[1]

    def aspects_of(self, question: ReviewQuestion) -> Mapping[str, float]:
        """Return the aspects of a question with their weights; none if reviewers are not asked for them."""
        return self.project.aspects.get(question.task, {}).get(question.query, {})

    def coverage(self) -> dict[int, tuple[str, ...]]:
        """Return the aspects that passages cover by decision, of those that say it."""
        return {row.decision: row.aspects for row in self._read(AspectCoverage, "")} if self.project.aspects else {}

    def standing_at(self, reviewer: int, position: int, *, undone: bool = False) -> Decision | None:
        """Return the standing decision at a place of a reviewer's order; with `undone`, the last one, undone or not."""
        which = "TRUE" if undone else _NOT_UNDONE
        condition = f"WHERE reviewer = ? AND position = ? AND verdict <> ? AND {which} ORDER BY id DESC LIMIT 1"
        return next(iter(self._read(Decision, condition, (reviewer, position, UNDONE))), None)

    def labels(self) -> dict[str, dict[int, int]]:
        """Return standing grades by reviewer's name and item, first looks only."""
        names = {reviewer.id: reviewer.name for reviewer in self.reviewers()}
        grades: dict[str, dict[int, int]] = {name: {} for name in names.values()}
        for row in self.standing():
            if row.verdict == GRADED and row.grade is not None and not row.again:
                grades[names[row.reviewer]][row.item] = row.grade
        return {name: by_item for name, by_item in grades.items() if by_item}

    def reveal(self, reviewer: int, position: int, what: str) -> None:
        """Record a revelation to a reviewer, before it is shown; an adjudicator's places are the items."""
        with self.transaction() as connection:
            values = _sealed(_next_id(connection, "reveal"), reviewer, position, what, now())
            connection.execute("INSERT INTO reveal VALUES (?, ?, ?, ?, ?, ?)", values)

    def revealed(self, reviewer: int, position: int) -> tuple[Revealed, ...]:
        """Return what was revealed to a reviewer at a place.

        An answer that is revealed once is known from then on, at every passage of the question.
        """
        place = self.dealt(reviewer, position)
        places = """SELECT deal.position FROM deal JOIN item ON item.number = deal.item
                    WHERE deal.reviewer = ?1 AND item.question = (SELECT question FROM item WHERE number = ?3)"""
        return self._revealed(reviewer, position, place.item, places) if place else ()

    def revealed_ruling(self, reviewer: int, item: int) -> tuple[Revealed, ...]:
        """Return what was revealed to an adjudicator of an item's question."""
        places = "SELECT number FROM item WHERE question = (SELECT question FROM item WHERE number = ?3)"
        return self._revealed(reviewer, item, item, places)

    def _revealed(self, reviewer: int, position: int, item: int, places: str) -> tuple[Revealed, ...]:
        columns = "id, reviewer, position, what, created, seal"
        for row in self.rows(f"SELECT {columns} FROM reveal WHERE id > ? ORDER BY id", (self._checked_reveals,)):
            self._checked_reveals = self._check(row, "revealed text")[0]  # a damaged one could count elsewhere
        query = f"""SELECT what, min(created) FROM reveal
                    WHERE reviewer = ?1 AND (position = ?2 OR what <> ?4 AND position IN ({places}))
                    GROUP BY what ORDER BY min(id)"""
        seen = [Revealed(*row) for row in self.rows(query, (reviewer, position, item, SOURCES))]
        if self.project.open_answer and self.question(self.item(item).question).answer:
            seen = [Revealed(ANSWER, self.project.created), *(fact for fact in seen if fact.what != ANSWER)]
        return tuple(seen)

    def rule(self, ruling: Ruling, token: str) -> Ruling:
        """Append an adjudicator's ruling (its id and time are given here); the same form sent twice is written once."""
        if ruling.grade is not None:
            self.project.scale.grade(ruling.grade)
        with self.transaction() as connection:
            for sent in self._with_token(Ruling, ruling.reviewer, token):
                return sent
            revealed = self.revealed_ruling(ruling.reviewer, ruling.item)
            identifier = _next_id(connection, "ruling")
            row = replace(ruling, id=identifier, created=now(), revealed=revealed, token=token)
            _insert(connection, row)
        return row

    def all_rulings(self) -> list[Ruling]:
        """Return all rulings, undone or not."""
        return self._read(Ruling, "ORDER BY id")

    def rulings(self) -> dict[int, Ruling]:
        """Return the standing ruling of each item: the last that was not undone."""
        rows = self.all_rulings()
        undone = {row.undoes for row in rows}
        return {row.item: row for row in rows if row.grade is not None and row.id not in undone}


_NOT_UNDONE = "NOT EXISTS (SELECT 1 FROM decision later WHERE later.undoes = decision.id)"


def _hash_secret(secret: str) -> str:
    # With 192 random bits in it, a slow hash is not needed.
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _content(row: Decision | DraftDecision) -> tuple[object, ...]:
    return row.verdict, row.grade, row.note, [fact.what for fact in row.revealed]


def _next_id(connection: Connection, table: str) -> int:
    return int(connection.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {table}").fetchone()[0])


def _decode(kind: type[Row], values: Sequence[Any]) -> Row:
    plain = (msgspec.json.decode(value) if isinstance(value, bytes) else value for value in values)
    fields = dict(zip(kind.__struct_fields__, plain, strict=True))
    return msgspec.convert(fields, kind, strict=False)  # SQLite has 0 and 1 for false and true


def _sealed(*values: Value) -> tuple[Value, ...]:
    return (*values, seal(*values))


def _insert(connection: Connection, row: AnyRow) -> None:
    fields = msgspec.structs.astuple(row)
    values = _sealed(*(v if v is None or isinstance(v, str | int | float) else json_bytes(v) for v in fields))
    connection.execute(f"INSERT INTO {row.table} VALUES ({', '.join('?' * len(values))})", values)


def _append(
    connection: Connection, reviewer: int, where: _Where, draft: DraftDecision, token: str, undoes: int | None = None
) -> Decision:
    fields = {**msgspec.structs.asdict(draft), "created": now(), "undoes": undoes, "token": token}
    aspects = fields.pop("aspects")
    row = Decision(_next_id(connection, "decision"), reviewer, *where, **fields)
    _insert(connection, row)
    if aspects is not None:
        _insert(connection, AspectCoverage(row.id, aspects))
    return row


_Where = tuple[int, int | None, bool]  # item, position, and whether it is a second look


def _mark(connection: Connection, reviewer: int, position: int, standing: Decision | None) -> None:
    state = OPEN if standing is None else LEFT if standing.verdict == SKIPPED else DECIDED
    connection.execute("UPDATE deal SET state = ? WHERE reviewer = ? AND position = ?", (state, reviewer, position))

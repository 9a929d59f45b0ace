"""The rows of a review: questions, items, people, decisions and rulings, as the layers above the store use them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple

import orjson

from r2med.errors import R2medError
from r2med.reviews.scale import GradeScale
from r2med.store.cache import home
from r2med.store.files import draft_file
from r2med.store.sqlite import Database, Format, Value, seal

PERSON, MODEL, IMPORTED = "person", "model", "imported"
"""The kinds of reviewers."""
REVIEWER, ADJUDICATOR = "reviewer", "adjudicator"
"""What somebody is invited for."""
GRADED, UNSURE, SKIPPED, UNDONE = "graded", "unsure", "skipped", "undone"
"""What a decision says."""
RANDOM, DISAGREEMENTS, NEAR_CUT, HOLES, GOLD = "random", "disagreements", "near-cut", "holes", "gold"
"""How items are drawn. Only what was drawn at random may feed an estimate."""
CAUSES: Mapping[str, str] = {
    "question": "The question is ambiguous",
    "guideline": "The guideline is ambiguous",
    "knowledge": "It takes knowledge that one of them lacked",
    "slip": "A slip",
}
"""Why people disagreed, as an adjudicator names it."""
ANSWER, REASONING, SOURCES = REVEALS = "answer", "reasoning", "sources"
"""What a person can have revealed: the gold answer, the way to it, and (after deciding) where the item came from."""


class ChangedElsewhere(R2medError):
    """Conflict with a decision made meanwhile in another tab or on another device."""


@dataclass(frozen=True)
class ReviewProject:
    """Sources and rules of a review."""

    name: str
    created: str
    sources: tuple[str, ...]
    """What `--from` named."""
    data: Mapping[str, str]
    """The fingerprint of each task's data."""
    queue: str
    frames: Mapping[str, int]
    """How many pairs each way of drawing could draw from; estimates need that of `random`."""
    scale: GradeScale
    guideline: str
    overlap: float
    """The share of items that everybody judges."""
    repeat: float
    """The share of a person's items that come a second time."""
    seed: int
    open_answer: bool = False
    """Whether everybody sees the gold answer from the start; otherwise it is shown on request, and that is recorded."""

    def as_dict(self) -> dict[str, Any]:
        """Return the project as it is stored, and as JSON shows it."""
        return {**vars(self), "scale": self.scale.as_dict(), "sources": list(self.sources)}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> ReviewProject:
        """Build a project from the result of `as_dict`."""
        return cls(**{**kept, "scale": GradeScale.from_dict(kept["scale"]), "sources": tuple(kept["sources"])})


@dataclass(frozen=True)
class ReviewQuestion:
    """A question, with what the task knows of it."""

    number: int
    task: str
    query: str
    """Its id in the task."""
    text: str
    answer: str = ""
    reasoning: str = ""


@dataclass(frozen=True)
class ReviewItem:
    """A passage to be judged for a question."""

    number: int
    question: int
    document: str
    """Its id in the task."""
    text: str
    drawn: str
    """How it was drawn."""
    shared: bool
    """Whether everybody judges it."""
    gold: int | None = None
    """The grade that is known to be right, where one is."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from (ranks by system, labels by source): nothing that a reviewer sees before deciding."""


@dataclass(frozen=True)
class Reviewer:
    """A person, a model or an imported label set."""

    id: int
    name: str
    kind: str
    role: str = REVIEWER
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of a model or an import: what made its labels."""


class DealtItem(NamedTuple):
    """An item at its place in a reviewer's order."""

    position: int
    item: int
    again: bool
    """Whether this person has been dealt it before."""


class ProofSpan(NamedTuple):
    """The stretch of a passage's text that proves a decision, from character to character."""

    start: int
    end: int


class Revealed(NamedTuple):
    """Facts that a reviewer had revealed, and the time."""

    what: str
    created: str


@dataclass(frozen=True)
class Decision:
    """One appended row: what a reviewer said of an item."""

    id: int
    """Counts up; the order of decisions, whatever clocks say."""
    reviewer: int
    item: int
    position: int | None
    """Its place in this person's order; None for models and imports."""
    again: bool
    """Whether it is a second look at the same item."""
    verdict: str
    grade: int | None
    """The grade where the verdict is `graded`; an unsure person may name one, too."""
    span: ProofSpan | None
    note: str
    sentence: int | None
    """The sentence of the guideline that is unclear, counted from 0."""
    seconds: float | None
    """How long the item was looked at; None where that is not known."""
    revealed: tuple[Revealed, ...]
    created: str
    """By the server's clock, in UTC."""
    undoes: int | None = None
    """The decision that is taken back."""


@dataclass(frozen=True)
class DraftDecision:
    """A decision before it is a row."""

    verdict: str
    grade: int | None = None
    span: ProofSpan | None = None
    note: str = ""
    sentence: int | None = None
    seconds: float | None = None
    revealed: tuple[Revealed, ...] = ()
    """Of an import: what its file says was revealed. Of a person at the desk, the file of the review knows it."""

    def check(self, scale: GradeScale, letters: int, guideline: int) -> None:
        """Refuse a decision that does not fit the scale, the length of the text or the guideline's sentences."""
        if self.verdict not in (GRADED, UNSURE, SKIPPED):
            raise R2medError(f"a decision is {GRADED}, {UNSURE} or {SKIPPED}, not {self.verdict!r}")
        if self.grade is not None:
            scale.grade(self.grade)
        if self.verdict == GRADED and self.grade is None:
            raise R2medError("a decision needs a grade")
        if self.span is not None and not 0 <= self.span.start < self.span.end <= letters:
            raise R2medError("the marked stretch is not in the passage")
        if self.sentence is not None and not 0 <= self.sentence < guideline:
            raise R2medError(f"the guideline has no sentence {self.sentence + 1}")
        if self.seconds is not None and not 0 <= self.seconds < float("inf"):
            raise R2medError("the seconds of a decision must be a number from 0 on")


@dataclass(frozen=True)
class Ruling:
    """One appended row: what an adjudicator says of an item that people disagree about."""

    id: int
    reviewer: int
    item: int
    grade: int | None
    """None where a ruling is taken back."""
    cause: str
    sentence: int | None
    note: str
    seconds: float | None
    created: str
    undoes: int | None = None
    revealed: tuple[Revealed, ...] = ()
    """What the adjudicator had revealed before."""


class Invitation(NamedTuple):
    """A link that was given out."""

    id: int
    reviewer: int
    created: str
    withdrawn: str
    """When it was withdrawn; empty while it holds."""


def standing_rows(rows: Sequence[Decision]) -> dict[tuple[int, int, bool], Decision]:
    """Return the standing decisions, by reviewer, item and second look: the last ones that were not undone."""
    undone = {row.undoes for row in rows if row.undoes is not None}
    held = (row for row in rows if row.verdict != UNDONE and row.id not in undone)
    return {(row.reviewer, row.item, row.again): row for row in held}


FOLDER = "reviews"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FORMAT = Format(
    "review",
    3,
    """
    CREATE TABLE project (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL, seal INTEGER NOT NULL);
    CREATE TABLE question (
        number INTEGER PRIMARY KEY, task TEXT NOT NULL, query TEXT NOT NULL, text TEXT NOT NULL,
        answer TEXT NOT NULL, reasoning TEXT NOT NULL, seal INTEGER NOT NULL, UNIQUE (task, query)
    );
    CREATE TABLE item (
        number INTEGER PRIMARY KEY, question INTEGER NOT NULL REFERENCES question (number), document TEXT NOT NULL,
        text TEXT NOT NULL, drawn TEXT NOT NULL, shared INTEGER NOT NULL, gold INTEGER, facts BLOB NOT NULL,
        seal INTEGER NOT NULL, UNIQUE (question, document)
    );
    CREATE TABLE hold (item INTEGER PRIMARY KEY, question INTEGER NOT NULL, reviewer INTEGER);
    CREATE INDEX free ON hold (question) WHERE reviewer IS NULL;
    CREATE TABLE reviewer (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, role TEXT NOT NULL,
        settings BLOB NOT NULL, seal INTEGER NOT NULL
    );
    CREATE TABLE invitation (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL REFERENCES reviewer (id),
        hash BLOB NOT NULL UNIQUE, created TEXT NOT NULL, seal INTEGER NOT NULL
    );
    CREATE TABLE withdrawal (
        invitation INTEGER PRIMARY KEY REFERENCES invitation (id), created TEXT NOT NULL, seal INTEGER NOT NULL
    );
    CREATE TABLE tour (
        reviewer INTEGER NOT NULL, place INTEGER NOT NULL, question INTEGER NOT NULL, part INTEGER NOT NULL,
        PRIMARY KEY (reviewer, place)
    ) WITHOUT ROWID;
    CREATE TABLE deal (
        reviewer INTEGER NOT NULL, position INTEGER NOT NULL, item INTEGER NOT NULL, again INTEGER NOT NULL,
        shared INTEGER NOT NULL, state INTEGER NOT NULL, seal INTEGER NOT NULL, PRIMARY KEY (reviewer, position)
    ) WITHOUT ROWID;
    CREATE INDEX deal_by_sharing ON deal (reviewer, shared, again);
    CREATE INDEX deal_by_state ON deal (reviewer, state, position);
    CREATE INDEX deal_by_item ON deal (item, reviewer);
    CREATE TABLE decision (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL REFERENCES reviewer (id),
        item INTEGER NOT NULL REFERENCES item (number), position INTEGER, again INTEGER NOT NULL,
        verdict TEXT NOT NULL, grade INTEGER, span_start INTEGER, span_end INTEGER, note TEXT NOT NULL,
        sentence INTEGER, seconds REAL, revealed BLOB NOT NULL, created TEXT NOT NULL, undoes INTEGER,
        token TEXT NOT NULL, seal INTEGER NOT NULL, UNIQUE (reviewer, token)
    );
    CREATE INDEX decision_by_item ON decision (item, reviewer);
    CREATE INDEX decision_by_place ON decision (reviewer, position);
    CREATE INDEX decision_undone ON decision (undoes) WHERE undoes IS NOT NULL;
    CREATE TABLE reveal (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL, position INTEGER NOT NULL,
        what TEXT NOT NULL, created TEXT NOT NULL, seal INTEGER NOT NULL
    );
    CREATE INDEX reveal_by_position ON reveal (reviewer, position);
    CREATE TABLE ruling (
        id INTEGER PRIMARY KEY, reviewer INTEGER NOT NULL REFERENCES reviewer (id),
        item INTEGER NOT NULL REFERENCES item (number), grade INTEGER, cause TEXT NOT NULL, sentence INTEGER,
        note TEXT NOT NULL, seconds REAL, created TEXT NOT NULL, undoes INTEGER, token TEXT NOT NULL,
        revealed BLOB NOT NULL, seal INTEGER NOT NULL, UNIQUE (reviewer, token)
    )
    """,
)


def review_path(name: str) -> Path:
    """Return the file of a project; an invalid name is an error."""
    if not _NAME.fullmatch(name):
        raise R2medError(
            f"{name!r} is not a name for a review; use letters, digits, dots, dashes and underscores, 64 at most"
        )
    return review_folder() / f"{name}.sqlite"


def review_folder() -> Path:
    """Return the folder of all projects."""
    return home() / FOLDER


def review_names() -> list[str]:
    """Return the names of all projects."""
    return sorted(path.stem for path in review_folder().glob("*.sqlite"))


def now() -> str:
    """Return the current time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_review(project: ReviewProject, questions: Sequence[ReviewQuestion], items: Sequence[ReviewItem]) -> Path:
    """Write the file of a project, as a whole or not at all."""
    path = review_path(project.name)
    if path.exists():
        raise R2medError(f"there is a review {project.name} already; choose another name")
    with draft_file(path, parents=True) as draft:
        # What is in it may be about patients, and every name.
        draft.chmod(0o600)
        database = Database(draft, FORMAT)
        with database.transaction() as connection:
            _fill(connection, project, questions, items)
        # One file takes the name: what the log holds is moved into it first.
        database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        database.rows("PRAGMA journal_mode = DELETE")
        database.close()
    return path


def _fill(
    connection: Connection,
    project: ReviewProject,
    questions: Sequence[ReviewQuestion],
    items: Sequence[ReviewItem],
) -> None:
    value = orjson.dumps(project.as_dict())
    connection.execute("INSERT INTO project VALUES (1, ?, ?)", (value, seal(value)))
    connection.executemany(
        "INSERT INTO question VALUES (?, ?, ?, ?, ?, ?, ?)",
        (sealed(each.number, each.task, each.query, each.text, each.answer, each.reasoning) for each in questions),
    )
    connection.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(_item_row, items))
    private = ((each.number, each.question) for each in items if not each.shared)
    connection.executemany("INSERT INTO hold VALUES (?, ?, NULL)", private)


def sealed(*values: Value) -> tuple[Value, ...]:
    """Return a row with its seal appended."""
    return (*values, seal(*values))


def _item_row(item: ReviewItem) -> tuple[Value, ...]:
    facts = orjson.dumps(item.facts)
    texts = (item.number, item.question, item.document, item.text, item.drawn)
    return sealed(*texts, int(item.shared), item.gold, facts)

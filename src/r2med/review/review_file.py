"""The file of a review: where it lies, what its tables are, and how a project is laid down in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection

import orjson

from r2med.errors import R2medError
from r2med.review.review_rows import ReviewItem, ReviewProject, ReviewQuestion
from r2med.storage.files import draft_file
from r2med.storage.home import home
from r2med.storage.sqlite import Database, Format, Value, seal

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
    """The file of a project; a name that is none is an error."""
    if not _NAME.fullmatch(name):
        raise R2medError(
            f"{name!r} is no name for a review; use letters, digits, dots, dashes and underscores, 64 at most"
        )
    return review_folder() / f"{name}.sqlite"


def review_folder() -> Path:
    """Return the folder of all projects."""
    return home() / FOLDER


def review_names() -> list[str]:
    """Every project that there is."""
    return sorted(path.stem for path in review_folder().glob("*.sqlite"))


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_review(project: ReviewProject, questions: Sequence[ReviewQuestion], items: Sequence[ReviewItem]) -> Path:
    """Make the file of a project, whole or not at all."""
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
    """A row with its seal behind it."""
    return (*values, seal(*values))


def _item_row(item: ReviewItem) -> tuple[Value, ...]:
    facts = orjson.dumps(item.facts)
    texts = (item.number, item.question, item.document, item.text, item.drawn)
    return sealed(*texts, int(item.shared), item.gold, facts)

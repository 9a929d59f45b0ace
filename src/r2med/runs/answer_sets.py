"""Answers in the ledger: one set for a model's answers to one task's questions under one condition.

A set is written in one transaction when it is finished; its rows are interpreted by its study alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from r2med.store.sqlite import Database, seal, warn

ANSWER_TABLES = """
CREATE TABLE answer_sets (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    study TEXT NOT NULL,
    arm TEXT NOT NULL,
    task TEXT NOT NULL,
    created TEXT NOT NULL,
    settings TEXT NOT NULL,
    data BLOB NOT NULL,
    seal INTEGER NOT NULL
);
CREATE INDEX answer_sets_by_study ON answer_sets (study, task);
"""
_COLUMNS = "key, study, arm, task, created, settings, data"


@dataclass(frozen=True)
class AnswerSet:
    """Answers to one task's questions under one condition."""

    key: str  # hash of everything the answers depend on
    study: str  # hash of the settings that comparable sets share: model, prompt, numbers, judge
    arm: str
    task: str
    settings: Mapping[str, Any]  # facts about how they were made; free in form
    rows: Sequence[Mapping[str, Any]]  # one per question
    created: str = ""


class AnswerSets:
    """Answer sets of a ledger."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, answers: AnswerSet) -> AnswerSet:
        """Write a set, in place of one with the same key; it is then the last of its study, arm and task."""
        created = answers.created or datetime.now(UTC).isoformat(timespec="seconds")
        settings = orjson.dumps(dict(answers.settings), option=orjson.OPT_SORT_KEYS).decode()
        data = zlib.compress(orjson.dumps([dict(row) for row in answers.rows]))
        row = (answers.key, answers.study, answers.arm, answers.task, created, settings, data)
        with self._db.transaction() as db:
            db.execute("DELETE FROM answer_sets WHERE key = ?", (answers.key,))
            places = ", ".join("?" * (len(row) + 1))
            db.execute(f"INSERT INTO answer_sets ({_COLUMNS}, seal) VALUES ({places})", (*row, seal(*row)))
        return replace(answers, created=created)

    def find(self, key: str) -> AnswerSet | None:
        """Return the set with exactly this key."""
        return next(iter(self._read("WHERE key = ?", (key,))), None)

    def newest_sets(self) -> list[AnswerSet]:
        """Return the newest set of each study, arm and task, in the order of writing."""
        return list({(row.study, row.arm, row.task): row for row in self._read("ORDER BY number", ())}.values())

    def newest(self, study: str, arm: str, task: str) -> str:
        """Return the key of the set that was written last; empty if there is none."""
        query = "SELECT key FROM answer_sets WHERE study = ? AND arm = ? AND task = ? ORDER BY number DESC LIMIT 1"
        return next((str(key) for (key,) in self._db.rows(query, (study, arm, task))), "")

    def remove(self, keys: Sequence[str]) -> None:
        """Remove sets."""
        with self._db.transaction() as db:
            db.executemany("DELETE FROM answer_sets WHERE key = ?", [(key,) for key in keys])

    def _read(self, condition: str, values: tuple[str, ...]) -> list[AnswerSet]:
        sets = []
        for *row, written in self._db.rows(f"SELECT {_COLUMNS}, seal FROM answer_sets {condition}", values):
            if seal(*row) != written:
                warn(f"the answers of {row[2]!r} on {row[3]} are damaged in the ledger and left out; ask again")
                continue
            key, study, arm, task, created, settings, data = row
            content = orjson.loads(zlib.decompress(data))
            sets.append(AnswerSet(key, study, arm, task, orjson.loads(settings), content, created))
        return sets

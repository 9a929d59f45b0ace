"""The ledger: every run ever made, in one SQLite file, readable at any moment and by several processes at once.

A row is one system on one task. It is written in one transaction after the task is finished, so whatever stops a
process, the ledger holds all finished tasks whole and nothing of the unfinished one.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.data.model import Generation
from r2med.errors import R2medError
from r2med.ranking import Run
from r2med.runfiles import pack, unpack
from r2med.store.home import home

_FORMAT_1 = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    system TEXT NOT NULL,
    task TEXT NOT NULL,
    task_group TEXT NOT NULL,
    created TEXT NOT NULL,
    seconds REAL NOT NULL,
    queries TEXT NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS runs_by_system ON runs (system, task);
CREATE TABLE IF NOT EXISTS scores (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    measure TEXT NOT NULL,
    mean REAL NOT NULL,
    per_query BLOB NOT NULL,
    PRIMARY KEY (run, measure)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rankings (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS generations (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    data BLOB NOT NULL
);
"""
_FORMAT_2 = """
ALTER TABLE runs ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET used = dated.place
    FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY created, rowid) AS place FROM runs) AS dated
    WHERE dated.id = runs.id;
CREATE INDEX runs_by_use ON runs (used);
"""
_FORMATS = (_FORMAT_1, _FORMAT_2)
"""What makes each format out of the one before; the first out of nothing."""
_COLUMNS = "id, key, system, task, task_group, created, seconds, queries, record, used"
_NEXT_USE = "(SELECT COALESCE(MAX(used), 0) + 1 FROM runs)"


@dataclass(frozen=True)
class Entry:
    """One system on one task, as the ledger remembers it."""

    key: str
    """Hash of everything the run depends on: system, data, version."""
    system: str
    """The system's spec."""
    task: str
    """The task's name, or the path of a user's own data."""
    group: str
    """full, nano, sample or custom: scores of different groups are never put together."""
    queries: tuple[str, ...]
    """The queries that were measured, in the order of the per-query scores."""
    seconds: float
    """How long the system took, reading the data not included."""
    record: dict[str, Any] = field(default_factory=dict)
    """Everything that could change the result: versions, fingerprints, settings, warnings, machine."""
    created: str = ""
    """When, in UTC."""
    used: int = 0
    """Its place in the order in which runs were made or taken from the ledger again; no clock has a part in it."""

    @property
    def id(self) -> str:
        """The short name of the run, as `r2med runs show ID` takes it."""
        return self.key[:10]

    @property
    def data(self) -> str:
        """The fingerprint of the data that it was made on: documents, queries and gold."""
        return str(self.record.get("data", {}).get("fingerprint", ""))

    @property
    def incomplete(self) -> Mapping[str, str]:
        """Queries for which the system did not do all it should have, and why."""
        found: Mapping[str, str] = self.record.get("incomplete", {})
        return found

    @property
    def oracle(self) -> bool:
        """Whether the system was shown gold answers."""
        return bool(self.record.get("oracle", False))


Written = Mapping[str, Sequence[Generation]]
"""Query id to what was generated for it."""


@dataclass(frozen=True)
class Finished:
    """What a run leaves behind, to be kept in one piece."""

    run: Run
    scores: Mapping[str, NDArray[np.float64]]
    """Measure to one value a query, in the order of the entry's queries."""
    generations: Written = field(default_factory=dict)


class Ledger:
    """The SQLite file in `R2MED_HOME`. One object a thread; any number of processes."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home() / "ledger.sqlite"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            version = self._upgraded()
        except (sqlite3.DatabaseError, OSError) as error:
            raise R2medError(f"{self.path}: not a usable ledger ({error}); move it away to start a new one") from error
        if version > len(_FORMATS):
            raise R2medError(f"{self.path}: written by a newer r2med (format {version}); upgrade r2med to read it")

    def _format(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _upgraded(self) -> int:
        """Bring an older file to the present format, in one transaction; the format that it has then."""
        if self._format() < len(_FORMATS):
            with self._transaction() as db:
                # Another process may have done it while this one waited.
                for number, script in enumerate(_FORMATS[self._format() :], self._format() + 1):
                    for statement in script.split(";"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {number}")
        return self._format()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def add(self, entry: Entry, finished: Finished) -> Entry:
        """Write a finished run, in place of one with the same key; returns it, dated and the last one used."""
        created = entry.created or datetime.now(UTC).isoformat(timespec="seconds")
        row = (
            entry.id,
            entry.key,
            entry.system,
            entry.task,
            entry.group,
            created,
            entry.seconds,
            orjson.dumps(entry.queries).decode(),
            orjson.dumps(entry.record, option=orjson.OPT_NON_STR_KEYS).decode(),
        )
        data = pack(finished.run)
        texts = {query: [asdict(each) for each in found] for query, found in finished.generations.items()}
        with self._transaction() as db:
            db.execute("DELETE FROM runs WHERE key = ?", (entry.key,))
            db.execute(f"INSERT INTO runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, {_NEXT_USE})", row)
            db.execute("INSERT INTO rankings VALUES (?, ?)", (entry.id, data))
            if texts:
                db.execute("INSERT INTO generations VALUES (?, ?)", (entry.id, zlib.compress(orjson.dumps(texts))))
            self._write_scores(entry, finished.scores)
            used = db.execute("SELECT used FROM runs WHERE id = ?", (entry.id,)).fetchone()
        return self._entry((*row, *used))

    def use(self, entry: Entry) -> None:
        """Make a run the current one of its system and task: it was asked for again, and the ledger had it.

        Data, a prompt or a model that was changed and changed back thus has its own runs shown again.
        """
        query = f"SELECT {_COLUMNS} FROM runs WHERE task = ?1 AND (?2 = '' OR system = ?2) ORDER BY used DESC LIMIT 1"
        last, last_own = (
            self._entry(self._db.execute(query, (entry.task, system)).fetchone()) for system in ("", entry.system)
        )
        if last_own.key != entry.key or last.data != entry.data:
            with self._transaction() as db:
                db.execute(f"UPDATE runs SET used = {_NEXT_USE} WHERE id = ?", (entry.id,))

    def find(self, key: str) -> Entry | None:
        """The run with exactly this key, if it was ever made."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM runs WHERE key = ?", (key,)).fetchone()
        return self._entry(row) if row else None

    def get(self, name: str) -> Entry:
        """The run whose id starts with `name`."""
        pattern = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        query = f"SELECT {_COLUMNS} FROM runs WHERE id LIKE ? ESCAPE '\\' LIMIT 2"
        rows = self._db.execute(query, (pattern,)).fetchall()
        if not rows or not name:
            raise R2medError(f"no run {name!r} in the ledger; `r2med runs` lists them")
        if len(rows) > 1:
            raise R2medError(f"several runs start with {name!r}; give more of the id")
        return self._entry(rows[0])

    def entries(self, *, system: str = "", group: str = "", limit: int = -1) -> list[Entry]:
        """The runs, the last one used first, of one system or one group where that is asked."""
        query = (
            f"SELECT {_COLUMNS} FROM runs WHERE (?1 = '' OR system = ?1) AND (?2 = '' OR task_group = ?2)"
            " ORDER BY used DESC LIMIT ?3"
        )
        return [self._entry(row) for row in self._db.execute(query, (system, group, limit))]

    def run(self, entry: Entry) -> Run:
        """The ranked lists of a run."""
        row = self._db.execute("SELECT data FROM rankings WHERE run = ?", (entry.id,)).fetchone()
        if row is None:
            raise R2medError(f"run {entry.id} has no ranked lists; run it again with --fresh")
        return unpack(row[0])

    def generations(self, entry: Entry) -> dict[str, list[Generation]]:
        """What was generated for each query of a run; empty for a run without expanders."""
        row = self._db.execute("SELECT data FROM generations WHERE run = ?", (entry.id,)).fetchone()
        texts = orjson.loads(zlib.decompress(row[0])) if row else {}
        return {query: [Generation(**each) for each in found] for query, found in texts.items()}

    def add_scores(self, entry: Entry, scores: Mapping[str, NDArray[np.float64]]) -> None:
        """Remember further measures of a run, one value a query in the order of `entry.queries`."""
        with self._transaction():
            self._write_scores(entry, scores)

    def _write_scores(self, entry: Entry, scores: Mapping[str, NDArray[np.float64]]) -> None:
        for measure, values in scores.items():
            if len(values) != len(entry.queries):
                raise ValueError(f"{measure}: {len(values)} values for {len(entry.queries)} queries")
            data = np.ascontiguousarray(values, dtype="<f8").tobytes()
            mean = float(values.mean()) if len(values) else 0.0
            self._db.execute("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?)", (entry.id, measure, mean, data))

    def scores(self, entry: Entry) -> dict[str, NDArray[np.float64]]:
        """Each measure's per-query values."""
        rows = self._db.execute("SELECT measure, per_query FROM scores WHERE run = ?", (entry.id,))
        return {measure: np.frombuffer(data, dtype="<f8") for measure, data in rows}

    def means(self) -> dict[str, dict[str, float]]:
        """Every run's means, by run id and measure, without touching per-query values."""
        found: dict[str, dict[str, float]] = {}
        for run, measure, mean in self._db.execute("SELECT run, measure, mean FROM scores"):
            found.setdefault(run, {})[measure] = mean
        return found

    def remove(self, entries: Sequence[Entry]) -> None:
        """Forget runs, their scores and their ranked lists."""
        with self._transaction() as db:
            db.executemany("DELETE FROM runs WHERE id = ?", [(entry.id,) for entry in entries])

    @staticmethod
    def _entry(row: tuple[Any, ...]) -> Entry:
        _, key, system, task, group, created, seconds, queries, record, used = row
        return Entry(
            key, system, task, group, tuple(orjson.loads(queries)), seconds, orjson.loads(record), created, used
        )

"""The ledger: every run ever made, in one SQLite file, readable at any moment and by several processes at once.

A row is one system on one task, written in one transaction after the task is finished.

A run is packed exactly into few bytes: a JSON head (queries, distinct documents, precision of the scores), then list
lengths, document numbers and scores, byte plane by byte plane, in which neighbours resemble each other, all deflated.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.data.dataset import Generation
from r2med.data.run import Run
from r2med.errors import DataError, R2medError
from r2med.runs.answer_sets import ANSWER_TABLES, AnswerSets
from r2med.runs.cost import Cost
from r2med.runs.record import RunRecord
from r2med.store.cache import home
from r2med.store.sqlite import DamagedError, Database, Format, seal, warn

_MAGIC = b"r2med run 1\n"
_COUNT = np.dtype("<u4")


def pack(run: Run) -> bytes:
    """Pack a run into bytes; `unpack` gives an equal run back.

    >>> run = Run.from_lists({"q1": (["d1", "d2"], [0.5, 0.7]), "q2": ([], [])})
    >>> unpack(pack(run)) == run
    True
    """
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(document, len(numbers)) for document in run.documents]
    scores = run.scores.astype(run.scores.dtype.newbyteorder("<"), copy=False)
    head = orjson.dumps({"scores": scores.dtype.str, "queries": list(run.queries), "documents": list(numbers)})
    columns = (np.diff(run.offsets).astype(_COUNT), np.array(codes, dtype=_COUNT), scores)
    parts = [np.array(len(head), dtype=_COUNT).tobytes(), head, *map(_planes, columns)]
    return _MAGIC + zlib.compress(b"".join(parts))


def unpack(data: bytes) -> Run:
    """Unpack the run from the bytes of `pack`."""
    if not data.startswith(_MAGIC):
        raise DataError("the stored run was made by another version of r2med; run it again with --fresh")
    try:
        body = zlib.decompress(data[len(_MAGIC) :])
        start = _COUNT.itemsize + int(np.frombuffer(body, _COUNT, 1)[0])
        head = orjson.loads(body[_COUNT.itemsize : start])
        body = body[start:]
        dtype = np.dtype(head["scores"])
        if dtype.kind != "f":
            raise ValueError(f"scores of type {dtype}")
        middle = len(head["queries"]) * _COUNT.itemsize
        offsets = np.zeros(len(head["queries"]) + 1, dtype=np.int64)
        np.cumsum(_values(body[:middle], _COUNT), out=offsets[1:])
        end = middle + int(offsets[-1]) * _COUNT.itemsize
        if len(body) != end + int(offsets[-1]) * dtype.itemsize:
            raise ValueError(f"{len(body)} bytes for {offsets[-1]} rows")
        documents = [head["documents"][code] for code in _values(body[middle:end], _COUNT).tolist()]
        return Run(head["queries"], offsets, documents, _values(body[end:], dtype).astype(dtype.newbyteorder("=")))
    except (zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError("the stored run is damaged") from error


def _planes(column: NDArray[Any]) -> bytes:
    """Return a column's first bytes, then all its second bytes, and so on."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def _values(data: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Restore a column from the bytes of `_planes`."""
    planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(-1)


_TABLES = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    system TEXT NOT NULL,
    task TEXT NOT NULL,
    task_group TEXT NOT NULL,
    created TEXT NOT NULL,
    seconds REAL NOT NULL,
    queries TEXT NOT NULL,
    record TEXT NOT NULL,
    used INTEGER NOT NULL,
    seal INTEGER NOT NULL,
    used_seal INTEGER NOT NULL
);
CREATE INDEX runs_by_system ON runs (system, task);
CREATE INDEX runs_by_use ON runs (used);
CREATE TABLE scores (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    measure TEXT NOT NULL,
    mean REAL NOT NULL,
    per_query BLOB NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY (run, measure)
) WITHOUT ROWID;
CREATE TABLE rankings (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    data BLOB NOT NULL,
    seal INTEGER NOT NULL
);
CREATE TABLE generations (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    data BLOB NOT NULL,
    seal INTEGER NOT NULL
);
"""
_FORMAT = Format("ledger", 5, _TABLES + ANSWER_TABLES)
_COLUMNS = "id, key, system, task, task_group, created, seconds, queries, record, used"
_SEALED = f"{_COLUMNS}, seal, used_seal"
_NEXT_USE = "(SELECT COALESCE(MAX(used), 0) + 1 FROM runs)"


class RecordedName(str):
    """Name of a system that was read from the ledger: it stands for its runs, whatever its files hold now."""

    __slots__ = ()


@dataclass(frozen=True)
class Entry:
    """Run of a system on a task: as stored in the ledger, or as a result with its scores."""

    key: str  # hash of everything the run depends on: system, data, version
    system: str  # the system's spec, or the name of a run file
    task: str  # the task's name, or the path of a user's own data
    group: str  # `full`, `nano`, `sample` or `custom`: scores of different groups are never combined
    queries: tuple[str, ...]  # the queries that were measured, in the order of the per-query scores
    seconds: float  # seconds of the system, without those of reading the data
    record: RunRecord = field(default_factory=RunRecord)  # everything that could change the result, and its costs
    created: str = ""  # date and time in UTC
    used: int = 0  # its place in the order in which runs were made or reused; independent of any clock
    variant: str = ""  # mark that distinguishes its system from others of the same spec but other files; mostly empty
    scores: Mapping[str, NDArray[np.float64]] = field(default_factory=dict, compare=False)  # of a result: by measure
    notes: tuple[str, ...] = ()  # of a result: warnings that depend on what was asked for, after those of the record
    cached: bool = False  # whether a result came from the ledger

    @property
    def name(self) -> str:
        """Return the system as a table shows it: the spec, and the mark of its files if the ledger has several.

        >>> Entry("k", "./mine", "t", "custom", (), 0.0, variant="3f2a91").name
        './mine [3f2a91]'
        """
        return f"{self.system} [{self.variant}]" if self.variant else self.system

    @property
    def id(self) -> str:
        """Return the short name of the run, as `r2med runs show ID` takes it; empty if it was not stored."""
        return self.key[:10]

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Return the means of a result over all queries with judgements."""
        return {measure: float(values.mean()) if len(values) else 0.0 for measure, values in self.scores.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the sentences for the user."""
        return (*self.record.warnings, *self.notes)

    @property
    def cost(self) -> Cost:
        """Return the costs of the run."""
        return Cost.of([self.record], self.seconds, len(self.queries))

    @property
    def data(self) -> str:
        """Return the fingerprint of the data that it was made on: documents, queries and gold."""
        return self.record.data.fingerprint or ""

    @property
    def incomplete(self) -> Mapping[str, str]:
        """Return the queries that the system did not fully process, with the reasons."""
        return self.record.incomplete

    @property
    def oracle(self) -> bool:
        """Return whether the system was shown gold answers."""
        return self.record.oracle

    def as_dict(self) -> dict[str, Any]:
        """Return a result for `--json`."""
        record = self.record
        content: dict[str, Any] = {
            "system": self.system,
            "task": self.task,
            "queries": len(self.queries),
            "documents": record.documents,
            "metrics": self.metrics,
            "seconds": round(self.seconds, 4),
            "warnings": list(self.warnings),
            "group": self.group,
        }
        if self.cost.requests != 0:
            content["cost"] = self.cost.as_dict()
        if (pair := record.foreseen_and_used) is not None:
            content |= {"foreseen": pair[0].spending(), "used": pair[1].spending()}
        if self.id:
            content |= {"run": self.id, "cached": self.cached}
        optional = {
            "oracle": record.oracle or None,
            "recall_lost": record.recall_lost,
            "latency": record.latency,
            **(record.failed_attempts or {}),
            "incomplete": dict(self.incomplete) or None,
        }
        return content | {name: value for name, value in optional.items() if value is not None}


Written = Mapping[str, Sequence[Generation]]  # generated texts by query id


class Ledger:
    """Ledger in a SQLite file in `R2MED_HOME`. One object per thread; any number of processes.

    Damaged rows are reported by a `StoreWarning` and left out, or are an error if they were asked for by name.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home() / "ledger.sqlite"
        self._db = Database(self.path, _FORMAT)
        self._counted: tuple[tuple[int, ...], tuple[int, ...]] = (), ()

    @cached_property
    def answers(self) -> AnswerSets:
        """Return the answers of models with and without passages."""
        return AnswerSets(self._db)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[tuple[int, ...]]:
        """Show the ledger in one state within the block, even if other processes write meanwhile; yield its `state`."""
        self._db.rows("BEGIN")
        try:
            yield self.state()
        finally:
            self._db.rows("COMMIT")

    def state(self) -> tuple[int, ...]:
        """Return counts that change with what is written: runs, their last use, scores."""
        # Counting is expensive, and SQLite tells whether anything was written since.
        mark = (*self._db.rows("PRAGMA data_version")[0], self._db.connection.total_changes)
        if mark != self._counted[0]:
            query = "SELECT COUNT(*), COALESCE(MAX(used), 0), (SELECT COUNT(*) FROM scores) FROM runs"
            self._counted = mark, tuple(self._db.rows(query)[0])
        return self._counted[1]

    def add(self, entry: Entry, run: Run, generations: Written | None = None) -> Entry:
        """Write a result with its lists, in place of one with the same key; return it dated, as the last one used."""
        created = entry.created or datetime.now(UTC).isoformat(timespec="seconds")
        record = orjson.dumps(entry.record.as_json(), option=orjson.OPT_NON_STR_KEYS).decode()
        place = (entry.id, entry.key, entry.system, entry.task, entry.group)
        row = (*place, created, float(entry.seconds), orjson.dumps(entry.queries).decode(), record)
        tables = {"rankings": pack(run)}
        if generations:
            texts = {query: [asdict(generation) for generation in rows] for query, rows in generations.items()}
            tables["generations"] = zlib.compress(orjson.dumps(texts))
        with self._db.transaction() as db:
            # A damaged row may have kept only one of the two.
            db.execute("DELETE FROM runs WHERE key = ? OR id = ?", (entry.key, entry.id))
            (used,) = db.execute(f"SELECT {_NEXT_USE}").fetchone()
            sealed = (*row, used, seal(*row), seal(entry.id, used))
            db.execute(f"INSERT INTO runs ({_SEALED}) VALUES ({', '.join('?' * len(sealed))})", sealed)
            for table, data in tables.items():
                db.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", (entry.id, data, seal(entry.id, data)))
            self._write_scores(db, entry, entry.scores)
        return replace(entry, created=created, used=used)

    def use(self, entry: Entry) -> None:
        """Make a run the current one of its system and task, for data or a prompt that was changed and changed back."""
        query = f"SELECT {_SEALED} FROM runs WHERE task = ?1 AND (?2 = '' OR system = ?2) ORDER BY used DESC LIMIT 1"
        last, last_own = (self._sound(self._db.rows(query, (entry.task, system))) for system in ("", entry.system))
        if [row.key for row in last_own] != [entry.key] or [row.data for row in last] != [entry.data]:
            with self._db.transaction() as db:
                (used,) = db.execute(f"SELECT {_NEXT_USE}").fetchone()
                row = (used, seal(entry.id, used), entry.id)
                db.execute("UPDATE runs SET used = ?, used_seal = ? WHERE id = ?", row)

    def find(self, key: str) -> Entry | None:
        """Return the run with exactly this key, or None."""
        return next(iter(self._sound(self._db.rows(f"SELECT {_SEALED} FROM runs WHERE key = ?", (key,)))), None)

    def get(self, name: str) -> Entry:
        """Return the run whose id starts with `name`."""
        pattern = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        rows = self._db.rows(f"SELECT {_SEALED} FROM runs WHERE id LIKE ? ESCAPE '\\' LIMIT 2", (pattern,))
        if not rows or not name:
            raise R2medError(f"no run {name!r} in the ledger; `r2med runs` lists them")
        if len(rows) > 1:
            raise R2medError(f"several runs start with {name!r}; give more of the id")
        entry = _read_entry(rows[0])
        if entry is None:
            raise DamagedError(f"run {name} is damaged in the ledger; make it again with r2med run")
        return self._with_variants([entry])[0]

    def entries(self, *, system: str = "", group: str = "", limit: int = -1) -> list[Entry]:
        """Return the runs, the last one used first, of one system or one group if given."""
        query = (
            f"SELECT {_SEALED} FROM runs WHERE (?1 = '' OR system = ?1) AND (?2 = '' OR task_group = ?2)"
            " ORDER BY used DESC LIMIT ?3"
        )
        return self._with_variants(self._sound(self._db.rows(query, (system, group, limit))))

    def _with_variants(self, entries: list[Entry]) -> list[Entry]:
        """Return the runs, with a variant if the ledger has runs of the same spec with other files."""
        several = set()
        for system in {entry.system for entry in entries if entry.record.local}:
            query = "SELECT DISTINCT record ->> '$.local' FROM runs WHERE system = ?"
            records = [RunRecord(local=orjson.loads(row[0] or "{}")) for row in self._db.rows(query, (system,))]
            if len({record.content for record in records}) > 1:
                several.add(system)
        return [replace(e, variant=e.record.content) if e.system in several else e for e in entries]

    def run(self, entry: Entry) -> Run:
        """Return the ranked lists of a run."""
        data = self._data("rankings", entry)
        if data is None:
            raise R2medError(f"run {entry.id} has no ranked lists; run it again with --fresh")
        return unpack(data)

    def generations(self, entry: Entry) -> dict[str, list[Generation]]:
        """Return the texts generated for each query of a run; empty for a run without expanders."""
        data = self._data("generations", entry)
        texts = orjson.loads(zlib.decompress(data)) if data is not None else {}
        return {query: [Generation(**fields) for fields in rows] for query, rows in texts.items()}

    def _data(self, table: str, entry: Entry) -> bytes | None:
        rows = self._db.rows(f"SELECT data, seal FROM {table} WHERE run = ?", (entry.id,))
        if not rows:
            return None
        data, written = rows[0]
        if seal(entry.id, data) != written:
            raise DamagedError(f"the {table} of run {entry.id} are damaged; r2med run {entry.system!r} --fresh")
        return bytes(data)

    def add_scores(self, entry: Entry, scores: Mapping[str, NDArray[np.float64]]) -> None:
        """Store further measures of a run, one value per query in the order of `entry.queries`."""
        with self._db.transaction() as db:
            self._write_scores(db, entry, scores)

    @staticmethod
    def _write_scores(db: Connection, entry: Entry, scores: Mapping[str, NDArray[np.float64]]) -> None:
        for measure, values in scores.items():
            if len(values) != len(entry.queries):
                raise ValueError(f"{measure}: {len(values)} values for {len(entry.queries)} queries")
            data = np.ascontiguousarray(values, dtype="<f8").tobytes()
            row = (entry.id, measure, float(values.mean()) if len(values) else 0.0, data)
            db.execute("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?)", (*row, seal(*row)))

    def scores(self, entry: Entry) -> dict[str, NDArray[np.float64]]:
        """Return each measure's per-query values."""
        rows = self._scores("SELECT run, measure, mean, per_query, seal FROM scores WHERE run = ?", (entry.id,))
        return {measure: np.frombuffer(data, dtype="<f8") for _, measure, _, data in rows}

    def means(self, measure: str = "") -> dict[str, dict[str, float]]:
        """Return every run's means, by run id and measure; of one measure alone if given."""
        by_run: dict[str, dict[str, float]] = defaultdict(dict)
        query = "SELECT run, measure, mean, per_query, seal FROM scores WHERE ?1 IN ('', measure)"
        for run, name, mean, _ in self._scores(query, (measure,)):
            by_run[run][name] = mean
        return dict(by_run)

    def _scores(self, query: str, values: tuple[str, ...]) -> Iterator[tuple[str, str, float, bytes]]:
        for run, measure, mean, data, written in self._db.rows(query, values):
            if seal(run, measure, mean, data) == written:
                yield run, measure, mean, data
            else:
                warn(f"the {measure} of run {run} is damaged in the ledger and left out; run it again")

    def remove(self, entries: Sequence[Entry]) -> None:
        """Remove runs, their scores and their ranked lists."""
        with self._db.transaction() as db:
            db.executemany("DELETE FROM runs WHERE id = ?", [(entry.id,) for entry in entries])

    def _sound(self, rows: Sequence[tuple[Any, ...]]) -> list[Entry]:
        """Return the runs whose rows are intact, and warn of the others."""
        entries: list[Entry] = []
        for row in rows:
            if (entry := _read_entry(row)) is not None:
                entries.append(entry)
            else:
                warn(f"run {row[0]} is damaged in the ledger and left out; make it again with r2med run")
        return entries


def _read_entry(row: tuple[Any, ...]) -> Entry | None:
    """Return the run of a row; None if the row is damaged."""
    *values, used, written, used_written = row
    if seal(*values) != written or seal(values[0], used) != used_written:
        return None
    _, key, system, task, group, created, seconds, queries, record = values
    content = RunRecord.from_json(orjson.loads(record))
    return Entry(key, system, task, group, _query_names(queries), seconds, content, created, used)


@lru_cache(maxsize=256)
def _query_names(queries: str) -> tuple[str, ...]:
    """Return the queries of a run; all runs on one task have the same."""
    return tuple(orjson.loads(queries))

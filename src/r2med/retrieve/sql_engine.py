"""A search in PostgreSQL as a retriever: `sql(file.sql, dsn_env=NAME)`.

The file is one SELECT that returns a document's id and, better, a score. `%(query)s`, `%(k)s` and `%(vector)s` in it
are parameters that travel beside the statement to the server: nothing is ever written into the statement.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from r2med.errors import DataError, R2medError, SpecError
from r2med.models.http import (
    AttemptError,
    FailedAttempts,
    FatalServerError,
    Pace,
    RequestLimits,
    backoff,
    with_attempts,
)
from r2med.pipeline.registry import spec_of
from r2med.pipeline.stage import Requirements
from r2med.retrieve.engine_replies import KeptReply
from r2med.retrieve.engine_request import ReplyPaths, hits_of
from r2med.retrieve.postgres import Postgres, StatementError, vector_text
from r2med.retrieve.remote_engine import Outcome, RemoteEngine
from r2med.storage.cache import cache_key
from r2med.storage.files import expanded, spelled

if TYPE_CHECKING:
    from r2med.pipeline.spec import Call

EXAMPLES = ("postgres-text", "postgres-vector", "postgres-hybrid")
"""Statements that ship with the package, over the table that `r2med index --to postgres` fills."""
DEFAULT_TABLE = "documents"
_PLACE = re.compile(r"%(?:\((?P<name>[^)]*)\)(?P<kind>.?)|(?P<other>.?))", re.DOTALL)
_KNOWN = ("query", "k", "vector")
_HOPELESS = 3
"""Queries that come to nothing, with none answered, until the statement counts as no good."""


def example(name: str, table: str = DEFAULT_TABLE) -> str:
    """A statement that ships with the package, over a table of that name."""
    text = (files("r2med.retrieve") / "sql" / f"{name}.sql").read_text("utf-8")
    if table == DEFAULT_TABLE:
        return text
    quoted = table.replace('"', '""').replace("%", "%%")
    return text.replace(f"FROM {DEFAULT_TABLE}", f'FROM "{quoted}"')


@dataclass(frozen=True)
class SqlEngine(RemoteEngine):
    """A SELECT of PostgreSQL, full-text, by vectors, or both."""

    file: str
    """The path of the file with the statement."""
    _: KW_ONLY
    dsn_env: str = "DATABASE_URL"
    """The environment variable with the address of the database, and its password."""
    encoder: str = ""
    """The encoder of the query's vector, for statements with `%(vector)s`."""
    chunk: str = ""
    """A regular expression whose first group is the document's id in the id of a chunk; the best chunk counts."""
    fetch: int = 0
    """How many rows are asked for, where rows are chunks; 0 for as many as `depth`."""
    depth: int = 100
    join: str = ""
    drop_self: bool | None = None
    unknown: float = 0.1
    """The share of returned ids that may be of documents that the task does not have; those are left out."""
    version: str = ""
    """Of what is in the database: change it when the table changes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", spelled(self.file))
        self._check_settings()
        if not re.fullmatch(r"[A-Za-z_]\w*", self.dsn_env):
            raise SpecError(
                f"{self._name}: dsn_env is the name of a variable that holds the address, such as dsn_env=MY_DSN"
            )
        self.statement  # noqa: B018 - a wrong file is an error before anything runs

    @property
    def _name(self) -> str:
        return f"sql({self.file})"

    @property
    def spec(self) -> Call:
        """The stage in the spec language."""
        return spec_of(self, "sql")

    @property
    def requirements(self) -> Requirements:
        """The driver of PostgreSQL, and the variable with the address."""
        return Requirements(extra="sql", key=self.dsn_env)

    @cached_property
    def statement(self) -> str:
        """The text of the file."""
        try:
            text = expanded(self.file).read_text("utf-8")
        except FileNotFoundError as error:
            known = ", ".join(EXAMPLES)
            raise DataError(f"{self.file}: no such file; `r2med engines show` prints examples: {known}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{self.file}: cannot be read ({error})") from error
        names = _parameters(self.file, text)
        if "k" not in names:
            raise SpecError(f"{self.file}: no %(k)s in it; end the statement with LIMIT %(k)s")
        if not names & {"query", "vector"}:
            raise SpecError(f"{self.file}: neither %(query)s nor %(vector)s is in it, so every query is the same")
        if ("vector" in names) != bool(self.encoder):
            hint = "give encoder=..." if "vector" in names else "leave encoder out"
            raise SpecError(f"{self.file}: {'has a' if 'vector' in names else 'has no'} %(vector)s; {hint}")
        return text

    def fingerprint(self) -> Mapping[str, object]:
        """The statement, which database is asked but for its password, and what the vectors depend on."""
        with closing(self._database()) as database:
            found = {"statement": cache_key(text=self.statement), "database": database.identity()}
        return found | self._encoder_settings()

    def local_content(self) -> Mapping[str, str]:
        """Return the file with the statement, and what belongs to the encoder."""
        return {str(expanded(self.file).resolve()): cache_key(text=self.statement), **self._encoder_content()}

    def describe(self) -> Mapping[str, object]:
        """What a plan shows."""
        with closing(self._database()) as database:
            name = database.name
        return {
            "statement": self.file,
            "database": name,
            "encoder": self.encoder or "none",
            "depth": self.depth,
            "rows asked for": self._hits,
            "join": self.join or "as published",
            "backend": "postgres",
        }

    def _database(self) -> Postgres:
        return Postgres(self.dsn_env, RequestLimits.configured())

    def _asked(
        self, left: Sequence[str], rows: Mapping[str, Mapping[str, Any]], failed: FailedAttempts
    ) -> Iterator[Outcome]:
        with closing(self._database()) as database:
            asker = _Asker(self.statement, self.file, database, self._pattern)
            asker.failed = failed
            with ThreadPoolExecutor(min(database.limits.concurrency, len(left))) as pool:
                jobs = {pool.submit(asker.ask, rows[query]): query for query in left}
                try:
                    yield from _outcomes(jobs)
                finally:
                    asker.stop.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    if any(job.running() for job in jobs):
                        database.cancel()


def _outcomes(jobs: Mapping[Any, str]) -> Iterator[Outcome]:
    """What comes of each query, as it comes; an error when none can fare better."""
    failed = answered = 0
    for job in as_completed(jobs):
        try:
            outcome = job.result()
            answered += 1
        except FatalServerError as error:
            raise R2medError(error.reason) from error
        except AttemptError as error:
            failed += 1
            if failed >= _HOPELESS and not answered:
                raise R2medError(error.reason) from error
            outcome = error.reason
        yield jobs[job], outcome


class _Asker:
    """Sends one statement with the values of each query."""

    def __init__(self, statement: str, file: str, database: Postgres, chunk: re.Pattern[str] | None) -> None:
        self._statement, self._file, self._database, self._chunk = statement, file, database, chunk
        self._pace = Pace(database.limits.requests_per_minute)
        self.stop = threading.Event()
        self.failed = FailedAttempts()
        self._lock = threading.Lock()

    def ask(self, row: Mapping[str, Any]) -> KeptReply:
        """One query's documents, asked for again where that may help."""
        values = {"query": row["query"], "k": row["k"]}
        values |= {"vector": vector_text(row["vector"])} if "vector" in row else {}
        attempt = 0
        while True:
            self._wait(self._pace.turn())
            try:
                return self._once(values)
            except StatementError as error:
                raise FatalServerError(f"{self._file}:{self._line(error)}: {error.reason}") from error
            except AttemptError as error:
                attempt += 1
                with self._lock:
                    self.failed.count(error)
                if not error.retry or attempt > min(2, self._database.limits.retries):
                    error.reason = with_attempts(error.reason, attempt)
                    raise
            self._wait(backoff(attempt, min(0.5, self._database.limits.backoff)))

    def _wait(self, seconds: float) -> None:
        if self.stop.wait(max(0.0, seconds)):
            raise AttemptError("stopped", retry=False)

    def _once(self, values: Mapping[str, Any]) -> KeptReply:
        self._database.connection()
        started = time.perf_counter()
        columns, rows = self._database.read(self._statement.encode(), values)
        seconds = time.perf_counter() - started
        if len(columns) > 2:
            found = ", ".join(columns)
            raise FatalServerError(f"{self._file}: the statement returns {found}; an id and a score are wanted")
        paths = ReplyPaths(hits="", id="0", score="1" if len(columns) == 2 else "")
        try:
            return KeptReply(hits_of(rows, paths, self._chunk), seconds)
        except (TypeError, ValueError) as error:
            raise FatalServerError(f"{self._file}: {_odd(rows)}") from error

    def _line(self, error: StatementError) -> int:
        """The line of the file; parameters are replaced within their lines, so that these can be counted."""
        sent = self._statement
        for name in _KNOWN:
            sent = re.sub(rf"%\({name}\)[sbt]", "$1", sent)
        return sent.count("\n", 0, error.position - 1) + 1


def _odd(rows: Sequence[Sequence[Any]]) -> str:
    """What is wrong with a row, in words."""
    for row in rows:
        if isinstance(row[0], bool) or not isinstance(row[0], str | int):
            return f"the first column holds {row[0]!r}, which is no document id; write id::text"
        try:
            fine = len(row) == 1 or math.isfinite(float(row[1]))
        except (TypeError, ValueError):
            fine = False
        if not fine:
            return f"the score of {row[0]!r} is {row[1]!r}, not a number; a score comes second"
    return "rows that cannot be read"


def _parameters(file: str, text: str) -> set[str]:
    """The names of a statement's parameters, each of which must be known."""
    names: set[str] = set()
    for match in _PLACE.finditer(text):
        if match["other"] == "%":
            continue
        line = text.count("\n", 0, match.start()) + 1
        if match["name"] not in _KNOWN or match["kind"] not in ("s", "b", "t"):
            known = ", ".join(f"%({name})s" for name in _KNOWN)
            raise SpecError(f"{file}:{line}: {match[0]!r} is no parameter; there are {known}, and a plain % is %%")
        names.add(match["name"])
    return names

"""PostgreSQL as a search engine: the stage `sql(FILE)`, its connections, and its statements."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from r2med.engines.remote import KeptReply, Outcome, RemoteEngine
from r2med.engines.request import ReplyPaths, number_of
from r2med.errors import DataError, R2medError, SpecError, require_extra
from r2med.models.http import AttemptError, FailedAttempts, FatalServerError, RequestLimits, TimedOut, mask
from r2med.models.server import Requester, RequestFailed
from r2med.pipeline.stage import Requirements
from r2med.store.files import expanded, spelled
from r2med.store.hashes import cache_key

if TYPE_CHECKING:
    import psycopg

_SECRET = ("password", "sslpassword", "passfile", "sslkey", "sslcert")
_IDLE = ("connect_timeout", "application_name", "keepalives", "gssencmode", "sslrootcert")
"""What changes neither which database is asked nor what it answers."""
_AGAIN = ("08", "40", "53", "57P")
"""Classes of errors after which the same statement may well be answered: lost connections, conflicts, full servers."""
_ALL_ALIKE = ("25006", "42501", "28000", "28P01", "3D000")
"""Errors that every statement would meet: no writing here, not allowed, wrong user or password, no such database."""
CANCELED = "57014"


class Postgres:
    """A database, by the name of the variable that holds its address."""

    def __init__(self, dsn_env: str, limits: RequestLimits) -> None:
        require_extra("sql", "psycopg")
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        self.dsn_env, self.limits = dsn_env, limits
        self._dsn = os.environ.get(dsn_env, "").strip()
        form = "database: postgresql://user:password@host:5432/name"
        if not self._dsn:
            raise R2medError(f"set {dsn_env} to the address of the {form}")
        settings = None
        with suppress(psycopg.ProgrammingError):  # its message quotes the address, and a password with it
            settings = conninfo_to_dict(self._dsn)
        if settings is None:
            raise R2medError(f"{dsn_env} does not hold the address of a {form}")
        self.settings: dict[str, Any] = settings
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[psycopg.Connection[Any]] = []

    @property
    def name(self) -> str:
        """Return host and database, for display."""
        at = self.settings.get("host") or self.settings.get("hostaddr") or "localhost"
        return f"{at}:{self.settings.get('port', 5432)}/{self.settings.get('dbname', '')}"

    def identity(self) -> list[tuple[str, str]]:
        """Return the settings that identify the database, without secret or irrelevant ones; for a key."""
        return sorted((name, str(value)) for name, value in self.settings.items() if name not in (*_SECRET, *_IDLE))

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection of this thread, made again if it was lost."""
        import psycopg

        open_connection: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if open_connection is not None and not open_connection.closed:
            return open_connection
        seconds = max(2, min(30, round(self.limits.timeout)))
        with self.errors():
            # A prepared statement may get another plan after some calls, and is lost behind a pooler.
            connection = psycopg.connect(self._dsn, connect_timeout=seconds, prepare_threshold=None)
        self._local.connection = connection
        with self._lock:
            self._open.append(connection)
        return connection

    def read(self, statement: bytes, values: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
        """Return the columns and rows of a statement, in a read-only transaction with a timeout."""
        connection = self.connection()
        with self.errors():
            connection.read_only = True
            with connection.transaction(force_rollback=True), connection.cursor() as cursor:
                cursor.execute(
                    "SELECT set_config('statement_timeout', %s, true)", (f"{self.limits.timeout * 1000:.0f}",)
                )
                cursor.execute(statement, values)
                if cursor.description is None:
                    raise FatalServerError("the statement returns no rows; it must be a SELECT")
                return [column.name for column in cursor.description], cursor.fetchall()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of the driver into failed attempts, with a message of one line and without a password."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            connection = getattr(self._local, "connection", None)
            if connection is not None and (connection.closed or connection.broken):
                self._local.connection = None
            raise self._failure(error) from error

    def _failure(self, error: psycopg.Error) -> AttemptError:
        from psycopg import OperationalError

        state = error.sqlstate or ""
        message = " ".join((error.diag.message_primary or str(error)).split())[:300]
        for name in _SECRET:
            message = mask(message, str(self.settings.get(name) or ""))
        if state == CANCELED:
            return TimedOut(f"no answer from {self.name} within {self.limits.timeout:g} s", retry=False)
        if error.diag.statement_position:
            return StatementError(message, int(error.diag.statement_position))
        if state.startswith("28"):
            return FatalServerError(f"{self.name} refused the user or password of {self.dsn_env}: {message}")
        if state in _ALL_ALIKE:
            return FatalServerError(f"{self.name}: {message}")
        again = state.startswith(_AGAIN) if state else isinstance(error, OperationalError)
        return AttemptError(f"{self.name}: {message}", retry=again)

    def cancel(self) -> None:
        """Cancel running statements, from another thread."""
        for connection in list(self._open):
            with suppress(Exception):  # a connection that is gone already has nothing to cancel
                connection.cancel()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._open:
            with suppress(Exception):  # it may be lost already
                connection.close()
        self._open.clear()


class StatementError(FatalServerError):
    """A statement that the database does not understand, at a place in it."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.position = position  # the character, counted from 1, in the statement as it was sent


def vector_text(vector: Sequence[float]) -> str:
    """Return a vector as pgvector reads it.

    >>> vector_text([0.5, -1.0])
    '[0.5,-1.0]'
    """
    return f"[{','.join(map(repr, vector))}]"


EXAMPLES = ("postgres-text", "postgres-vector", "postgres-hybrid")
"""Statements that ship with the package, over the table that `r2med engines push --to postgres` fills."""
DEFAULT_TABLE = "documents"
_PLACE = re.compile(r"%(?:\((?P<name>[^)]*)\)(?P<kind>.?)|(?P<other>.?))", re.DOTALL)
_KNOWN = ("query", "k", "vector")


def example(name: str, table: str = DEFAULT_TABLE) -> str:
    """Return a statement that ships with the package, over a table of that name."""
    text = (files("r2med.engines") / "sql" / f"{name}.sql").read_text("utf-8")
    if table == DEFAULT_TABLE:
        return text
    quoted = table.replace('"', '""').replace("%", "%%")
    return text.replace(f"FROM {DEFAULT_TABLE}", f'FROM "{quoted}"')


@dataclass(frozen=True)
class SqlEngine(RemoteEngine):
    """A SELECT of PostgreSQL, full-text, by vectors, or both."""

    file: str  # the path of the file with the statement
    _: KW_ONLY
    dsn_env: str = "DATABASE_URL"  # the environment variable with the address of the database, and its password
    encoder: str = ""  # the encoder of the query's vector, for statements with `%(vector)s`
    chunk: str = ""
    """A regular expression whose first group is the document's id in the id of a chunk; the best chunk counts."""
    fetch: int = 0  # how many rows are asked for, where rows are chunks; 0 for as many as `depth`
    depth: int = 100
    join: str = ""
    drop_self: bool | None = None
    unknown: float = 0.1
    """The share of returned ids that may be of documents that the task does not have; those are left out."""
    version: str = ""  # of what is in the database: change it when the table changes

    name = "sql"

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
    def requirements(self) -> Requirements:
        """Return the requirements: the driver of PostgreSQL, and the variable with the address."""
        return Requirements(extra="sql", key=self.dsn_env)

    @cached_property
    def statement(self) -> str:
        """Return the checked text of the file."""
        try:
            text = expanded(self.file).read_text("utf-8")
        except FileNotFoundError as error:
            examples = ", ".join(EXAMPLES)
            raise DataError(f"{self.file}: no such file; `r2med engines show` prints examples: {examples}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{self.file}: cannot be read ({error})") from error
        names = set()
        for match in _PLACE.finditer(text):
            if match["other"] == "%":
                continue
            if match["name"] not in _KNOWN or match["kind"] not in ("s", "b", "t"):
                place = f"{self.file}:{text.count(chr(10), 0, match.start()) + 1}"
                parameters = ", ".join(f"%({name})s" for name in _KNOWN)
                raise SpecError(
                    f"{place}: {match[0]!r} is not a parameter; there are {parameters}, and a plain % is %%"
                )
            names.add(match["name"])
        if "k" not in names:
            raise SpecError(f"{self.file}: no %(k)s in it; end the statement with LIMIT %(k)s")
        if not names & {"query", "vector"}:
            raise SpecError(f"{self.file}: neither %(query)s nor %(vector)s is in it, so every query is the same")
        if ("vector" in names) != bool(self.encoder):
            words = "a %(vector)s; give encoder=..." if "vector" in names else "no %(vector)s; leave encoder out"
            raise SpecError(f"{self.file}: has {words}")
        return text

    def fingerprint(self) -> Mapping[str, object]:
        """Return the statement, the database's identity without its password, and the settings of the vectors."""
        with closing(self._database()) as database:
            settings = {"statement": cache_key(text=self.statement), "database": database.identity()}
        return settings | self._encoder_settings()

    def local_content(self) -> Mapping[str, str]:
        """Return the file with the statement, and what belongs to the encoder."""
        return {str(expanded(self.file).resolve()): cache_key(text=self.statement), **self._encoder_content()}

    def describe(self) -> Mapping[str, object]:
        """Return what a plan shows."""
        with closing(self._database()) as database:
            name = database.name
        facts = {"statement": self.file, "database": name, "encoder": self.encoder or "none", "depth": self.depth}
        return {**facts, "rows asked for": self._hits, "join": self.join or "as published", "backend": "postgres"}

    def _database(self) -> Postgres:
        return Postgres(self.dsn_env, RequestLimits.configured())

    def _asked(
        self, left: Sequence[str], rows: Mapping[str, Mapping[str, Any]], failed: FailedAttempts
    ) -> Iterator[Outcome]:
        with closing(self._database()) as database:
            sender = _Sender(self, database)
            sender.failed = failed
            for place, answer in sender.ask_each([rows[query] for query in left]):
                yield left[place], str(answer) if isinstance(answer, RequestFailed) else answer


class _Sender(Requester[KeptReply]):
    """Sender of one statement with the values of each query."""

    def __init__(self, engine: SqlEngine, database: Postgres) -> None:
        limits = database.limits
        few = replace(limits, retries=min(2, limits.retries), backoff=min(0.5, limits.backoff))
        super().__init__(f"{engine.file}@{database.name}", few)
        self._engine, self._file, self._database = engine, engine.file, database

    def _cancel(self) -> None:
        self._database.cancel()

    def _attempt(self, body: Mapping[str, Any]) -> KeptReply:
        values = {"query": body["query"], "k": body["k"]}
        values |= {"vector": vector_text(body["vector"])} if "vector" in body else {}
        self._database.connection()
        started = time.perf_counter()
        try:
            columns, rows = self._database.read(self._engine.statement.encode(), values)
        except StatementError as error:
            # Parameters are replaced within their lines, so that these can be counted.
            sent = re.sub(rf"%\((?:{'|'.join(_KNOWN)})\)[sbt]", "$1", self._engine.statement)
            line = sent.count("\n", 0, error.position - 1) + 1
            raise FatalServerError(f"{self._file}:{line}: {error.reason}") from error
        seconds = time.perf_counter() - started
        if len(columns) > 2:
            names = ", ".join(columns)
            raise FatalServerError(f"{self._file}: the statement returns {names}; an id and a score are wanted")
        for name, *score in rows:
            if isinstance(name, bool) or not isinstance(name, str | int):
                fault = f"the first column holds {name!r}, which is not a document id; write id::text"
                raise FatalServerError(f"{self._file}: {fault}")
            if score and not math.isfinite(number_of(score[0])):
                fault = f"the score of {name!r} is {score[0]!r}, not a number; a score comes second"
                raise FatalServerError(f"{self._file}: {fault}")
        paths = ReplyPaths(hits="", id="0", score="1" if len(columns) == 2 else "")
        hits = paths.read_hits(rows, self._engine._pattern)
        self._health.answered = True
        self.requests += 1
        return KeptReply(hits, seconds)

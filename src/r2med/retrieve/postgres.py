"""Connections to PostgreSQL: the address from a variable, one connection a thread, and errors without passwords."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from r2med.errors import R2medError, require_extra
from r2med.models.http import AttemptError, FatalServerError, RequestLimits, TimedOut

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
    """A database by the name of the variable that holds its address."""

    def __init__(self, dsn_env: str, limits: RequestLimits) -> None:
        require_extra("sql", "psycopg")
        self.dsn_env, self.limits = dsn_env, limits
        self._dsn = _dsn(dsn_env)
        self.settings = _settings(dsn_env, self._dsn)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[psycopg.Connection[Any]] = []

    @property
    def name(self) -> str:
        """Host and database, for people."""
        at = self.settings.get("host") or self.settings.get("hostaddr") or "localhost"
        return f"{at}:{self.settings.get('port', 5432)}/{self.settings.get('dbname', '')}"

    def identity(self) -> list[tuple[str, str]]:
        """Which database is meant, without what is secret or idle; for a key."""
        return sorted((name, str(value)) for name, value in self.settings.items() if name not in (*_SECRET, *_IDLE))

    def connection(self) -> psycopg.Connection[Any]:
        """The connection of this thread, made anew where it was lost."""
        import psycopg

        kept: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if kept is not None and not kept.closed:
            return kept
        seconds = max(2, min(30, round(self.limits.timeout)))
        with self.errors():
            # A prepared statement may get another plan after some calls, and is lost behind a pooler.
            made = psycopg.connect(self._dsn, connect_timeout=seconds, prepare_threshold=None)
        self._local.connection = made
        with self._lock:
            self._open.append(made)
        return made

    def read(self, statement: bytes, values: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
        """The columns and rows of a statement, in a transaction that cannot write and ends in time."""
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
        """Turn what the driver raises into an attempt that failed, told in a line without a password."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            self._drop()
            raise self._told(error) from error

    def _drop(self) -> None:
        """Forget the connection of this thread if it is of no more use."""
        kept = getattr(self._local, "connection", None)
        if kept is not None and (kept.closed or kept.broken):
            self._local.connection = None

    def _told(self, error: psycopg.Error) -> AttemptError:
        from psycopg import OperationalError

        state = error.sqlstate or ""
        said = self._masked(error.diag.message_primary or str(error))
        if state == CANCELED:
            return TimedOut(f"no answer from {self.name} within {self.limits.timeout:g} s", retry=False)
        if error.diag.statement_position:
            return StatementError(said, int(error.diag.statement_position))
        if state.startswith("28"):
            return FatalServerError(f"{self.name} refused the user or password of {self.dsn_env}: {said}")
        if state in _ALL_ALIKE:
            return FatalServerError(f"{self.name}: {said}")
        again = state.startswith(_AGAIN) if state else isinstance(error, OperationalError)
        return AttemptError(f"{self.name}: {said}", retry=again)

    def _masked(self, text: str) -> str:
        line = " ".join(text.split())[:300]
        for name in _SECRET:
            if value := str(self.settings.get(name) or ""):
                line = line.replace(value, "***")
        return line

    def cancel(self) -> None:
        """End what is under way, from another thread."""
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
        self.position = position
        """The character, counted from 1, in the statement as it was sent."""


def _dsn(dsn_env: str) -> str:
    dsn = os.environ.get(dsn_env, "").strip()
    if not dsn:
        raise R2medError(f"set {dsn_env} to the address of the database: postgresql://user:password@host:5432/name")
    return dsn


def _settings(dsn_env: str, dsn: str) -> dict[str, Any]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # What the driver says here quotes the address, and a password with it.
        line = f"{dsn_env} does not hold the address of a database: postgresql://user:password@host:5432/name"
    raise R2medError(line)


def vector_text(vector: Sequence[float]) -> str:
    """A vector as pgvector reads it.

    >>> vector_text([0.5, -1.0])
    '[0.5,-1.0]'
    """
    return f"[{','.join(map(repr, vector))}]"

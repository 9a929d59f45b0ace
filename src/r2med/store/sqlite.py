"""A versioned SQLite file: refused if another version of r2med made it, with a seal on every row, readable even if
it cannot be written, and with one true line for every error of the file.

A seal is a checksum of a row's values, which SQLite lacks. Readers treat a row whose seal is broken as lost.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from r2med.errors import R2medError, StoreWarning
from r2med.store.files import reason

Value = str | bytes | int | float | None
TIMEOUT = 60.0  # seconds to wait for another process that is writing
_AFTERWARDS = 1.0  # seconds to wait once that was in vain
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL = 1 << 20  # A disk with fewer free bytes is full when something cannot be written to it
_WRITER = "120"  # the byte of the index of the write-ahead log that a writer locks


class StoreError(R2medError):
    """Error about a file of the store that cannot be written or read now; computed values are unaffected."""


class DamagedError(R2medError):
    """Error about a stored value that is not what was written; it has to be recomputed."""


def seal(*values: Value) -> int:
    """Return a checksum of values and of their types.

    >>> seal("a", 1, 0.5) == seal("a", 1, 0.5) != seal("a", 1, 0.25)
    True
    """
    check = 0
    for value in values:
        if isinstance(value, str | bytes):
            data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            data = b"%b%d:%b" % (b"s" if isinstance(value, str) else b"b", len(data), data)
        elif isinstance(value, float):
            data = b"f" + struct.pack("<d", value + 0.0)  # zero has one form in SQLite
        else:
            data = b"n" if value is None else b"i%d" % value
        check = zlib.crc32(data, check)
    return check


def warn(what: str) -> None:
    """Warn the user about stored values: damaged ones, and those that cannot be stored."""
    warnings.warn(what, StoreWarning, stacklevel=2)


@dataclass(frozen=True)
class Format:
    """Format of a file. A file with another format number is refused: it is neither read nor changed."""

    what: str  # the name in messages, such as `ledger`
    number: int  # the format number, raised whenever the tables or their contents change
    tables: str  # the statements that make an empty file
    cache: bool = False  # whether all of it can be recomputed

    def refusal(self, path: Path, number: int) -> R2medError:
        """Build the error about a file of another number."""
        advice = "remove it, it is made again" if self.cache else "move it away to start a new one, or use that version"
        if not number:
            return R2medError(f"{path}: not a {self.what}; {advice}")
        numbers = f"{self.what} {number}, this version has {self.number}"
        return R2medError(f"{path}: made by another version of r2med ({numbers}); {advice}")


class Database:
    """Connection to a versioned file. Several processes may use it; one thread, unless `shared`.

    A transaction of a `durable` one is on the disk when it ends, whatever happens to the machine.
    """

    def __init__(
        self, path: Path, form: Format, timeout: float | None = None, *, shared: bool = False, durable: bool = False
    ) -> None:
        self.path, self.form, self._shared, self._durable = path, form, shared, durable
        self.timeout = TIMEOUT if timeout is None else timeout
        self.obstacle = ""  # the reason why nothing can be written; empty if it can
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self.connection = self._opened()
        except sqlite3.DatabaseError as error:
            raise self.translate_error(error) from error
        if (number := _number(self.connection)) != form.number:
            self.close()
            raise form.refusal(path, number)

    def close(self) -> None:
        """Close the connection, and remove the copy if there is one."""
        self.connection.close()
        if self._copy is not None:
            self._copy.cleanup()

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        """Return all rows of a query."""
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self.translate_error(error) from error

    def stream(self, query: str, values: Sequence[Value] = ()) -> Iterator[Any]:
        """Yield the rows of a query one after another; they need not fit into memory."""
        try:
            yield from self.connection.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise self.translate_error(error) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a block whose writes happen all or not at all."""
        if self.obstacle:
            raise StoreError(f"{self.path}: cannot be written ({self.obstacle})")
        try:
            with _atomic(self.connection):
                yield self.connection
        except sqlite3.DatabaseError as error:
            raise self.translate_error(error) from error

    def translate_error(self, error: sqlite3.DatabaseError) -> R2medError:
        """Turn an error of SQLite into one that a user understands."""
        code = _code(error)
        if code in _BUSY:
            line = f"{self.path}: locked by {_holder(self.path)} for {self.timeout:.0f} s; nothing was written"
            self.timeout = min(self.timeout, _AFTERWARDS)
            with suppress(sqlite3.Error, AttributeError):
                self.connection.execute(f"PRAGMA busy_timeout = {self.timeout * 1000:.0f}")
            return StoreError(line)
        if code in _BROKEN or code == sqlite3.SQLITE_ERROR:
            advice = "move it away to start a new one"
            return StoreError(f"{self.path}: damaged, or not a {self.form.what} ({error}); {advice}")
        return StoreError(f"{self.path}: cannot be written ({_obstacle(self.path, error)})")

    def _opened(self) -> sqlite3.Connection:
        """Open the file; if it cannot be written, whatever can be read of it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                # Made for its owner alone; what SQLite puts beside it has the same rights.
                self.path.touch(mode=0o600)
            return self._filled(self._connect(str(self.path)))
        except OSError as error:
            self.obstacle = reason(error)
        except sqlite3.OperationalError as error:
            if _code(error) in (*_BUSY, *_BROKEN, sqlite3.SQLITE_ERROR):
                raise
            self.obstacle = _obstacle(self.path, error)
        return self._read_only()

    def _read_only(self) -> sqlite3.Connection:
        if not os.path.lexists(self.path):
            return self._filled(self._connect(":memory:"))
        if not os.access(self.path, os.R_OK):
            raise StoreError(f"{self.path}: cannot be read by this user")
        place, log = quote(str(self.path.absolute())), Path(f"{self.path}-wal")
        try:
            connection = self._connect(f"file:{place}?mode=ro")
        except sqlite3.OperationalError:
            if log.exists() and log.stat().st_size:
                # With the last writes of a killed process, which SQLite cannot recover where the file lies.
                try:
                    self._copy = tempfile.TemporaryDirectory(prefix="r2med-")
                    copy = f"{self._copy.name}/copy"
                    for ending in ("", "-wal"):
                        shutil.copy(f"{self.path}{ending}", f"{copy}{ending}")
                except OSError as error:
                    raise StoreError(f"{self.path}: cannot be read here ({reason(error)})") from error
                return self._filled(self._connect(copy))
            connection = self._connect(f"file:{place}?mode=ro&immutable=1")
        if _is_empty(connection):
            connection.close()
            return self._filled(self._connect(":memory:"))
        return connection

    def _connect(self, place: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            place,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=not self._shared,
            uri=place.startswith("file:"),
        )
        # What cannot be decoded is damaged, and the seal says so.
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        connection.create_function("seal", -1, seal, deterministic=True)
        if "mode=ro" not in place:
            connection.execute("PRAGMA journal_mode = WAL")
        # With a write-ahead log NORMAL survives any death of the process; only a power cut may take what came last.
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection

    def _filled(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        if _is_empty(connection):
            with _atomic(connection):
                # Another process may have done it while this one waited.
                if _is_empty(connection):
                    for statement in filter(str.strip, self.form.tables.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {self.form.number}")
        return connection


@contextmanager
def _atomic(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _number(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not _number(connection) and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _obstacle(path: Path, error: sqlite3.Error) -> str:
    """Return why a file cannot be written, in the words of the system rather than of SQLite."""
    with suppress(OSError):
        if _code(error) == sqlite3.SQLITE_FULL or shutil.disk_usage(path.parent).free < _FULL:
            return "the disk is full"
        if not os.access(path.parent, os.W_OK):
            return "the folder is read-only"
        if path.exists() and not os.access(path, os.W_OK):
            return "the file is read-only"
    return str(error)


def _holder(path: Path) -> str:
    """Describe the process that is writing, if the system tells."""
    with suppress(OSError, ValueError, IndexError):
        inode = Path(f"{path}-shm").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            _, _, _, kind, process, place, start, _ = line.split()
            if kind == "WRITE" and start == _WRITER and place.rpartition(":")[2] == str(inode):
                words = Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                stopped = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
                command = " ".join(Path(word).name if "/" in word else word for word in words)
                return f"process {process}{' (stopped)' if stopped else ''}: {' '.join(command.split())[:60].strip()}"
    return "another process"

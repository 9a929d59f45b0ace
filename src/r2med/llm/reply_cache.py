"""Cache of answers: every answer ever paid for, in one SQLite file, found by the hash of its request by any process.

An answer is committed as it arrives, before its slot is free again, so a process that is killed loses only what was
still under way; answers that arrive together are one transaction. The raw answer of the server is stored;
the reasoning is split off each time it is read, so better parsing costs nothing.

A process claims a request before it asks, and others wait for its answer. A claim is a lease that its process renews
while it lives; when that process dies, the next one takes the request over: at once if it can see that the process is
dead (on the same machine), else when the lease has run out. The first answer to a request stays: later runs find what
a result was made from.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from r2med.errors import R2medError
from r2med.llm.server import body
from r2med.llm.types import Model, RawAnswer, Request, Token
from r2med.store.cache import home
from r2med.store.processes import is_gone, process_mark
from r2med.store.sqlite import Database, Format, StoreError, seal, warn
from r2med.usage import Usage

Value = TypeVar("Value")
_TABLES = """
CREATE TABLE answers (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    created TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    request TEXT NOT NULL,
    answer TEXT NOT NULL,
    server TEXT NOT NULL,
    problem TEXT NOT NULL,
    seal INTEGER NOT NULL,
    kind TEXT NOT NULL
);
CREATE INDEX answers_by_kind ON answers (model, server, kind, completion_tokens);
CREATE TABLE claims (
    key TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    expires REAL NOT NULL
);
"""
_USED = "key, model, server, prompt_tokens, completion_tokens, answer, problem"
"""Columns of an answer that are used, and sealed; the request is stored for users to read."""
_FORMAT = Format("file of kept answers", 5, _TABLES, cache=True)
_LEASE = 10.0  # seconds for which a claim holds without a sign of its process
_UNREAD = "could not be read"  # the problem of an answer in which the command that asked for it found no decision
_OF_NO_USE = "(problem != '' OR json_extract(answer, '$.finish') = 'length')"
"""Answers that are asked for again, and those that were cut by the limit on their length."""
_LONG_LOG_PAGES = 1 << 14
_PATIENCE, _LOOK_AGAIN = 60.0, 0.02  # seconds to wait for another process that holds the file, and between two tries


class FileInUse(Exception):
    """The file cannot be written at this moment: another thread or process is writing. Never leaves the client."""


class Claim(NamedTuple):
    """Outcome of claiming a request."""

    mine: bool  # whether this process is to ask it
    answer: RawAnswer | None = None  # the answer that another process got in the meantime


class TypicalUsage(NamedTuple):
    """Number of the kept answers of a kind, with the tokens read and written on average."""

    answers: int
    prompt: float
    completion: float


@dataclass(frozen=True)
class Holding:
    """The stored answers of a model on a server."""

    model: str
    server: str  # the address, or the name of a set of servers; empty for a model of this process
    answers: int
    unusable: int
    bytes: int


class ReplyCache:
    """The file of stored answers. One object may serve several threads; several processes may use one file."""

    def __init__(self, path: Path | None = None, lease: float = _LEASE, patience: float = _PATIENCE) -> None:
        self.path = path or home() / "llm.sqlite"
        self._owner = f"{process_mark()} {uuid.uuid4().hex}"
        self._lease, self._patience = lease, patience
        # Readers never wait for a writer, so that a locked file does not hold up reading.
        self._write_lock, self._read_lock, self._log_lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._locked_since: float | None = None
        self._claims: set[str] = set()
        self._closing = threading.Event()
        self._renewer: threading.Thread | None = None
        self._written, self._read_from, self._log = files = [
            Database(self.path, _FORMAT, patience, shared=True) for _ in range(3)
        ]
        self._writer = self._written.connection
        for file in files:
            # From here on it is this class that waits, where a signal can reach it.
            file.connection.execute("PRAGMA busy_timeout = 0")
        # Moving the log into the file waits for the disk, so a thread does it; the writer only when the log is long.
        self._writer.execute(f"PRAGMA wal_autocheckpoint = {_LONG_LOG_PAGES}")
        self._writer.create_function("is_gone", 1, lambda owner: is_gone(owner.rpartition(" ")[0]))

    def close(self) -> None:
        """Release the claims and close the file."""
        self._closing.set()
        if self._claims:
            # If this fails, they run out by themselves.
            with suppress(R2medError, sqlite3.DatabaseError):
                self._write(lambda: self._writer.execute("DELETE FROM claims WHERE owner = ?", (self._owner,)))
        with self._write_lock, self._read_lock, self._log_lock:
            for file in (self._written, self._read_from, self._log):
                file.close()

    def find(self, keys: Iterable[str]) -> dict[str, RawAnswer]:
        """Return the stored answers among these keys."""
        query = f"SELECT {_USED}, seal FROM answers WHERE key IN (SELECT value FROM json_each(?))"
        rows = self._read(query, [orjson.dumps(list(keys)).decode()])
        return {row[0]: answer for row in rows if (answer := self._sound(row)) is not None}

    def write(self, works: Sequence[Callable[[], Any]], *, wait: bool = True) -> list[Any]:
        """Run some work on the file in one transaction, all of it or nothing; return the results.

        Without `wait`, raises `FileInUse` if the file is being written.
        """
        return self._write(lambda: [work() for work in works], wait)

    def claim(self, key: str, reject: RawAnswer | None = None) -> Claim:
        """Claim a request inside `write`, unless another process is asking it or has its answer.

        `reject` is an unusable answer: it is removed, and the request is asked again. A newer answer is used.
        """
        answer = self._kept(key)
        if answer is not None and answer != reject:
            return Claim(False, answer)
        now = time.time()
        claimed = self._writer.execute(
            "INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET owner = excluded.owner,"
            " expires = excluded.expires WHERE expires < ? OR expires > ? OR is_gone(owner)",
            (key, self._owner, now + self._lease, now, now + 10 * _LEASE),
        ).rowcount
        if claimed:
            self._writer.execute("DELETE FROM answers WHERE key = ?", (key,))
            self._claims.add(key)
            if self._renewer is None or not self._renewer.is_alive():
                self._renewer = threading.Thread(target=self._renew_claims, name="r2med-claims", daemon=True)
                self._renewer.start()
        return Claim(bool(claimed))

    def release(self, key: str) -> None:
        """Release a claim without an answer, inside `write`."""
        self._writer.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))
        self._claims.discard(key)

    def keep(self, key: str, request: Request, answer: RawAnswer, problem: str = "") -> RawAnswer:
        """Store an answer inside `write`, and return the one that stays: the first stored."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        asked, text = orjson.dumps(body(request)).decode(), encode_answer(answer)
        model, tokens = request.model, (answer.usage.prompt_tokens, answer.usage.completion_tokens)
        checksum = seal(key, model.id, model.server, *tokens, text, problem)
        row = (key, model.id, now, *tokens, asked, text, model.server, problem, checksum, request.kind)
        fresh = self._writer.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self.release(key)
        return answer if fresh.rowcount else self._kept(key) or answer

    def reject(self, key: str, raw: str) -> RawAnswer | None:
        """Mark an answer of this text as unreadable, inside `write`; return it, or None if it was replaced."""
        answer = self._kept(key)
        if answer is None or answer.text != raw:
            return None
        self._writer.execute("UPDATE answers SET problem = ? WHERE key = ? AND problem = ''", (_UNREAD, key))
        self._writer.execute(f"UPDATE answers SET seal = seal({_USED}) WHERE key = ?", (key,))
        return answer

    def typical(self, model: Model, kind: str) -> TypicalUsage:
        """Return what the kept answers to requests of a kind took on average."""
        query = (
            "SELECT count(*), ifnull(avg(prompt_tokens), 0.0), ifnull(avg(completion_tokens), 0.0) FROM answers"
            " WHERE model = ? AND server = ? AND kind = ?"
        )
        return TypicalUsage(*self._read(query, (model.id, model.server, kind))[0])

    def holdings(self) -> list[Holding]:
        """List the stored answers, by model and server."""
        query = (
            f"SELECT model, server, count(*), sum({_OF_NO_USE}), sum(length(CAST(request AS BLOB))"
            " + length(CAST(answer AS BLOB))) FROM answers GROUP BY model, server ORDER BY model, server"
        )
        return [Holding(*row) for row in self._read(query)]

    def clear(self, model: str = "", *, unusable: bool = False) -> int:
        """Remove answers: of one model or of all, all of them or the unusable ones. Returns the number removed."""
        query = f"DELETE FROM answers WHERE (? = '' OR model = ?) AND (NOT ? OR {_OF_NO_USE})"
        gone = self._write(lambda: self._writer.execute(query, (model, model, unusable)).rowcount)
        if gone:
            with self._write_lock:
                self._writer.execute("VACUUM")
        return gone

    def __len__(self) -> int:
        return int(self._read("SELECT count(*) FROM answers")[0][0])

    def _read(self, query: str, values: Sequence[str] = ()) -> list[Any]:
        with self._read_lock:
            return self._read_from.rows(query, values)

    def _sound(self, row: tuple[Any, ...]) -> RawAnswer | None:
        """Return the answer of a row; None if the row is damaged, so that it is asked again."""
        *values, written = row
        if seal(*values) != written:
            warn(f"{self.path}: a kept answer of {values[1]} is damaged and is asked again")
            return None
        return replace(decode_answer(values[5]), unread=values[6] == _UNREAD)

    def _kept(self, key: str) -> RawAnswer | None:
        row = self._writer.execute(f"SELECT {_USED}, seal FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._sound(row)

    def _write(self, work: Callable[[], Value], wait: bool = True) -> Value:
        """Run some work in one transaction; while the file is being written, wait up to the patience, or not at all."""
        file = self._written
        if file.obstacle:
            raise StoreError(f"{self.path}: cannot be written ({file.obstacle}); nothing more is asked")
        while True:
            if not self._write_lock.acquire(blocking=wait):
                raise FileInUse
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    value = work()
                    self._writer.execute("COMMIT")
                except BaseException:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    raise
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise StoreError(f"{file.translate_error(error)}; nothing more is asked") from error
                if not wait:
                    raise FileInUse from error
                self._locked_since = self._locked_since or time.monotonic()
                if time.monotonic() - self._locked_since > self._patience:
                    raise R2medError(
                        f"{self.path}: another process has held it for {self._patience:g} s, so no answer can be kept"
                        " and nothing more is asked; end that process (is it suspended?) and run the same command again"
                    ) from error
            else:
                self._locked_since = None
                return value
            finally:
                self._write_lock.release()
            time.sleep(_LOOK_AGAIN)

    def _renew_claims(self) -> None:
        """Renew the claims, which a busy event loop cannot hold up, and move the write-ahead log into the file."""
        renew = "UPDATE claims SET expires = ? WHERE owner = ?"
        while not self._closing.wait(self._lease / 4):
            # If this fails, the next write of an answer fails the same way and reports it.
            with suppress(R2medError, sqlite3.DatabaseError):
                if self._claims:
                    self._write(lambda: self._writer.execute(renew, (time.time() + self._lease, self._owner)))
                with self._log_lock:
                    self._log.rows("PRAGMA wal_checkpoint(PASSIVE)")


def encode_answer(answer: RawAnswer) -> str:
    """Encode an answer as JSON."""
    tokens = [list(token) for token in answer.logprobs]
    fields = {name: value for name, value in vars(answer).items() if name != "unread"}
    return orjson.dumps({**fields, "usage": answer.usage.as_json(), "logprobs": tokens}).decode()


def decode_answer(text: str) -> RawAnswer:
    """Decode an answer from JSON."""
    data = orjson.loads(text)
    tokens = tuple(Token(word, value, tuple(map(tuple, top))) for word, value, top in data.pop("logprobs"))
    return RawAnswer(**{**data, "usage": Usage(**data["usage"]), "logprobs": tokens})


_DELAY = 0.02  # seconds for which a write that is not urgent is delayed


class GroupedWrites:
    """Queue of writes that are committed together. Lives on one event loop; the file is opened with the first write."""

    def __init__(self, answers: Callable[[], ReplyCache]) -> None:
        self._answers = answers
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._due: asyncio.Handle | None = None
        self._urgent = self._writing = False
        self._thread = ThreadPoolExecutor(1, "r2med-answers")

    async def write(self, work: Callable[[], Value], *, urgent: bool = True) -> Value:
        """Return the result of some work on the file once it is committed; an urgent one commits all that wait."""
        outcome: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, outcome))
        self._schedule(urgent)
        return await outcome

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _schedule(self, urgent: bool) -> None:
        if self._writing or (self._due is not None and (self._urgent or not urgent)):
            return
        if self._due is not None:
            self._due.cancel()
        self._urgent, loop = urgent, asyncio.get_running_loop()
        self._due = loop.call_soon(self._flush) if urgent else loop.call_later(_DELAY, self._flush)

    def _flush(self) -> None:
        """Write at once, or in a thread while another process holds the file; the order of the writes stays."""
        self._due = None
        waiting, self._waiting = self._waiting, []
        works = [work for work, _ in waiting]

        def settle(write: Callable[[], list[Any]]) -> None:
            """Give each write its value, or all of them the error."""
            error: Exception | None = None
            values: list[Any] = [None] * len(waiting)
            try:
                values = write()
            except FileInUse:
                raise
            except Exception as failure:  # any error goes to all callers that wait for the write
                error = failure
            for (_, outcome), value in zip(waiting, values, strict=True):
                if not outcome.done():
                    outcome.set_result(value) if error is None else outcome.set_exception(error)

        def settle_later(done: asyncio.Future[list[Any]]) -> None:
            self._writing = False
            settle(done.result)
            if self._waiting:
                self._schedule(urgent=True)

        try:
            settle(lambda: self._answers().write(works, wait=False))
        except FileInUse:
            self._writing = True
            later = asyncio.get_running_loop().run_in_executor(self._thread, self._answers().write, works)
            later.add_done_callback(settle_later)

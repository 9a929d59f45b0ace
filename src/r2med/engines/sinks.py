"""Sinks that documents are pushed to: an engine behind HTTP, or a table of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import orjson

from r2med.engines.http import EngineConnection
from r2med.engines.sql import Postgres, vector_text
from r2med.engines.targets import EngineAnswer, IndexTarget, Push, PushedDocument
from r2med.errors import R2medError
from r2med.models.http import AttemptError, backoff

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_WAIT = 0.05
"""Seconds until a task of the engine is asked about again, to begin with."""


class EngineWriter(EngineConnection[EngineAnswer]):
    """The connection that documents are sent over."""

    path = "r2med engines push"
    made = "documents sent"

    def ask(self, push: Push) -> EngineAnswer:
        """Send a request, and retry it until it is answered or hopeless."""
        return self._ask(vars(push))

    def place(self, body: Mapping[str, Any]) -> tuple[str, str]:
        """Return method and path, which differ between requests."""
        return body["method"], body["path"]

    def sent(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content and its type."""
        return {"content": body["content"], "headers": {"Content-Type": body["type"]}}

    def read(self, answer: Any, body: Mapping[str, Any]) -> EngineAnswer:
        """Raise an error: the meaning of an answer depends on the request."""
        raise AssertionError(body["path"])

    def _attempt(self, body: Mapping[str, Any]) -> EngineAnswer:
        response, content = self._post(body)
        if response.status_code not in (200, 201, 202, *body["accept"]):
            raise self._refusal(response, content.decode("utf-8", "replace"))
        self._count(None)
        try:
            return EngineAnswer(response.status_code, orjson.loads(content) if content.strip() else {})
        except orjson.JSONDecodeError as error:
            try:  # a line of JSON per row
                rows = [orjson.loads(line) for line in content.splitlines() if line.strip()]
            except orjson.JSONDecodeError:
                raise AttemptError(f"{self.url} sent an answer that cannot be read", retry=False) from error
            return EngineAnswer(response.status_code, rows)


class EngineSink:
    """An engine behind HTTP."""

    def __init__(self, target: IndexTarget, writer: EngineWriter) -> None:
        self.target, self._writer = target, writer

    def _ask(self, push: Push) -> EngineAnswer:
        return self._writer.ask(self.target.addressed(push))

    def begin(self) -> int:
        """Create the index if it does not exist, and return how many documents it holds."""
        if self.target.there(self._ask(self.target.exists())):
            # A push that was stopped may have sent what no search shows yet.
            return self.finish()
        for push in self.target.create():
            self._do(push)
        return 0

    def add(self, documents: Sequence[PushedDocument]) -> None:
        """Send a batch, or each document by itself if the engine takes one at a time."""
        batches = [[document] for document in documents] if self.target.one_by_one else [documents]
        for batch in batches:
            self._do(self.target.add(batch))

    def _do(self, push: Push) -> None:
        answer = self._ask(push)
        attempt = 0
        while (later := self.target.waits(answer)) is not None:
            attempt += 1
            time.sleep(min(2.0, backoff(attempt, _WAIT)))
            answer = self._ask(later)
        if reason := self.target.refused(answer):
            raise R2medError(f"{self._writer.url} did not take {reason}")

    def finish(self) -> int:
        """Make everything visible to the next search, and count the documents."""
        for push in self.target.visible:
            self._ask(push)
        return self.target.counted(self._ask(self.target.count()))

    def mapping(self) -> str:
        """Return the requests that create the index."""
        return self.target.mapping()

    def size(self, document: PushedDocument) -> int:
        """Return the bytes of a request with only this document."""
        return len(self.target.add([document]).content)

    def close(self) -> None:
        """Do nothing: the client's connections end with it."""


class PostgresSink:
    """A table with an id, a text, its words for full-text search and, if wanted, a vector."""

    def __init__(self, table: str, dimension: int, database: Postgres) -> None:
        self._table, self._dimension, self._database = table, dimension, database

    def _statements(self) -> tuple[list[sql.Composed | sql.SQL], list[sql.Composed | sql.SQL]]:
        """Return the statements before and after the documents."""
        sql = _sql()
        table = sql.Identifier(self._table)
        vector = sql.SQL(", vector vector({})").format(sql.Literal(self._dimension)) if self._dimension else sql.SQL("")
        words = "tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED"
        columns = f"id text PRIMARY KEY, text text NOT NULL, words_of_text {words}"
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}{})").format(table, sql.SQL(columns), vector)
        extension = [sql.SQL("CREATE EXTENSION IF NOT EXISTS vector")] if self._dimension else []
        index = sql.Identifier(f"{self._table}_words_of_text")
        gin = sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING gin (words_of_text)").format(index, table)
        return [*extension, create], [gin, sql.SQL("ANALYZE {}").format(table)]

    def _run(self, statements: Sequence[sql.Composed | sql.SQL]) -> int:
        """Run statements and return how many rows the table has."""
        sql = _sql()
        with self._transaction() as connection:
            for statement in statements:
                connection.execute(statement)
            row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(self._table))).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a transaction; errors of the driver become errors of one line."""
        connection = self._database.connection()
        try:
            with self._database.errors(), connection.transaction():
                yield connection
        except AttemptError as error:
            raise R2medError(error.reason) from error

    def begin(self) -> int:
        """Create the table if it does not exist, and return how many rows it has."""
        return self._run(self._statements()[0])

    def add(self, documents: Sequence[PushedDocument]) -> None:
        """Insert rows, in place of those with the same ids."""
        sql = _sql()
        names = ["id", "text", *(["vector"] if self._dimension else [])]
        rows = [self._row(document) for document in documents]
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}").format(
            sql.Identifier(self._table),
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join([sql.Placeholder()] * len(names)),
            sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names[1:]),
        )
        with self._transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def _row(self, document: PushedDocument) -> tuple[str, ...]:
        """Return a row; zero bytes become spaces, since a text of PostgreSQL cannot hold them."""
        plain = (document.id, document.text.replace("\x00", " "))
        return plain if document.vector is None else (*plain, vector_text(document.vector))

    def finish(self) -> int:
        """Index the words, and count."""
        return self._run(self._statements()[1])

    def mapping(self) -> str:
        """Return the statements."""
        return "".join(f"{statement.as_string(None)};\n" for part in self._statements() for statement in part)

    def size(self, document: PushedDocument) -> int:
        """Return the bytes of a row as text."""
        return sum(len(value.encode("utf-8", "replace")) for value in self._row(document))

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _sql() -> ModuleType:
    """Return the module that composes statements, from an extra."""
    from psycopg import sql

    return sql


Sink = EngineSink | PostgresSink
"""A store that documents can be put into."""

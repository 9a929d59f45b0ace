"""Pushing a task's documents into a search engine: a plan, batches that can be resumed, and a count at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import structs

from r2med.data.dataset import Texts
from r2med.data.loader import load
from r2med.encode.batching import encode_all, to_encode
from r2med.encode.encoder import Encoder, Role
from r2med.engines.http import EngineConnection, HttpEngine
from r2med.engines.request import read_request
from r2med.engines.sql import DEFAULT_TABLE, Postgres, vector_text
from r2med.engines.targets import TARGETS, EngineAnswer, IndexTarget, Push, PushedDocument, PushTemplate
from r2med.errors import R2medError, SpecError, suggest
from r2med.formatting import counted, shorten
from r2med.models.http import AttemptError, RequestLimits, backoff, check_url, server_name
from r2med.pipeline.executor.local import Executor, begin_command, quiet
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context
from r2med.retrieve.dense import Dense
from r2med.retrieve.documents import with_text
from r2med.store.cache import Cache, home
from r2med.store.hashes import cache_key
from r2med.store.sqlite import Database, Format, StoreError

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

POSTGRES = "postgres"
_WAIT = 0.05  # seconds until a task of the engine is asked about again, to begin with
_AT_ONCE = 4  # batches under way at a time, unless the user says otherwise
_TABLE = """
CREATE TABLE pushed (
    target TEXT,
    first INTEGER,
    last INTEGER,
    PRIMARY KEY (target, first, last)
) WITHOUT ROWID;
"""
_FORMAT = Format("list of pushed documents", 1, _TABLE, cache=True)


@dataclass(frozen=True)
class PushRequest:
    """Documents to push, and the engine and index to push them to."""

    task: str
    engine: str
    url: str = ""
    index: str = ""  # empty for a name made of the task's
    encoder: str = ""  # whose vectors go along; empty for none
    dsn_env: str = "DATABASE_URL"  # the variable with the address, for PostgreSQL
    batch: int = 200

    def __post_init__(self) -> None:
        if self.engine not in (*TARGETS, POSTGRES):
            raise R2medError(f"unknown engine {self.engine!r}{suggest(self.engine, [*TARGETS, POSTGRES])}")
        if self.engine == POSTGRES and self.url:
            raise R2medError(f"the address of a database is in a variable: --dsn-env {self.dsn_env}, without --url")
        if self.engine != POSTGRES and not self.url:
            raise R2medError(f"where does {self.engine} listen? --url http://host:port")
        if self.engine in TARGETS and TARGETS[self.engine].needs_vectors and not self.encoder:
            raise R2medError(f"{self.engine} holds vectors: say which, --encoder SPEC")
        if self.batch < 1:
            raise R2medError(f"--batch must be 1 or more, not {self.batch}")


@dataclass(frozen=True)
class PushPlan:
    """Plan of a push."""

    engine: str
    index: str
    documents: int
    left_out: int  # documents without text, which have no vector
    batches: int
    bytes: int  # about as many are sent, vectors included
    to_encode: int
    mapping: str


@dataclass(frozen=True)
class PushResult:
    """Result of a push."""

    engine: str
    index: str
    documents: int
    left_out: int
    sent: int  # those of this command; the others were there already
    count: int  # what the engine counts afterwards
    seconds: float
    system: str  # the spec that searches what was pushed
    warnings: tuple[str, ...] = ()


class _Work:
    """A request with its data, encoder and index resolved."""

    def __init__(self, request: PushRequest) -> None:
        self.request = request
        collection = load(request.task).collection
        self.task, self.documents = collection.task.name, collection.documents
        self.encoder: Encoder | None = None
        target = TARGETS.get(request.engine)
        if request.encoder:
            stage = build_system(request.encoder).stages[-1]
            if not isinstance(stage, Dense):
                raise SpecError(f"--encoder {request.encoder}: that is not an encoder")
            self.encoder = stage.encoder(collection.task)
            self.documents = with_text(collection.documents)
        self.left_out = len(collection.documents) - len(self.documents)
        if not len(self.documents):
            raise R2medError(f"{self.task} has no documents to push")
        longest = target.longest if target else 0
        for document, text in self.documents if longest else ():
            if len(text.encode("utf-8", "replace")) > longest:
                raise R2medError(f"{request.engine} holds texts of {longest:,} bytes, {shorten(document)!r} is longer")
        self.index = request.index or (target.default_name(self.task) if target else DEFAULT_TABLE)

    def sink(self, dimension: int) -> _EngineSink | _PostgresSink:
        """Return the index, with a place for vectors of so many dimensions."""
        request = self.request
        if request.engine == POSTGRES:
            return _PostgresSink(self.index, dimension, self.database())
        similarity = self.encoder.similarity if self.encoder else "cosine"
        target = IndexTarget(request.engine, self.index, dimension, similarity)
        requests = read_request(request.engine, vector=bool(dimension))
        variables = ", ".join(requests.keys()) or "a variable"
        url = check_url(request.engine, request.url, variables, "--url http://host:port")
        return _EngineSink(target, _EngineWriter(requests, url))

    def database(self) -> Postgres:
        return Postgres(self.request.dsn_env, RequestLimits.configured())

    def key(self) -> str:
        """Return the key of what was pushed: the place, and all that a pushed document is made of."""
        request = self.request
        place = server_name(request.url) if request.url else self.database().identity()
        settings = sorted(self.encoder.settings(Role.DOCUMENT).items()) if self.encoder else []
        return cache_key(push=(request.engine, place, self.index, self.documents.fingerprint, settings))

    def check_count(self, count: int, before: int) -> None:
        """Refuse an index that holds other documents too, or not all of them."""
        total = len(self.documents)
        if count != total:
            held = f"{self.request.engine} counts {counted(count, 'document')} in {self.index}"
            more = f"it held {before:,} before; choose another --index"
            why = more if count > total else "the push is not complete"
            raise R2medError(f"{held}, {self.task} has {total:,}: {why}")

    def system(self) -> str:
        """Return the spec of the system that searches what was pushed."""
        request = self.request
        if request.engine == POSTGRES:
            name = "postgres-vector" if self.encoder else "postgres-text"
            encoder = f", encoder={request.encoder}" if self.encoder else ""
            return f"sql({name}.sql, dsn_env={request.dsn_env}{encoder})"
        target = IndexTarget(request.engine, self.index, int(self.encoder is not None))
        options: dict[str, Any] = {"index": self.index, "encoder": request.encoder, **target.options()}
        return str(HttpEngine(request.engine, url=request.url, **options))


def plan_push(request: PushRequest) -> PushPlan:
    """Return the plan of a push; nothing is sent, and at most one text is encoded."""
    work = _Work(request)
    documents, encoder = work.documents, work.encoder
    waiting = dimension = 0
    if encoder:
        first = Texts(list(documents.ids[:1]), list(documents.texts[:1]))
        waiting = to_encode(encoder, documents, Role.DOCUMENT)
        dimension = encode_all(encoder, first, Role.DOCUMENT, Context(Cache.default(), quiet())).shape[1]
    vector = [-0.0123456789] * dimension if dimension else None
    total = len(documents)
    with closing(work.sink(dimension)) as sink:
        sizes = [
            sink.size(PushedDocument(documents.ids[place], documents.texts[place], vector))
            for place in range(0, total, max(1, total // 200))
        ]
        mapping = sink.mapping()
    batches, about = -(-total // request.batch), round(sum(sizes) / len(sizes) * total)
    return PushPlan(request.engine, work.index, total, work.left_out, batches, about, waiting, mapping)


def push(request: PushRequest, engine: Executor | None = None) -> PushResult:
    """Push the documents that are missing, and check the count afterwards."""
    started = time.perf_counter()
    begin_command()
    context = Context(Cache.default(), engine or quiet())
    work = _Work(request)
    documents = work.documents
    vectors = encode_all(work.encoder, documents, Role.DOCUMENT, context) if work.encoder else None

    def send(span: tuple[int, int]) -> tuple[int, int]:
        first, last = span
        rows = vectors[first:last].tolist() if vectors is not None else [None] * (last - first)
        sink.add(list(map(PushedDocument, documents.ids[first:last], documents.texts[first:last], rows)))
        return span

    dimension = vectors.shape[1] if vectors is not None else 0
    with closing(work.sink(dimension)) as sink, closing(_Pushed(work.key())) as pushed:
        before = sink.begin()
        if before > len(documents):
            work.check_count(before, before)
        if before < pushed.total():
            pushed.forget()
        spans = [
            (start, min(start + request.batch, end))
            for first, end in pushed.gaps(len(documents))
            for start in range(first, end, request.batch)
        ]
        sent = sum(last - first for first, last in spans)
        pool = ThreadPoolExecutor(min(RequestLimits.configured().concurrency, _AT_ONCE))
        try:
            with context.executor.progress(f"push to {request.engine}", sent, unit="documents") as bar:
                for first, last in pool.map(send, spans):
                    pushed.add(first, last)
                    bar.advance(last - first)
        finally:
            pool.shutdown(cancel_futures=True)
        count = sink.finish()
    work.check_count(count, before)
    seconds = round(time.perf_counter() - started, 3)
    return PushResult(
        request.engine, work.index, len(documents), work.left_out, sent, count, seconds, work.system(),
        tuple(context.notes.warnings),
    )  # fmt: skip


class _Pushed:
    """Record of the documents of a push that have arrived, by their places in the task."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._db = Database(home() / "pushes.sqlite", _FORMAT)

    def close(self) -> None:
        self._db.close()

    def _spans(self) -> list[tuple[int, int]]:
        return self._db.rows("SELECT first, last FROM pushed WHERE target = ? ORDER BY first", (self._key,))

    def total(self) -> int:
        return sum(last - first for first, last in self._spans())

    def gaps(self, total: int) -> list[tuple[int, int]]:
        """Return the spans that have not arrived."""
        edges = [(0, 0), *self._spans(), (total, total)]
        return [(before[1], after[0]) for before, after in pairwise(edges) if before[1] < after[0]]

    def add(self, first: int, last: int) -> None:
        """Record a span; if that fails, the span is only sent again."""
        with suppress(StoreError), self._db.transaction() as db:
            db.execute("INSERT OR REPLACE INTO pushed VALUES (?, ?, ?)", (self._key, first, last))

    def forget(self) -> None:
        """Remove the record: the index was emptied or removed since."""
        with suppress(StoreError), self._db.transaction() as db:
            db.execute("DELETE FROM pushed WHERE target = ?", (self._key,))


class _EngineWriter(EngineConnection[EngineAnswer]):
    """The connection that documents are sent over."""

    path = "r2med engines push"
    made = "documents sent"

    def ask(self, push: Push) -> EngineAnswer:
        return self._ask(structs.asdict(push))

    def place(self, body: Mapping[str, Any]) -> tuple[str, str]:
        return body["method"], body["path"]

    def sent(self, body: Mapping[str, Any]) -> dict[str, Any]:
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


class _EngineSink:
    """An engine behind HTTP."""

    def __init__(self, target: IndexTarget, writer: _EngineWriter) -> None:
        self.target, self._writer = target, writer

    def _ask(self, push: PushTemplate) -> EngineAnswer:
        return self._writer.ask(self.target.filled(push))

    def begin(self) -> int:
        """Create the index if it does not exist, and return how many documents it holds."""
        if self.target.there(self._ask(self.target.table.probe)):
            # A push that was stopped may have sent what no search shows yet.
            return self.finish()
        for push in self.target.create():
            self._do(push)
        return 0

    def add(self, documents: Sequence[PushedDocument]) -> None:
        batches = [[document] for document in documents] if self.target.table.one_by_one else [documents]
        for batch in batches:
            self._do(self.target.add(batch))

    def _do(self, push: Push) -> None:
        answer = self._writer.ask(push)
        attempt = 0
        while (later := self.target.waits(answer)) is not None:
            attempt += 1
            time.sleep(min(2.0, backoff(attempt, _WAIT)))
            answer = self._writer.ask(later)
        if reason := self.target.refused(answer):
            raise R2medError(f"{self._writer.url} did not take {reason}")

    def finish(self) -> int:
        """Make everything visible to the next search, and count the documents."""
        if self.target.table.visible is not None:
            self._ask(self.target.table.visible)
        return self.target.counted(self._ask(self.target.table.count))

    def mapping(self) -> str:
        return self.target.mapping()

    def size(self, document: PushedDocument) -> int:
        return len(self.target.add([document]).content)

    def close(self) -> None:
        """Do nothing: the client's connections end with it."""


_COLUMNS = (
    "id text PRIMARY KEY, text text NOT NULL, "
    "words_of_text tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED"
)
_CREATE = (f"CREATE TABLE IF NOT EXISTS {{table}} ({_COLUMNS})",)
_CREATE_WITH_VECTORS = (
    "CREATE EXTENSION IF NOT EXISTS vector",
    f"CREATE TABLE IF NOT EXISTS {{table}} ({_COLUMNS}, vector vector({{dimension}}))",
)
_INSERT = (
    "INSERT INTO {table} (id, text) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET text = EXCLUDED.text",
    "INSERT INTO {table} (id, text, vector) VALUES (%s, %s, %s) "
    "ON CONFLICT (id) DO UPDATE SET text = EXCLUDED.text, vector = EXCLUDED.vector",
)
_FINISH = ("CREATE INDEX IF NOT EXISTS {index} ON {table} USING gin (words_of_text)", "ANALYZE {table}")


class _PostgresSink:
    """A table with an id, a text, its words for full-text search and, if wanted, a vector."""

    def __init__(self, table: str, dimension: int, database: Postgres) -> None:
        self._table, self._dimension, self._database = table, dimension, database
        self._create = _CREATE_WITH_VECTORS if dimension else _CREATE

    def _composed(self, statement: str) -> Composed:
        from psycopg.sql import SQL, Identifier, Literal

        names = {"table": Identifier(self._table), "index": Identifier(f"{self._table}_words_of_text")}
        return SQL(statement).format(**names, dimension=Literal(self._dimension))

    def _run(self, statements: Sequence[str]) -> int:
        """Run statements and return how many rows the table has."""
        with self._transaction() as connection:
            for statement in statements:
                connection.execute(self._composed(statement))
            row = connection.execute(self._composed("SELECT count(*) FROM {table}")).fetchone()
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
        return self._run(self._create)

    def add(self, documents: Sequence[PushedDocument]) -> None:
        with self._transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(self._composed(_INSERT[self._dimension > 0]), map(self._row, documents))

    def _row(self, document: PushedDocument) -> tuple[str, ...]:
        """Return a row; zero bytes become spaces, since a text of PostgreSQL cannot hold them."""
        plain = (document.id, document.text.replace("\x00", " "))
        return plain if document.vector is None else (*plain, vector_text(document.vector))

    def finish(self) -> int:
        return self._run(_FINISH)

    def mapping(self) -> str:
        return "".join(f"{self._composed(statement).as_string(None)};\n" for statement in (*self._create, *_FINISH))

    def size(self, document: PushedDocument) -> int:
        return sum(len(value.encode("utf-8", "replace")) for value in self._row(document))

    def close(self) -> None:
        self._database.close()

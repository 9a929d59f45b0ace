"""Pushing a task's documents into a search engine: a plan, batches that can be resumed, and a count at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from r2med.data.dataset import Texts
from r2med.data.loader import load
from r2med.encode.batching import encode_all, to_encode
from r2med.encode.encoder import Encoder, Role
from r2med.engines.http import HttpEngine
from r2med.engines.request import read_request
from r2med.engines.sinks import EngineSink, EngineWriter, PostgresSink, Sink
from r2med.engines.sql import DEFAULT_TABLE, Postgres
from r2med.engines.targets import TARGETS, IndexTarget, PushedDocument
from r2med.errors import R2medError, SpecError, suggest
from r2med.formatting import counted, shorten
from r2med.models.http import RequestLimits, check_url, server_name
from r2med.pipeline.executor.local import Executor, begin_command, quiet
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context
from r2med.retrieve.dense import Dense
from r2med.store.cache import Cache, home
from r2med.store.hashes import cache_key
from r2med.store.sqlite import Database, Format, StoreError

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.encode.vectors import StoredVectors

POSTGRES = "postgres"
_AT_ONCE = 4
"""Batches under way at a time, unless the user says otherwise."""
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
    index: str = ""
    """Empty for a name made of the task's."""
    encoder: str = ""
    """Whose vectors go along; empty for none."""
    dsn_env: str = "DATABASE_URL"
    """The variable with the address, for PostgreSQL."""
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
    left_out: int
    """Documents without text, which have no vector."""
    batches: int
    bytes: int
    """About as many are sent, vectors included."""
    to_encode: int
    mapping: str


@dataclass(frozen=True)
class PushResult:
    """Result of a push."""

    engine: str
    index: str
    documents: int
    left_out: int
    sent: int
    """Those of this command; the others were there already."""
    count: int
    """What the engine counts afterwards."""
    seconds: float
    system: str
    """The spec that searches what was pushed."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Work:
    """A request with its data, encoder and index resolved."""

    request: PushRequest
    collection: Collection
    documents: Texts
    encoder: Encoder | None
    index: str
    left_out: int = 0

    @property
    def key(self) -> str:
        """Return the key of what was pushed: the place, and all that a pushed document is made of."""
        request = self.request
        place = server_name(request.url) if request.url else _database(request).identity()
        settings = sorted(self.encoder.settings(Role.DOCUMENT).items()) if self.encoder else []
        parts = (request.engine, place, self.index, self.documents.fingerprint, settings)
        return cache_key(push=parts)


def plan_push(request: PushRequest) -> PushPlan:
    """Return the plan of a push; nothing is sent, and at most one text is encoded."""
    work = _work(request)
    waiting = to_encode(work.encoder, work.documents, Role.DOCUMENT) if work.encoder else 0
    dimension = _dimension(work)
    with closing(_sink(work, dimension)) as sink:
        total = len(work.documents)
        sample = range(0, total, max(1, total // 200))
        sizes = [sink.size(_example(work, place, dimension)) for place in sample]
        about = round(sum(sizes) / max(1, len(sizes)) * total)
        batches = -(-total // request.batch)
        mapping = sink.mapping()
    return PushPlan(request.engine, work.index, total, work.left_out, batches, about, waiting, mapping)


def push(request: PushRequest, engine: Executor | None = None) -> PushResult:
    """Push the documents that are missing, and check the count afterwards."""
    started = time.perf_counter()
    begin_command()
    context = Context(Cache.default(), engine or quiet())
    work = _work(request)
    vectors = encode_all(work.encoder, work.documents, Role.DOCUMENT, context) if work.encoder else None
    total = len(work.documents)
    with closing(_sink(work, vectors.shape[1] if vectors is not None else 0)) as sink, _Pushed(work.key) as pushed:
        there = sink.begin()
        if there > total:
            raise R2medError(_miscount(work, there, total, there))
        if there < pushed.total():
            pushed.forget()
        left = [span for gap in pushed.gaps(total) for span in _spans(gap, request.batch)]
        sent = sum(last - first for first, last in left)
        with context.executor.progress(f"push to {request.engine}", sent, unit="documents") as bar:
            for first, last in _at_once(sink, work, vectors, left):
                pushed.add(first, last)
                bar.advance(last - first)
        count = sink.finish()
    if count != total:
        raise R2medError(_miscount(work, count, total, there))
    seconds = round(time.perf_counter() - started, 3)
    warnings = tuple(context.notes.warnings)
    return PushResult(
        request.engine, work.index, total, work.left_out, sent, count, seconds, _system(work), warnings
    )  # fmt: skip


def _miscount(work: _Work, count: int, total: int, before: int) -> str:
    held = f"{work.request.engine} counts {counted(count, 'document')} in {work.index}, {work.collection.task.name} has"
    why = f"it held {before:,} before; choose another --index" if count > total else "the push is not complete"
    return f"{held} {total:,}: {why}"


def _work(request: PushRequest) -> _Work:
    collection = load(request.task).collection
    documents, encoder, left_out = collection.documents, None, 0
    if request.encoder:
        stage = build_system(request.encoder).stages[-1]
        if not isinstance(stage, Dense):
            raise SpecError(f"--encoder {request.encoder}: that is not an encoder")
        encoder = stage.encoder(collection.task)
        kept = [(name, text) for name, text in documents if text.strip()]
        left_out = len(documents) - len(kept)
        if left_out:
            documents = Texts([name for name, _ in kept], [text for _, text in kept])
    if not len(documents):
        raise R2medError(f"{collection.task.name} has no documents to push")
    longest = TARGETS[request.engine].longest if request.engine in TARGETS else 0
    for name, text in documents if longest else ():
        if len(text.encode("utf-8", "replace")) > longest:
            raise R2medError(f"{request.engine} holds texts of {longest:,} bytes, {shorten(name)!r} is longer")
    default = TARGETS[request.engine].default_name(collection.task.name) if request.engine in TARGETS else DEFAULT_TABLE
    return _Work(request, collection, documents, encoder, request.index or default, left_out)


def _dimension(work: _Work) -> int:
    """Return the dimension of the vectors; at most one text is encoded."""
    if work.encoder is None:
        return 0
    context = Context(Cache.default(), quiet())
    first = Texts(list(work.documents.ids[:1]), list(work.documents.texts[:1]))
    return encode_all(work.encoder, first, Role.DOCUMENT, context).shape[1]


def _example(work: _Work, place: int, dimension: int) -> PushedDocument:
    vector = [-0.0123456789] * dimension if dimension else None
    return PushedDocument(work.documents.ids[place], work.documents.texts[place], vector)


def _database(request: PushRequest) -> Postgres:
    return Postgres(request.dsn_env, RequestLimits.configured())


def _sink(work: _Work, dimension: int) -> Sink:
    request = work.request
    if request.engine == POSTGRES:
        return PostgresSink(work.index, dimension, _database(request))
    similarity = work.encoder.similarity if work.encoder else "cosine"
    target: IndexTarget = TARGETS[request.engine](work.index, dimension, similarity)
    asked = read_request(request.engine, vector=bool(dimension))
    variables = ", ".join(asked.keys()) or "a variable"
    return EngineSink(
        target, EngineWriter(asked, check_url(request.engine, request.url, variables, "--url http://host:port"))
    )


def _system(work: _Work) -> str:
    """Return the spec of the system that searches what was pushed."""
    request = work.request
    if request.engine == POSTGRES:
        name = "postgres-vector" if work.encoder else "postgres-text"
        encoder = f", encoder={request.encoder}" if work.encoder else ""
        return f"sql({name}.sql, dsn_env={request.dsn_env}{encoder})"
    target = TARGETS[request.engine](work.index, int(work.encoder is not None))
    given: dict[str, Any] = {"url": request.url, "index": work.index, "encoder": request.encoder, **target.options()}
    return str(HttpEngine(request.engine, **given))


def _spans(gap: tuple[int, int], size: int) -> list[tuple[int, int]]:
    first, last = gap
    return [(start, min(start + size, last)) for start in range(first, last, size)]


def _at_once(
    sink: Sink, work: _Work, vectors: StoredVectors | None, spans: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Send a few batches at a time, with as few in memory, and yield each span in order once it is sent."""
    limit = RequestLimits.configured().concurrency
    at_once = min(limit, _AT_ONCE)

    def send(first: int, last: int) -> tuple[int, int]:
        rows = vectors[first:last].tolist() if vectors is not None else [None] * (last - first)
        texts = zip(work.documents.ids[first:last], work.documents.texts[first:last], rows, strict=True)
        sink.add([PushedDocument(name, text, row) for name, text, row in texts])
        return first, last

    waiting: deque[Future[tuple[int, int]]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for span in spans:
                if len(waiting) >= 2 * at_once:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(send, *span))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for job in waiting:
                job.cancel()


class _Pushed:
    """Record of the documents of a push that have arrived, by their places in the task."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._db = Database(home() / "pushes.sqlite", _FORMAT)

    def __enter__(self) -> _Pushed:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def _spans(self) -> list[tuple[int, int]]:
        rows = self._db.rows("SELECT first, last FROM pushed WHERE target = ? ORDER BY first", (self._key,))
        return [(int(first), int(last)) for first, last in rows]

    def total(self) -> int:
        """Return the number of documents that have arrived."""
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


def as_dict(outcome: PushPlan | PushResult) -> dict[str, Any]:
    """Return a plan or a result as JSON has it."""
    return vars(outcome) | ({"warnings": list(outcome.warnings)} if isinstance(outcome, PushResult) else {})

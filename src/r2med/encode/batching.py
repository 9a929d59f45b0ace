"""Texts to vectors: read from the store, or encoded in batches and stored.

It holds what is the same for all encoders: batches of about equal cost, smaller ones when memory runs out, progress,
counts of truncated texts, and checks of the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.encode.distributed import SpreadEncoder, TextWorker
from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.encode.vector_search import finite
from r2med.encode.vectors import SparseStore, StoredSparse, StoredVectors, VectorStore
from r2med.errors import R2medError
from r2med.models.memory import out_of_memory, release_memory
from r2med.pipeline.executor.distributed import spread_of
from r2med.pipeline.stage import Context
from r2med.store.arrays import ArrayStore, ShardWriter
from r2med.store.scratch import rows_at, spans
from r2med.store.text_hashes import TextHashes, first_of_each, lacking, text_hashes
from r2med.usage import Usage

SHOWN = 500
"""Characters of the first string that a result remembers."""
WINDOW = 8192
"""Texts measured, sorted and encoded before the next are: a kill loses no more than a batch."""


@dataclass(frozen=True)
class EncodingJob:
    """Texts to encode, with their role, the precision of the stored vectors, and the label of reports."""

    texts: Texts
    role: Role
    label: str = ""
    """The name of the texts in reports: `documents`, `queries`, `passages`; by default the role's own."""
    precision: str = "float32"

    @property
    def name(self) -> str:
        """Return the label, or the role's plural."""
        return self.label or {Role.QUERY: "queries", Role.DOCUMENT: "documents"}.get(self.role, self.role.value)


def encode_all(
    encoder: Encoder, texts: Texts, role: Role, context: Context, *, label: str = "", precision: str = "float32"
) -> StoredVectors:
    """Return a vector for every text, in order. A text that was encoded before, in any task, is not encoded again.

    If everything is in the store, the model is not even loaded. The facts are added to the context's notes under the
    label.
    """
    job = EncodingJob(texts, role, label, precision)
    store = VectorStore(encoder.settings(role), precision)
    done = _fill(encoder, job, store, context)
    vectors = store.vectors(done.found)
    context.notes.facts[job.name] = _facts(encoder, job, vectors, done.encoded)
    return vectors


def encode_sparse(encoder: Encoder, texts: Texts, role: Role, context: Context) -> StoredSparse:
    """Return a sparse vector for every text, in order, by an encoder whose dimensions are terms; see `encode_all`."""
    job = EncodingJob(texts, role)
    store = SparseStore(encoder.settings(role))
    done = _fill(encoder, job, store, context)
    vectors = store.vectors(done.found)
    context.notes.facts[job.name] = _facts(encoder, job, vectors, done.encoded)
    return vectors


class _Filled(NamedTuple):
    found: NDArray[np.intp]
    """Where the store has each text."""
    encoded: int
    """How many texts had to be encoded."""


def _fill(encoder: Encoder, job: EncodingJob, store: ArrayStore, context: Context) -> _Filled:
    """Encode the texts of a job that the store lacks, and store them."""
    refuse_empty(job)
    hashes = text_hashes(job.texts.texts)
    found = store.find(hashes)
    missing = first_of_each(hashes, lacking(found))
    encoded = 0
    if len(missing):
        with store.writer() as writer:
            rest = _take_over(store, writer, hashes, missing) if job.precision == "float16" else missing
            encoded = len(rest)
            if encoded:
                _encode(BatchEncoder(encoder, job, store, writer), hashes, missing, rest, context)
        store.refresh()
        found = store.find(hashes)
        check_share(job, store, hashes, found, context)
    for sentence in store.damage:
        context.warn(f"{sentence}; what was needed of them has been encoded anew")
    if len(missing) and len(lost := lacking(found)):
        name = job.texts.ids[int(lost[0])]
        raise R2medError(f"the vector of {name} cannot be read back from {store.folder}: is the disk failing?")
    reused = encoded < len(first_of_each(hashes))
    if job.role is Role.QUERY and reused:
        context.reuse("vectors of queries")
    if encoder.billed:
        context.book(replace(encoder.take_bill() or Usage(), whole=not reused))
    return _Filled(found, encoded)


def _encode(
    work: BatchEncoder,
    hashes: TextHashes,
    missing: NDArray[np.intp],
    rest: NDArray[np.intp],
    context: Context,
) -> None:
    """Encode the texts at the places `rest`, in this process or by the executor's workers."""
    spread = spread_of(context.executor)
    here = spread is None or (spread.only_large and work.job.role is Role.QUERY)
    if spread is None or here or not work.encoder.spreads:
        work.run(hashes, missing, rest, context)
        return
    # The plan is made of all texts, so that every command of a batch has the same, whatever is there already.
    SpreadEncoder(work, spread, WINDOW).run(hashes, first_of_each(hashes), rest, context)


def check_share(
    job: EncodingJob, store: ArrayStore, hashes: TextHashes, found: NDArray[np.intp], context: Context
) -> None:
    """Raise if this command encoded only its share of the work, with what is left to others."""
    spread = spread_of(context.executor)
    if spread is not None and len(left := lacking(found)):
        name = f"{job.name} of {store.name}"
        raise spread.unfinished(name, len(first_of_each(hashes, left)), len(first_of_each(hashes)))


def to_encode(encoder: Encoder, texts: Texts, role: Role, precision: str = "float32") -> int:
    """Count the distinct texts that the store lacks, for a plan."""
    hashes = text_hashes(texts.texts)
    store = SparseStore(encoder.settings(role)) if encoder.sparse else VectorStore(encoder.settings(role), precision)
    return len(first_of_each(hashes, lacking(store.find(hashes))))


def refuse_empty(job: EncodingJob) -> None:
    """Refuse a text that is empty and so has no vector."""
    for identifier, text in job.texts:
        if not text.strip():
            raise R2medError(f"{identifier} in the {job.name} is an empty text, which has no vector; remove it")


def _take_over(
    store: ArrayStore, writer: ShardWriter, hashes: TextHashes, missing: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Round stored vectors of single precision, which gives what encoding again would; returns the rest."""
    full = VectorStore(store.settings, "float32", store.folder.parent)
    found = full.find(rows_at(hashes, missing))
    for some in spans(len(found), WINDOW):
        rows = some.start + np.flatnonzero(found[some] >= 0)
        if not len(rows):
            continue
        vectors = full.vectors(found[rows])
        fit = _fits_half(vectors[:])
        writer.append(hashes[missing[rows[fit]]], vectors.tokens[fit], vectors[:][fit], rows[fit])
        found[rows[~fit]] = -1
    return rows_at(missing, lacking(found))


def _fits_half(vectors: Vectors) -> NDArray[np.bool_]:
    """Return a mask of the vectors that are still valid when rounded to float16."""
    with np.errstate(over="ignore"):
        rounded = vectors.astype(np.float16)
    return finite(rounded) & _some(rounded)


def _some(vectors: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return a mask of the vectors that are not all zeros."""
    found: NDArray[np.bool_] = np.logical_or.reduce(vectors != 0, axis=1)
    return found


def _facts(encoder: Encoder, job: EncodingJob, vectors: StoredVectors | StoredSparse, encoded: int) -> dict[str, Any]:
    """Return the facts of a result: the texts encoded now, the number cut and at which length, and the first string."""
    limit = encoder.limit(job.role)
    cut = int((vectors.tokens > limit).sum()) if limit else 0
    return {
        "texts": len(vectors),
        "encoded": encoded,
        "dimension": vectors.shape[1],
        "max_tokens": limit or None,
        "truncated": cut,
        "truncated_share": round(cut / len(vectors), 6) if len(vectors) else 0.0,
        "first": encoder.prompted(job.texts.texts[0], job.role)[:SHOWN] if len(vectors) else "",
    }


class PlannedBatch(NamedTuple):
    """Texts that are encoded together."""

    places: NDArray[np.intp]
    tokens: NDArray[np.int64]
    """Each text's length before truncation."""
    cost: int
    """Tokens, padding included."""


class MeasuringEncoder(Protocol):
    """An encoder that can measure a text: its length, and how much of it is read."""

    @property
    def batch_tokens(self) -> int:
        """Return the tokens that a batch may hold to begin with."""

    def lengths(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Return each text's length in tokens, before truncation."""

    def limit(self, role: Role) -> int:
        """Return the most tokens of a text that are read; 0 for no limit."""


def text_costs(
    encoder: MeasuringEncoder, texts: Sequence[str], role: Role
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each text's length, and how much of it is read."""
    tokens, limit = encoder.lengths(texts, role), encoder.limit(role)
    return tokens, np.maximum(np.minimum(tokens, limit) if limit else tokens, 1)


def plan_batches(
    places: NDArray[np.intp], tokens: NDArray[np.int64], cost: NDArray[np.int64], budget: int
) -> Iterator[PlannedBatch]:
    """Yield batches of at most so many tokens, padding included, the longest texts first."""
    order, done = np.argsort(-cost, kind="stable"), 0
    while done < len(order):
        longest = int(cost[order[done]])
        batch = order[done : done + max(1, budget // longest)]
        yield PlannedBatch(places[batch], tokens[batch], longest * len(batch))
        done += len(batch)


Measuring = TypeVar("Measuring", bound=MeasuringEncoder)


class TextBatches(Generic[Measuring]):
    """Batches in which the texts of a job are encoded, to vectors of texts or of tokens."""

    def __init__(self, encoder: Measuring, job: EncodingJob, store: ArrayStore) -> None:
        self.encoder, self.job, self.store = encoder, job, store
        self.budget = encoder.batch_tokens

    @property
    def label(self) -> str:
        """Return the job's label for progress bars."""
        return f"encode {self.job.name} ({self.store.name})"

    @property
    def setting(self) -> str:
        """Return the name of all that a vector depends on besides its text."""
        return self.store.folder.name

    def texts(self, places: NDArray[np.intp]) -> list[str]:
        """Return the texts at these places."""
        return [self.job.texts.texts[place] for place in places.tolist()]

    def planned(self, places: NDArray[np.intp]) -> Iterator[PlannedBatch]:
        """Plan the batches of a window as `run` would, without vectors."""
        tokens, cost = text_costs(self.encoder, self.texts(places), self.job.role)
        return plan_batches(places, tokens, cost, self.budget)


class BatchEncoder(TextBatches[Encoder]):
    """Encoder of the texts that the store lacks, longest first, in batches of at most `budget` padded tokens."""

    def __init__(self, encoder: Encoder, job: EncodingJob, store: ArrayStore, writer: ShardWriter) -> None:
        super().__init__(encoder, job, store)
        self.writer = writer
        self.dimension = 0 if encoder.sparse else store.dimension

    def worker(self) -> TextWorker:
        """Return the worker that encodes in another process."""
        return TextWorker(self.encoder, self.job.role)

    def keep(self, hashes: TextHashes, rows: NDArray[np.intp], batch: PlannedBatch, vectors: Iterator[Vectors]) -> None:
        """Store a batch that a worker encoded: one matrix."""
        self._append(hashes, rows, batch.tokens, self.checked(next(vectors), batch.places))

    def _append(self, hashes: TextHashes, rows: NDArray[np.intp], tokens: NDArray[np.int64], vectors: Vectors) -> None:
        # Sparse vectors are of different sizes: they are put one after another.
        self.writer.append(hashes, tokens, vectors, None if self.encoder.sparse else rows)

    def run(self, hashes: TextHashes, missing: NDArray[np.intp], rest: NDArray[np.intp], context: Context) -> None:
        """Encode and store the texts at the places `rest`; a text's row in the shard is its rank in `missing`."""
        with context.timed("load"):
            self.encoder.load()
        with context.executor.progress(self.label, len(rest), unit="texts") as bar:
            for start in range(0, len(rest), WINDOW):
                for places, tokens, vectors in self._batches(rest[start : start + WINDOW]):
                    self._append(hashes[places], np.searchsorted(missing, places), tokens, vectors)
                    bar.advance(len(places))

    def _batches(self, places: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64], Vectors]]:
        """Yield the batches of a window, each with its texts' lengths and vectors."""
        tokens, cost = text_costs(self.encoder, self.texts(places), self.job.role)
        order = np.argsort(-cost, kind="stable")
        done = 0
        while done < len(order):
            # The first text of a batch is its longest, and the others are padded to it.
            longest = int(cost[order[done]])
            batch = order[done : done + max(1, self.budget // longest)]
            vectors = self._encode(places[batch])
            if vectors is None:
                self.budget = max(1, longest * len(batch) // 2)
                continue
            yield places[batch], tokens[batch], vectors
            done += len(batch)

    def _encode(self, places: NDArray[np.intp]) -> Vectors | None:
        """Encode and check a batch; return None if memory ran out and a smaller batch may fit."""
        try:
            vectors = self.encoder.encode(self.texts(places), self.job.role)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            if len(places) == 1:
                name = self.job.texts.ids[int(places[0])]
                raise R2medError(f"{self.store.name} runs out of memory on {name} alone; lower max_length") from error
            vectors = None
        if vectors is None:
            release_memory()
            return None
        return self.checked(np.asarray(vectors, dtype=np.float32), places)

    def checked(self, vectors: Vectors, places: NDArray[np.intp]) -> Vectors:
        """Check the vectors and return them; an invalid one is an error that names the text."""
        first, model = self.job.texts.ids[int(places[0])], self.store.name
        if vectors.ndim != 2 or len(vectors) != len(places):
            raise R2medError(f"{model} gave {first} and {len(places) - 1} more an array of shape {vectors.shape}")
        dimension = vectors.shape[1]
        if self.dimension not in (0, dimension) or dimension == 0:
            raise R2medError(
                f"{model} gave {first} a vector of {dimension} dimensions, others have {self.dimension or 'more'};"
                f" if the model has changed, remove {self.store.folder}"
            )
        self.dimension = dimension
        self._refuse(~finite(vectors), places, "a vector with NaN or infinite numbers")
        if not self.encoder.sparse:
            self._refuse(~_some(vectors), places, "a vector of zeros")
        if self.job.precision == "float16":
            self._refuse(~_fits_half(vectors), places, "numbers that do not fit float16; use store=float32")
        return vectors

    def _refuse(self, broken: NDArray[np.bool_], places: NDArray[np.intp], what: str) -> None:
        if broken.any():
            name = self.job.texts.ids[int(places[int(broken.argmax())])]
            raise R2medError(f"{self.store.name} gave {name} of the {self.job.name} {what}")

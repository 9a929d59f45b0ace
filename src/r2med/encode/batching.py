"""Texts to vectors with any encoder: read from the store, or encoded in batches, here or by workers, and stored."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.encode.late_interaction import TokenEncoder
from r2med.encode.vectors import SparseStore, StoredSparse, StoredVectors, TokenStore, TokenVectors, VectorStore
from r2med.errors import R2medError
from r2med.formatting import replace_surrogates
from r2med.models.memory import out_of_memory, release_memory
from r2med.pipeline.executor.blocks import Spread, SpreadJob, WorkBlock, block_key, grouped
from r2med.pipeline.stage import Context
from r2med.store.arrays import ArrayStore, ShardWriter
from r2med.store.columns import TextHashes, first_of_each, lacking, rows_at, scratch_column, spans, text_hashes
from r2med.usage import Usage

SHOWN = 500
"""Characters of the first string that a result remembers."""
WINDOW = 8192
"""Texts measured, sorted and encoded before the next are: a kill loses no more than a batch."""
_BLOCK_TOKENS = 65_536  # tokens of a block, padding included: seconds of work, and what is lost when a worker dies
_SHAPE = struct.Struct("<II")
Result = TypeVar("Result")
Stored = TypeVar("Stored", StoredVectors, StoredSparse, TokenVectors)


def encode_all(
    encoder: Encoder, texts: Texts, role: Role, context: Context, *, label: str = "", precision: str = "float32"
) -> StoredVectors:
    """Return a vector for every text, in order; one that is in the store is not encoded again.

    The facts are added to the context's notes under the label, which is the role's plural by default.
    """
    store = VectorStore(encoder.settings(role), precision)
    return _encode(TextBatches(encoder, texts, role, store, label), store.vectors, context)


def encode_sparse(encoder: Encoder, texts: Texts, role: Role, context: Context) -> StoredSparse:
    """Return a sparse vector for every text, in order, by an encoder whose dimensions are terms; see `encode_all`."""
    store = SparseStore(encoder.settings(role))
    return _encode(TextBatches(encoder, texts, role, store), store.vectors, context)


def encode_tokens(
    encoder: TokenEncoder, texts: Texts, role: Role, context: Context, precision: str = "float32"
) -> TokenVectors:
    """Return the token vectors of every text, in order; see `encode_all`."""
    settings = encoder.settings(role)
    store = TokenStore(settings, precision)
    vectors = _encode(TokenBatches(encoder, texts, role, store), store.vectors, context)
    facts = context.notes.facts[_LABELS[role]]
    facts |= {key: settings[key] for key in settings if key in ("prefix", "expansion", "attend", "dtype", "skiplist")}
    if role is Role.QUERY and facts["truncated"]:
        cut, limit = facts["truncated"], facts["max_tokens"]
        context.warn(f"{cut} of {len(vectors)} queries are longer than {limit} tokens and were cut; see query_length")
    return vectors


def to_encode(encoder: Encoder, texts: Texts, role: Role, precision: str = "float32") -> int:
    """Count the distinct texts whose vectors the store lacks, for a plan."""
    settings = encoder.settings(role)
    if isinstance(encoder, TokenEncoder):
        store: ArrayStore = TokenStore(settings, precision)
    else:
        store = SparseStore(settings) if encoder.sparse else VectorStore(settings, precision)
    hashes = text_hashes(texts.texts)
    return len(first_of_each(hashes, lacking(store.find(hashes))))


_LABELS = {Role.QUERY: "queries", Role.DOCUMENT: "documents"}


def _encode(work: Batches, read: Callable[[NDArray[np.intp]], Stored], context: Context) -> Stored:
    """Encode what the store lacks and read all vectors, with the facts of the result in the notes."""
    places, encoded = _fill(work, context)
    vectors, limit = read(places), work.encoder.limit(work.role)
    cut = int((vectors.tokens > limit).sum()) if limit else 0
    context.notes.facts[work.name] = {
        "texts": len(vectors),
        "encoded": encoded,
        **({"vectors": int(vectors.count.sum())} if isinstance(vectors, TokenVectors) else {}),
        "dimension": vectors.shape[1],
        "max_tokens": limit or None,
        "truncated": cut,
        "truncated_share": round(cut / len(vectors), 6) if len(vectors) else 0.0,
        "first": work.encoder.prompted(work.inputs.texts[0], work.role)[:SHOWN] if len(vectors) else "",
    }
    return vectors


class PlannedBatch(NamedTuple):
    """Texts that are encoded together."""

    places: NDArray[np.intp]
    tokens: NDArray[np.int64]  # each text's length before truncation
    cost: int  # tokens, padding included


class Batches(ABC):
    """Batches of the texts of a role, longest first, of at most `budget` padded tokens; out of memory halves it."""

    length_option = "max_length"
    matrix_each = False  # whether each text has a matrix of its own

    def __init__(self, encoder: Encoder, inputs: Texts, role: Role, store: ArrayStore, name: str = "") -> None:
        self.encoder, self.inputs, self.role, self.store = encoder, inputs, role, store
        self.name = name or _LABELS[role]  # in reports
        self.budget, self.dimension = encoder.batch_tokens, 0 if encoder.sparse else store.dimension
        self.label = f"encode {self.name} ({store.name})"

    def texts(self, places: NDArray[np.intp]) -> list[str]:
        """Return the texts at these places."""
        return [self.inputs.texts[place] for place in places.tolist()]

    def planned(self, places: NDArray[np.intp]) -> Iterator[PlannedBatch]:
        """Plan the batches of a window as `run` would, without vectors."""
        return (batch for batch, _ in self._batches(places, lambda _: ()))

    def windows(self, places: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        """Split places into windows."""
        return (places[start : start + WINDOW] for start in range(0, len(places), WINDOW))

    def _batches(
        self, places: NDArray[np.intp], encode: Callable[[NDArray[np.intp]], Result | None]
    ) -> Iterator[tuple[PlannedBatch, Result]]:
        """Yield the batches of a window with what `encode` gives for each; None halves the budget and tries again."""
        tokens, limit = self.encoder.lengths(self.texts(places), self.role), self.encoder.limit(self.role)
        cost = np.maximum(np.minimum(tokens, limit) if limit else tokens, 1)
        order = np.argsort(-cost, kind="stable")
        while len(order):
            # The first text of a batch is its longest, and the others are padded to it.
            longest = int(cost[order[0]])
            rows = order[: max(1, self.budget // longest)]
            batch = PlannedBatch(places[rows], tokens[rows], longest * len(rows))
            result = encode(batch.places)
            if result is None:
                self.budget = max(1, batch.cost // 2)
                continue
            yield batch, result
            order = order[len(rows) :]

    def run(self, writer: ShardWriter, work: MissingTexts, context: Context) -> None:
        """Encode and store the texts that are left, batch by batch, in this process."""
        with context.timed("load"):
            self.encoder.load()
        with context.executor.progress(self.label, len(work.rest), unit="texts") as bar:
            for places in self.windows(work.rest):
                for batch, vectors in self._batches(places, self._encode):
                    self.append(writer, work, batch, vectors)
                    bar.advance(len(batch.places))

    def _encode(self, places: NDArray[np.intp]) -> Vectors | list[Vectors] | None:
        """Encode and check a batch; return None if memory ran out and a smaller batch may fit."""
        try:
            return self.checked(self.encoder.encode(self.texts(places), self.role), places)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            if len(places) == 1:
                raise R2medError(
                    f"{self.store.name} runs out of memory on {self.inputs.ids[int(places[0])]} alone;"
                    f" lower {self.length_option}"
                ) from error
        # Outside the handler: the error holds the memory of the attempt.
        release_memory()
        return None

    def refuse(self, place: int, problem: str) -> None:
        """Raise the error of a vector that cannot be used."""
        raise R2medError(f"{self.store.name} gave {self.inputs.ids[place]} of the {self.name} {problem}")

    @abstractmethod
    def checked(self, vectors: Any, places: NDArray[np.intp]) -> Vectors | list[Vectors]:
        """Check the vectors of a batch and return them; an invalid one is an error that names the text."""

    def unpack(self, matrices: Iterator[Vectors], batch: PlannedBatch) -> Vectors | list[Vectors]:
        """Take the vectors of a batch from the matrices of a worker, and check them."""
        vectors = [next(matrices) for _ in batch.places] if self.matrix_each else next(matrices)
        return self.checked(vectors, batch.places)

    def append(self, writer: ShardWriter, texts: MissingTexts, batch: PlannedBatch, vectors: object) -> None:
        """Store the vectors of a batch in their rows; those of different sizes are put one after another."""
        rows = np.searchsorted(texts.order, batch.places) if isinstance(self.store, VectorStore) else None
        writer.append(texts.hashes[batch.places], batch.tokens, vectors, rows)


class TextBatches(Batches):
    """Batches of texts, each of which gets one vector, dense or sparse."""

    def checked(self, vectors: Any, places: NDArray[np.intp]) -> Vectors:
        """Check the matrix of a batch."""
        matrix: Vectors = np.asarray(vectors, dtype=np.float32)
        first, model = self.inputs.ids[int(places[0])], self.store.name
        if matrix.ndim != 2 or len(matrix) != len(places):
            raise R2medError(f"{model} gave {first} and {len(places) - 1} more an array of shape {matrix.shape}")
        dimension = matrix.shape[1]
        if self.dimension not in (0, dimension) or dimension == 0:
            raise R2medError(
                f"{model} gave {first} a vector of {dimension} dimensions, others have {self.dimension or 'more'};"
                f" if the model has changed, remove {self.store.folder}"
            )
        self.dimension = dimension
        problems = {"a vector with NaN or infinite numbers": ~np.isfinite(matrix).all(axis=1)}
        if not self.encoder.sparse:
            problems["a vector of zeros"] = ~matrix.any(axis=1)
        if self.store.precision == "float16":
            problems["numbers that do not fit float16; use store=float32"] = ~_fits_half(matrix)
        for problem, broken in problems.items():
            if broken.any():
                self.refuse(int(places[int(broken.argmax())]), problem)
        return matrix


class TokenBatches(Batches):
    """Batches of texts, each of which gets a matrix with the vectors of its tokens."""

    length_option, matrix_each = "document_length", True

    def checked(self, vectors: list[Vectors], places: NDArray[np.intp]) -> list[Vectors]:
        """Check the matrices of a batch."""
        for place, span in zip(places.tolist(), vectors, strict=True):
            if not len(span):
                self.refuse(place, "no vector at all")
            if not np.isfinite(span).all():
                self.refuse(place, "vectors with NaN or infinite numbers")
        return vectors


class MissingTexts(NamedTuple):
    """Texts that the store lacks, each once."""

    hashes: TextHashes
    order: NDArray[np.intp]  # places of at least these: a text's row in the shard is its rank here
    rest: NDArray[np.intp]  # places of those that must be encoded, the others being rounded


def _fill(work: Batches, context: Context) -> tuple[NDArray[np.intp], int]:
    """Encode and store the texts that the store lacks; return the places of all and the number encoded."""
    inputs, store, encoder = work.inputs, work.store, work.encoder
    for identifier, text in inputs:
        if not text.strip():
            raise R2medError(f"{identifier} in the {work.name} is an empty text, which has no vector; remove it")
    hashes = text_hashes(inputs.texts)
    distinct = first_of_each(hashes)
    stored = store.find(hashes)
    missing = first_of_each(hashes, lacking(stored))
    encoded = 0
    if len(missing):
        spread = context.executor.spread
        local = spread is None or not encoder.spreads or (spread.only_large and work.role is Role.QUERY)
        # The plan of workers is made of all texts, so that every command of a batch has the same, whatever is there.
        texts = MissingTexts(hashes, missing if local else distinct, missing)
        with store.writer() as writer:
            if store.precision == "float16" and isinstance(store, VectorStore):
                texts = _round_stored(store, writer, texts)
            encoded = len(texts.rest)
            if encoded and (local or spread is None):
                work.run(writer, texts, context)
            elif encoded and spread is not None:
                _encode_by_workers(work, spread, writer, texts, context)
        store.refresh()
        stored = store.find(hashes)
        if spread is not None and len(others := lacking(stored)):
            raise spread.unfinished(f"{work.name} of {store.name}", len(first_of_each(hashes, others)), len(distinct))
    for sentence in store.damage:
        context.warn(f"{sentence}; what was needed of them has been encoded anew")
    if len(missing) and len(lost := lacking(stored)):
        name = inputs.ids[int(lost[0])]
        raise R2medError(f"the vectors of {name} cannot be read back from {store.folder}: is the disk failing?")
    reused = encoded < len(distinct)
    if work.role is Role.QUERY and reused:
        context.reuse("vectors of queries")
    if encoder.billed:
        context.book(replace(encoder.take_bill() or Usage(), whole=not reused))
    return stored, encoded


def _round_stored(store: ArrayStore, writer: ShardWriter, texts: MissingTexts) -> MissingTexts:
    """Round stored vectors of single precision, which gives what encoding again would; returns the rest."""
    full = VectorStore(store.settings, "float32", store.folder.parent)
    stored = full.find(rows_at(texts.hashes, texts.rest))
    for span in spans(len(stored), WINDOW):
        some = span.start + np.flatnonzero(stored[span] >= 0)
        vectors = full.vectors(stored[some])
        fit = _fits_half(vectors[:])
        places = texts.rest[some[fit]]
        rows = np.searchsorted(texts.order, places)
        writer.append(texts.hashes[places], vectors.tokens[fit], vectors[:][fit], rows)
        stored[some[~fit]] = -1
    return texts._replace(rest=rows_at(texts.rest, lacking(stored)))


def _fits_half(vectors: Vectors) -> NDArray[np.bool_]:
    with np.errstate(over="ignore"):
        rounded = vectors.astype(np.float16)
    return np.asarray(np.isfinite(rounded).all(axis=1) & rounded.any(axis=1))


def _encode_by_workers(
    work: Batches, spread: Spread, writer: ShardWriter, texts: MissingTexts, context: Context
) -> None:
    """Send batches to workers, several to a block, and store the results; the blocks are those of all texts."""
    hashes = texts.hashes
    job = SpreadJob(work.label, EncodingWorker(work.encoder, work.role))
    missing = scratch_column(len(hashes), np.bool_)
    missing[texts.rest] = True

    def blocks() -> Iterator[WorkBlock]:
        # A window is read when its turn comes.
        for places in work.windows(texts.order):
            if not missing[places].any():
                continue
            for batches in grouped(work.planned(places), _BLOCK_TOKENS):
                if any(missing[batch.places].any() for batch in batches):
                    parts = (hashes[batch.places].tobytes() for batch in batches)
                    key = block_key(work.store.folder.name.encode(), *parts)
                    payload = [[replace_surrogates(text) for text in work.texts(batch.places)] for batch in batches]
                    yield WorkBlock(key, orjson.dumps(payload), batches)

    with context.executor.progress(job.name, len(texts.rest), unit="texts") as bar:
        for block, result in spread.run(job, blocks()):
            matrices = _unpacked(result)
            for batch in block.about:
                work.append(writer, texts, batch, work.unpack(matrices, batch))
                bar.advance(int(missing[batch.places].sum()))


@dataclass(frozen=True)
class EncodingWorker:
    """Worker that encodes blocks of texts, to one matrix per batch or, of tokens, to one per text."""

    encoder: Encoder
    role: Role

    def load(self) -> None:
        """Load the model."""
        self.encoder.load()

    def run(self, payload: bytes) -> bytes:
        """Encode a block's batches."""
        matrices: list[Vectors] = []
        for batch in orjson.loads(payload):
            parts = list(self._in_parts(batch))
            matrices += chain.from_iterable(parts) if isinstance(parts[0], list) else [np.concatenate(parts)]
        return _packed([np.asarray(matrix, dtype=np.float32) for matrix in matrices])

    def _in_parts(self, texts: list[str]) -> Iterator[Vectors | list[Vectors]]:
        """Encode a batch as a whole, or in halves, and halves of these, if memory runs out."""
        try:
            yield self.encoder.encode(texts, self.role)
            return
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error) or len(texts) == 1:
                raise
        release_memory()
        middle = len(texts) // 2
        yield from self._in_parts(texts[:middle])
        yield from self._in_parts(texts[middle:])


def _packed(matrices: Sequence[Vectors]) -> bytes:
    """Pack matrices one after another, each behind its shape.

    >>> [matrix.tolist() for matrix in _unpacked(_packed([np.ones((1, 2), np.float32), np.zeros((2, 1), np.float32)]))]
    [[[1.0, 1.0]], [[0.0], [0.0]]]
    """
    return b"".join(_SHAPE.pack(*matrix.shape) + np.ascontiguousarray(matrix).tobytes() for matrix in matrices)


def _unpacked(content: bytes) -> Iterator[Vectors]:
    """Unpack the matrices, one at a time."""
    place = 0
    while place < len(content):
        rows, columns = _SHAPE.unpack_from(content, place)
        place += _SHAPE.size
        yield np.frombuffer(content, np.float32, rows * columns, place).reshape(rows, columns)
        place += 4 * rows * columns

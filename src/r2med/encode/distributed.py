"""Encoding by workers: batches grouped into blocks, and the encoding of matrices that come back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.models.memory import out_of_memory, release_memory
from r2med.pipeline.executor.blocks import Spread, SpreadJob, WorkBlock, Worker, block_key, carried, grouped
from r2med.pipeline.stage import Context
from r2med.store.scratch import scratch_column
from r2med.store.text_hashes import TextHashes

if TYPE_CHECKING:
    from r2med.encode.batching import PlannedBatch
    from r2med.encode.tokens import TokenEncoder

Encoded = TypeVar("Encoded")
_BLOCK_TOKENS = 65_536
"""Tokens of a block, padding included: seconds of work, and what is lost when a worker dies."""


class EncodingPlan(Protocol):
    """A plan of batches to encode, for vectors of texts and of tokens alike."""

    @property
    def label(self) -> str:
        """Return the job's label for progress bars."""

    @property
    def setting(self) -> str:
        """Return the name of all that a vector depends on besides its text."""

    def worker(self) -> Worker:
        """Return the worker that encodes a block in another process."""

    def planned(self, places: NDArray[np.intp]) -> Iterator[PlannedBatch]:
        """Plan the batches of a window."""

    def texts(self, places: NDArray[np.intp]) -> list[str]:
        """Return the texts at these places."""

    def keep(self, hashes: TextHashes, rows: NDArray[np.intp], batch: PlannedBatch, vectors: Iterator[Vectors]) -> None:
        """Check and store the result of a batch: as many of the next matrices as belong to it."""


class SpreadEncoder:
    """Encoder that sends its batches to workers, several to a block, and stores the results."""

    def __init__(self, work: EncodingPlan, spread: Spread, window: int) -> None:
        self._work, self._spread, self._window = work, spread, window

    def run(self, hashes: TextHashes, everything: NDArray[np.intp], rest: NDArray[np.intp], context: Context) -> None:
        """Encode the texts at the places `rest`, which are some of the places `everything`."""
        work = self._work
        job = SpreadJob(work.label, work.worker())
        wanted = scratch_column(len(hashes), np.bool_)
        wanted[rest] = True
        with context.executor.progress(job.name, len(rest), unit="texts") as bar:
            for block, result in self._spread.run(job, self._blocks(hashes, everything, wanted)):
                batches: list[PlannedBatch] = block.about
                matrices = unpacked(result)
                for batch in batches:
                    rows = np.searchsorted(everything, batch.places)
                    work.keep(hashes[batch.places], rows, batch, matrices)
                    bar.advance(int(wanted[batch.places].sum()))

    def _blocks(
        self, hashes: TextHashes, everything: NDArray[np.intp], wanted: NDArray[np.bool_]
    ) -> Iterator[WorkBlock]:
        """Yield blocks of whole batches that contain at least one wanted text; a window is read when its turn comes."""
        for start in range(0, len(everything), self._window):
            window = everything[start : start + self._window]
            if wanted[window].any():
                for batches in grouped(self._work.planned(window), _BLOCK_TOKENS):
                    if any(wanted[batch.places].any() for batch in batches):
                        yield self._block(hashes, batches)

    def _block(self, hashes: TextHashes, batches: list[PlannedBatch]) -> WorkBlock:
        work = self._work
        texts = [work.texts(batch.places) for batch in batches]
        key = block_key(work.setting.encode(), *(hashes[batch.places].tobytes() for batch in batches))
        return WorkBlock(key, orjson.dumps([[carried(text) for text in batch] for batch in texts]), batches)


@dataclass(frozen=True)
class TextWorker:
    """Worker that encodes blocks of texts."""

    encoder: Encoder
    role: Role

    def load(self) -> None:
        """Load the model."""
        self.encoder.load()

    def run(self, payload: bytes) -> bytes:
        """Encode a block's batches to one matrix each."""
        return packed([np.concatenate(list(in_parts(self._vectors, batch))) for batch in orjson.loads(payload)])

    def _vectors(self, texts: list[str]) -> Vectors:
        return np.asarray(self.encoder.encode(texts, self.role), dtype=np.float32)


@dataclass(frozen=True)
class TokenWorker:
    """Worker that encodes blocks of texts to the vectors of their tokens."""

    encoder: TokenEncoder
    role: Role

    def load(self) -> None:
        """Load the model."""
        self.encoder.load()

    def run(self, payload: bytes) -> bytes:
        """Encode a block's batches to one matrix per text."""
        batches = orjson.loads(payload)
        return packed([span for batch in batches for part in in_parts(self._spans, batch) for span in part])

    def _spans(self, texts: list[str]) -> list[Vectors]:
        return [np.asarray(span, dtype=np.float32) for span in self.encoder.encode(texts, self.role)]


def in_parts(encode: Callable[[list[str]], Encoded], texts: list[str]) -> Iterator[Encoded]:
    """Encode a batch as a whole, or in halves, and halves of these, if memory runs out."""
    try:
        yield encode(texts)
        return
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error) or len(texts) == 1:
            raise
    release_memory()
    middle = len(texts) // 2
    yield from in_parts(encode, texts[:middle])
    yield from in_parts(encode, texts[middle:])


_SHAPE = struct.Struct("<II")


def packed(matrices: Sequence[Vectors]) -> bytes:
    """Pack matrices one after another, each behind its shape.

    >>> [matrix.tolist() for matrix in unpacked(packed([np.ones((1, 2), np.float32), np.zeros((2, 1), np.float32)]))]
    [[[1.0, 1.0]], [[0.0], [0.0]]]
    """
    return b"".join(_SHAPE.pack(*matrix.shape) + np.ascontiguousarray(matrix).tobytes() for matrix in matrices)


def unpacked(content: bytes) -> Iterator[Vectors]:
    """Unpack the matrices, one at a time."""
    place = 0
    while place < len(content):
        rows, columns = _SHAPE.unpack_from(content, place)
        place += _SHAPE.size
        yield np.frombuffer(content, np.float32, rows * columns, place).reshape(rows, columns)
        place += 4 * rows * columns

"""Encoding by workers: batches grouped into blocks, and the encoding of matrices that come back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.encoder import Encoder, Role, Vectors
from r2med.models.memory import out_of_memory, release_memory
from r2med.pipeline.executor.blocks import Spread, SpreadJob, WorkBlock, block_key, carried, grouped
from r2med.pipeline.stage import Context
from r2med.store.arrays import ShardWriter
from r2med.store.scratch import scratch_column

if TYPE_CHECKING:
    from r2med.encode.batching import Batches, MissingTexts

Encoded = TypeVar("Encoded")
_BLOCK_TOKENS = 65_536  # tokens of a block, padding included: seconds of work, and what is lost when a worker dies
_SHAPE = struct.Struct("<II")


class PlannedBatch(NamedTuple):
    """Texts that are encoded together."""

    places: NDArray[np.intp]
    tokens: NDArray[np.int64]  # each text's length before truncation
    cost: int  # tokens, padding included


def encode_by_workers(
    work: Batches, spread: Spread, writer: ShardWriter, texts: MissingTexts, context: Context
) -> None:
    """Send batches to workers, several to a block, and store the results; the blocks are those of all texts."""
    hashes = texts.hashes
    job = SpreadJob(work.label, EncodingWorker(work.encoder, work.job.role))
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
                    payload = [[carried(text) for text in work.texts(batch.places)] for batch in batches]
                    yield WorkBlock(key, orjson.dumps(payload), batches)

    with context.executor.progress(job.name, len(texts.rest), unit="texts") as bar:
        for block, result in spread.run(job, blocks()):
            matrices = unpacked(result)
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
            parts = list(in_parts(lambda texts: self.encoder.encode(texts, self.role), batch))
            if isinstance(parts[0], list):
                matrices += chain.from_iterable(parts)
            else:
                matrices.append(np.concatenate(parts))
        return packed([np.asarray(matrix, dtype=np.float32) for matrix in matrices])


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

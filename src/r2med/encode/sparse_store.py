"""The vector store for sparse vectors: the same shards and logs, with a row per term of a text's vector.

A row is a dimension and its weight. Before the rows of a text stands one with their number and the dimension of the
space, so that an entry of the log need only say where that one is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from r2med.encode.vector_shards import Entries, Shard, ShardWriter
from r2med.encode.vector_store import VectorStore
from r2med.lexical.vectors import SparseVectors

_BLOCK = 4096
"""Vectors gathered at a time."""


@dataclass(frozen=True, eq=False)
class StoredSparse:
    """Sparse vectors of the store in the order of the request, read from the mapped shards when they are used."""

    shards: tuple[NDArray[np.uint32], ...]
    shard: NDArray[np.intp]
    row: NDArray[np.intp]
    """Where a vector's head is; its terms follow."""
    tokens: NDArray[np.int64]
    """Each text's length in the model's tokens, before truncation."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of vectors, and the dimension of their space."""
        return (len(self.row), int(self.shards[self.shard[0]][self.row[0], 1]) if len(self.row) else 0)

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> SparseVectors:
        shard, row = self.shard[places].tolist(), self.row[places].tolist()
        return SparseVectors.joined(_read(self.shards[number], start) for number, start in zip(shard, row, strict=True))

    def blocks(self) -> Iterator[SparseVectors]:
        """Yield all vectors, some thousands at a time."""
        for start in range(0, len(self), _BLOCK):
            yield self[start : start + _BLOCK]


def _read(rows: NDArray[np.uint32], start: int) -> SparseVectors:
    count = int(rows[start, 0])
    found = rows[start + 1 : start + 1 + count]
    offsets = np.array([0, count], dtype=np.int64)
    return SparseVectors(offsets, found[:, 0].astype(np.int32), np.ascontiguousarray(found[:, 1]).view(np.float32))


class SparseStore(VectorStore):
    """The sparse vectors of one setting."""

    def __init__(self, settings: Mapping[str, object], root: Path | None = None) -> None:
        super().__init__({**settings, "vectors": "sparse"}, "float32", root)

    def _extents(self, shard: Shard, entries: Entries) -> NDArray[np.int64]:
        heads = entries["row"].astype(np.int64)
        there = heads < len(shard.rows)
        extents = np.ones(len(entries), dtype=np.int64)
        extents[there] += shard.rows[heads[there], 0].view(np.uint32).astype(np.int64)
        return extents

    def sparse(self, found: NDArray[np.intp]) -> StoredSparse:
        """Return the vectors at places that `find` gave, none of them missing."""
        dense = self.vectors(found)
        return StoredSparse(tuple(rows.view(np.uint32) for rows in dense.shards), dense.shard, dense.row, dense.tokens)

    def _new_shard(self) -> ShardWriter:
        return _SparseWriter(self.folder, self.precision)


class _SparseWriter(ShardWriter):
    """Writer that takes vectors with all of their zeros and stores the rest."""

    def _columns(self, vectors: NDArray[np.floating[Any]]) -> int:
        return 2

    def _lay_down(
        self, matrix: BinaryIO, rows: NDArray[np.int64], vectors: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        found = SparseVectors.from_rows(vectors)
        starts = np.empty(len(rows), dtype=np.int64)
        checks = np.empty(len(rows), dtype=np.uint32)
        matrix.seek(0, 2)
        for place in range(len(rows)):
            span = slice(int(found.offsets[place]), int(found.offsets[place + 1]))
            record = np.empty((span.stop - span.start + 1, 2), dtype=np.uint32)
            record[0] = span.stop - span.start, vectors.shape[1]
            record[1:, 0] = found.dimensions[span]
            record[1:, 1] = found.weights[span].view(np.uint32)
            content = record.tobytes()
            starts[place], checks[place] = matrix.tell() // 8, zlib.crc32(content)
            matrix.write(content)
        return starts, checks

"""Vectors in the store: one per text, the few numbers of it that are not zero, or one per token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.errors import R2medError
from r2med.lexical.vectors import SparseVectors
from r2med.store.arrays import ArrayStore, StoredArrays

PRECISIONS = ("float32", "float16")
TOKEN_PRECISIONS = ("float16", "int8", "float32")
_BLOCK = 4096  # sparse vectors gathered at a time
_SCALE = 4  # bytes of the number after a row of int8


class StoredVectors(StoredArrays):
    """A vector per text: `vectors[10:20]` is an array of single precision, and `np.asarray(vectors)` reads all."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of vectors, and their dimension."""
        return (len(self), self.shards[0].shape[1] if self.shards else 0)

    @property
    def nbytes(self) -> int:
        """Return the size of the vectors as they are stored."""
        return len(self) * self.shape[1] * (self.shards[0].itemsize if self.shards else 0)

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        shard, row = self.shard[places], self.row[places]
        if len(row) == 0:
            return np.empty((0, self.shape[1]), dtype=np.float32)
        if (shard == shard[0]).all():
            first, rows = int(row[0]), self.shards[shard[0]]
            # Rows that follow one another need no copy.
            follow = isinstance(places, slice) and bool((np.diff(row) == 1).all())
            vectors: Vectors = (rows[first : first + len(row)] if follow else rows[row]).astype(np.float32, copy=False)
            return vectors
        gathered = np.empty((len(row), self.shape[1]), dtype=np.float32)
        for number in np.unique(shard).tolist():
            in_shard = shard == number
            gathered[in_shard] = self.shards[number][row[in_shard]]
        return gathered

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)


class StoredSparse(StoredArrays):
    """A sparse vector per text: a row with the dimension of the space, then a dimension and its weight per row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of vectors, and the dimension of their space."""
        return (len(self), int(self.rows(0)[0, 1]) if len(self) else 0)

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> SparseVectors:
        rows = [self.rows(place)[1:] for place in np.arange(len(self))[places].tolist()]
        terms = np.concatenate([np.empty((0, 2), np.uint32), *rows])
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return SparseVectors(offsets, terms[:, 0].astype(np.int32), np.ascontiguousarray(terms[:, 1]).view(np.float32))

    def blocks(self) -> Iterator[SparseVectors]:
        """Yield all vectors, some thousands at a time."""
        for start in range(0, len(self), _BLOCK):
            yield self[start : start + _BLOCK]


class TokenVectors(StoredArrays):
    """The vectors of the tokens of each text that count; a row of int8 ends with the scale of its whole numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of texts, and the dimension of the vectors."""
        if not self.shards:
            return (len(self), 0)
        return (len(self), self.shards[0].shape[1] - (_SCALE if self.shards[0].dtype == np.uint8 else 0))

    @property
    def nbytes(self) -> int:
        """Return the size of the vectors as they are stored; a text that occurs twice is stored once."""
        places = np.unique(np.stack([self.shard, self.row]), axis=1, return_index=True)[1]
        return int(self.count[places].sum()) * (self.shards[0][:1].nbytes if self.shards else 0)

    def of(self, place: int) -> Vectors:
        """Return the vectors of one text, in single precision."""
        return as_single(self.rows(place))


def as_single(rows: NDArray[Any]) -> Vectors:
    """Convert stored rows to vectors of single precision."""
    if rows.dtype != np.uint8:
        return rows.astype(np.float32, copy=False)
    codes, scales = codes_and_scales(rows)
    vectors: Vectors = codes.astype(np.float32)
    vectors *= scales
    return vectors


def codes_and_scales(rows: NDArray[np.uint8]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Split rows of int8 into their whole numbers and a column with the scale of each row."""
    return rows[:, :-_SCALE].view(np.int8), np.ascontiguousarray(rows[:, -_SCALE:]).view("<f4")


def as_bytes(vectors: Vectors) -> NDArray[np.uint8]:
    """Convert vectors to a byte per number, each with its own scale."""
    scales = (np.abs(vectors).max(axis=1, keepdims=True) / 127).astype("<f4")
    codes = np.rint(vectors / np.where(scales > 0, scales, 1)).astype(np.int8)
    return np.concatenate((codes.view(np.uint8), scales.view(np.uint8)), axis=1)


class PreciseStore(ArrayStore):
    """Vectors of one setting, kept in a stated precision."""

    precisions: ClassVar[tuple[str, ...]] = PRECISIONS

    def __init__(self, settings: Mapping[str, object], precision: str = "float32", root: Path | None = None) -> None:
        if precision not in self.precisions:
            raise R2medError(f"vectors cannot be kept as {precision!r}; known: {', '.join(self.precisions)}")
        super().__init__(settings, precision, root)


class VectorStore(PreciseStore):
    """The vectors of one setting, one per text."""

    def pack(self, batch: Any) -> Sequence[NDArray[Any]]:
        """Return the vectors of a batch, the rows of a matrix, as they are stored."""
        return list(np.ascontiguousarray(batch, dtype=self.precision)[:, None])

    def vectors(self, places: NDArray[np.intp]) -> StoredVectors:
        """Return the vectors at places that `find` gave, none of them missing."""
        return self.located(places, StoredVectors)


class SparseStore(ArrayStore):
    """The sparse vectors of one setting."""

    def __init__(self, settings: Mapping[str, object], root: Path | None = None) -> None:
        super().__init__({**settings, "vectors": "sparse"}, "float32", root)

    def pack(self, batch: Any) -> Sequence[NDArray[Any]]:
        """Return the vectors of a batch, the rows of a matrix with all zeros, as they are stored."""
        sparse = SparseVectors.from_rows(np.asarray(batch, dtype=np.float32))
        terms = np.stack([sparse.dimensions.view(np.uint32), sparse.weights.view(np.uint32)], axis=1)
        head = np.array([[0, batch.shape[1]]], dtype=np.uint32)
        return [np.concatenate([head, terms[start:stop]]) for start, stop in pairwise(sparse.offsets.tolist())]

    def vectors(self, places: NDArray[np.intp]) -> StoredSparse:
        """Return the vectors at places that `find` gave, none of them missing."""
        return self.located(places, StoredSparse)


class TokenStore(PreciseStore):
    """The vectors of tokens of one setting."""

    precisions = TOKEN_PRECISIONS

    def pack(self, batch: Any) -> Sequence[NDArray[Any]]:
        """Return the vectors of a batch, a matrix per text, as they are stored."""
        if self.precision == "int8":
            return [as_bytes(span) for span in batch]
        return [np.ascontiguousarray(span, dtype=self.precision) for span in batch]

    def vectors(self, places: NDArray[np.intp]) -> TokenVectors:
        """Return the vectors at places that `find` gave, none of them missing."""
        return self.located(places, TokenVectors)

"""The vectors of tokens on disk: a span of rows for each text, mapped, in half precision or a byte per number.

A text has as many rows as it has tokens that count. They lie in the order in which texts were encoded, in shards of the
vector store, and are read from the mapped file when they are used: a corpus of any size needs no memory of its own.

In int8 a row is a vector's numbers as whole numbers of one byte, and after them the number that they are multiplied
with again, which is the vector's greatest divided by 127.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.vector_shards import SPAN, Entries, Shard, ShardWriter, entry_checks
from r2med.encode.vector_store import VectorStore
from r2med.errors import R2medError

TOKEN_PRECISIONS = ("float16", "int8", "float32")
_GREATEST = 127
_SCALE = 4
"""Bytes of the number after a row of int8."""


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """The token vectors of some texts, in the order of the request, read from the mapped shards."""

    shards: tuple[NDArray[Any], ...]
    shard: NDArray[np.intp]
    """Which shard holds a text's vectors."""
    row: NDArray[np.intp]
    """The first of them."""
    count: NDArray[np.intp]
    """How many there are."""
    tokens: NDArray[np.int64]
    """Each text's length in the model's tokens, before truncation."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def dimension(self) -> int:
        """Return the dimension of the vectors."""
        if not self.shards:
            return 0
        width = int(self.shards[0].shape[1])
        return width - _SCALE if self.shards[0].dtype == np.uint8 else width

    @property
    def nbytes(self) -> int:
        """Return the size of the vectors as they are stored; a text that occurs twice is stored once."""
        width = self.shards[0].shape[1] * self.shards[0].itemsize if self.shards else 0
        places = np.unique(np.stack([self.shard, self.row]), axis=1, return_index=True)[1]
        return int(self.count[places].sum()) * width

    def of(self, place: int) -> Vectors:
        """Return the vectors of one text, in single precision."""
        first = int(self.row[place])
        return as_single(self.shards[self.shard[place]][first : first + int(self.count[place])])


def as_single(rows: NDArray[Any]) -> Vectors:
    """Convert stored rows to vectors of single precision.

    >>> as_single(as_bytes(np.array([[0.5, -1.0]], dtype=np.float32))).round(2).tolist()
    [[0.5, -1.0]]
    """
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
    scales = (np.abs(vectors).max(axis=1, keepdims=True) / _GREATEST).astype("<f4")
    codes = np.rint(vectors / np.where(scales > 0, scales, 1)).astype(np.int8)
    return np.concatenate((codes.view(np.uint8), scales.view(np.uint8)), axis=1)


class TokenStore(VectorStore):
    """The token vectors of one setting, as they are on disk now."""

    precisions = TOKEN_PRECISIONS

    def spans(self, found: NDArray[np.intp]) -> TokenVectors:
        """Return the vectors at places that `find` gave, none of them missing."""
        columns = self.located(found, "row", "count", "tokens")
        return TokenVectors(tuple(shard.rows for shard in self._shards), *columns)

    def _extents(self, shard: Shard, entries: Entries) -> NDArray[np.int64]:
        return entries["count"].astype(np.int64)

    def _new_shard(self) -> SpanWriter:
        return SpanWriter(self.folder, "uint8" if self.precision == "int8" else self.precision)

    def writer(self) -> SpanWriter:
        """Start a new shard of this setting."""
        made = super().writer()
        assert isinstance(made, SpanWriter)
        return made


class SpanWriter(ShardWriter):
    """A new shard of token vectors, appended text by text."""

    layout = 1

    def append_spans(self, texts: NDArray[np.uint64], tokens: NDArray[np.int64], spans: Sequence[Vectors]) -> None:
        """Store a batch: text hashes, their lengths in tokens, and the vectors of each."""
        try:
            self._append_spans(texts, tokens, [self._kept(span) for span in spans])
        except OSError as error:
            raise R2medError(f"cannot keep vectors in {self._path.parent}: {error.strerror or error}") from error

    def _kept(self, vectors: Vectors) -> NDArray[Any]:
        return as_bytes(vectors) if self.kind == np.uint8 else np.ascontiguousarray(vectors, dtype=self.kind)

    def _append_spans(
        self, texts: NDArray[np.uint64], tokens: NDArray[np.int64], spans: Sequence[NDArray[Any]]
    ) -> None:
        matrix, log = self.files(spans[0].shape[1])
        width = spans[0].shape[1] * spans[0].itemsize
        entries = np.zeros(len(texts), dtype=SPAN)
        counts = np.array([len(span) for span in spans])
        entries["text"], entries["tokens"], entries["count"] = texts, tokens, counts
        entries["row"] = matrix.tell() // width + np.concatenate(([0], np.cumsum(counts)[:-1]))
        for place, span in enumerate(spans):
            content = span.tobytes()
            entries["vector"][place] = zlib.crc32(content)
            matrix.write(content)
        # The entries come last, in one piece: what they speak of is there already.
        matrix.flush()
        entries["check"] = entry_checks(entries)
        log.write(entries.tobytes())

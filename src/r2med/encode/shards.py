"""Shards: the files of the vector store, each written by one process and readable at every moment.

A shard is two files. `NAME.rows` is a plain matrix, a row a text, in the order in which the texts were asked for, so
that a collection encoded in one go can be mapped and used as it lies. `NAME.log` says which text has which row: after
a header, 32 bytes a text, appended batch by batch once the batch's rows are in the other file. A row without an entry
does not exist. Entries and rows have checksums of their own, so one flipped bit costs one text.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from r2med.encode.base import Vectors
from r2med.errors import R2medError

_MAGIC = b"r2medvec"
_HEADER = struct.Struct("<8sIIII4xI")  # magic, version, dimension, bytes a number, unused, checksum
_VERSION = 1
_HEX = re.compile("[0-9a-f]{1,16}")
ENTRY = np.dtype([("text", "<u8", (2,)), ("row", "<u4"), ("tokens", "<u4"), ("vector", "<u4"), ("check", "<u4")])
"""What a log says of a text: its hash, row, length in tokens, and the checksums of its vector and of all this."""
_MIX = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD3A2646D, 0xFD7046C5], dtype=np.uint32)

Entries = NDArray[Any]
"""Rows of `ENTRY`."""


@dataclass(frozen=True, eq=False)
class Shard:
    """A shard as it lies on disk: its good entries, and its rows, mapped."""

    path: Path
    rows: NDArray[np.floating[Any]]
    entries: Entries
    damaged: int = 0
    """Entries that did not pass their checksum."""

    def intact(self, entries: Entries) -> NDArray[np.bool_]:
        """Which of these entries' vectors pass their checksum."""
        width = self.rows.shape[1] * self.rows.itemsize
        there = len(self.rows)
        view = self.rows.data.cast("B") if there else memoryview(b"")
        found = (
            row < there and zlib.crc32(view[row * width : (row + 1) * width]) == check
            for row, check in zip(entries["row"].tolist(), entries["vector"].tolist(), strict=True)
        )
        return np.fromiter(found, dtype=np.bool_, count=len(entries))


def read_shard(log: Path) -> Shard | None:
    """The shard of a log; None when not even its header can be used."""
    data = log.read_bytes()
    layout = _read_header(data[: _HEADER.size])
    if layout is None:
        return None
    dimension, kind = layout
    # A process that was killed may leave a part of an entry at the end.
    count = (len(data) - _HEADER.size) // ENTRY.itemsize
    entries = np.frombuffer(data, ENTRY, count, _HEADER.size)
    good = entries["check"] == _checks(entries)
    file = log.with_suffix(".rows")
    size = file.stat().st_size // (dimension * kind.itemsize) if file.exists() else 0
    # A plain array over the mapping: the mapping's own class makes every slice slow.
    rows = np.asarray(np.memmap(file, kind, "r", shape=(size, dimension))) if size else np.empty((0, dimension), kind)
    return Shard(file, rows, entries[good], int(count - good.sum()))


class ShardWriter:
    """A new shard. Nothing is on disk before the first batch; whatever was appended stays when the process dies."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = np.dtype(kind)
        self.dimension = 0
        self._path = folder / f"{_next_number(folder):016x}-{os.getpid():x}-{token_hex(4)}"
        self._rows: BinaryIO | None = None
        self._log: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._rows, self._log):
            if file is not None:
                file.close()

    def append(
        self, texts: NDArray[np.uint64], rows: NDArray[np.int64], tokens: NDArray[np.int64], vectors: Vectors
    ) -> None:
        """Keep a batch: text hashes, the rows they shall have, their lengths in tokens, and their vectors."""
        try:
            self._append(texts, rows, tokens, np.ascontiguousarray(vectors, dtype=self.kind))
        except OSError as error:
            raise R2medError(f"cannot keep vectors in {self._path.parent}: {error.strerror or error}") from error

    def _append(
        self,
        texts: NDArray[np.uint64],
        rows: NDArray[np.int64],
        tokens: NDArray[np.int64],
        vectors: NDArray[np.floating[Any]],
    ) -> None:
        matrix, log = self._open(vectors.shape[1])
        entries = np.empty(len(texts), dtype=ENTRY)
        entries["text"], entries["row"], entries["tokens"] = texts, rows, tokens
        width = vectors.shape[1] * vectors.itemsize
        for place, row in enumerate(rows.tolist()):
            content = vectors[place].tobytes()
            entries["vector"][place] = zlib.crc32(content)
            matrix.seek(row * width)
            matrix.write(content)
        # The entries come last, in one piece: what they speak of is there already.
        matrix.flush()
        entries["check"] = _checks(entries)
        log.write(entries.tobytes())

    def _open(self, dimension: int) -> tuple[BinaryIO, BinaryIO]:
        if self._rows is None or self._log is None:
            self.dimension = dimension
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = self._path.with_suffix(".rows").open("xb")
            self._log = self._path.with_suffix(".log").open("xb", buffering=0)
            self._log.write(_header(dimension, self.kind.itemsize))
        return self._rows, self._log


def _next_number(folder: Path) -> int:
    """A number above those of all shards that are there: of two vectors of a text the later one counts, by no clock."""
    numbers = (log.stem.partition("-")[0] for log in folder.glob("*.log"))
    return max((int(number, 16) for number in numbers if _HEX.fullmatch(number)), default=0) + 1


def entry_count(log: Path) -> int:
    """How many entries a log has, by its size."""
    return max(0, log.stat().st_size - _HEADER.size) // ENTRY.itemsize


def _header(dimension: int, itemsize: int) -> bytes:
    bare = _HEADER.pack(_MAGIC, _VERSION, dimension, itemsize, 0, 0)
    return _HEADER.pack(_MAGIC, _VERSION, dimension, itemsize, 0, zlib.crc32(bare[:-4]))


def _read_header(data: bytes) -> tuple[int, np.dtype[Any]] | None:
    if len(data) < _HEADER.size:
        return None
    magic, version, dimension, itemsize, _, check = _HEADER.unpack(data)
    if magic != _MAGIC or version != _VERSION or check != zlib.crc32(data[:-4]) or dimension == 0:
        return None
    return dimension, np.dtype(np.float16 if itemsize == 2 else np.float32)


def _checks(entries: Entries) -> NDArray[np.uint32]:
    """A checksum an entry: any change of one of its words changes it, and zeros do not pass."""
    words = np.ascontiguousarray(entries).view("<u4").reshape(-1, ENTRY.itemsize // 4)[:, :-1]
    found: NDArray[np.uint32] = (words * _MIX).sum(axis=1, dtype=np.uint32) + np.uint32(0x5BD1E995)
    return found

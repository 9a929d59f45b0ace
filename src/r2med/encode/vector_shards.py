"""Shards: the files of the vector store, each written by one process and readable at every moment.

A shard is two files. `NAME.rows` is a plain matrix, a row per text, in the order in which the texts were requested, so
that a collection encoded in one go can be mapped and used as it lies. `NAME.log` says which text has which row: after
a header, 32 bytes per text, appended batch by batch once the batch's rows are in the other file. A row without an entry
does not exist. Entries and rows have checksums of their own, so one flipped bit costs one text.

A text may have one row, or a span of rows that follow one another: the vectors of its tokens (`token_store`).
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.text_hashes import TextHashes
from r2med.errors import R2medError
from r2med.store.files import lock_open_file
from r2med.store.scratch import is_short, places_where, rows_at

_MAGIC = b"r2medvec"
_HEADER = struct.Struct("<8sIIII4xI")  # magic, version, numbers a row, bytes a number, layout, checksum
_VERSION = 1
_HEX = re.compile("[0-9a-f]{1,16}")
ENTRY = np.dtype([("text", "<u8", (2,)), ("row", "<u4"), ("tokens", "<u4"), ("vector", "<u4"), ("check", "<u4")])
"""What a log says of a text: its hash, row, length in tokens, and the checksums of its vector and of all this."""
SPAN = np.dtype(
    [("text", "<u8", (2,)), ("row", "<u8"), ("count", "<u4"), ("tokens", "<u4"), ("vector", "<u4"), ("check", "<u4")]
)
"""The same of a text with several rows: the first of them, and how many."""
_LAYOUTS = (ENTRY, SPAN)
_KINDS: Mapping[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.float16), 4: np.dtype(np.float32)}
_MIX = np.array(
    [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD3A2646D, 0xFD7046C5, 0xB55A4F09, 0x8F1BBCDD],
    dtype=np.uint32,
)
Entries = NDArray[Any]
"""Rows of `ENTRY` or `SPAN`."""


@dataclass(frozen=True, eq=False)
class Shard:
    """A shard on disk: its valid entries, and its rows, memory-mapped."""

    path: Path
    rows: NDArray[Any]
    entries: Entries
    damaged: int = 0
    """Entries that did not pass their checksum."""

    def unchanged(self, entries: Entries, extents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the entries whose content is as written, given how many rows each takes."""
        width = self.rows.shape[1] * self.rows.itemsize
        there = len(self.rows)
        view = self.rows.data.cast("B") if there else memoryview(b"")
        found = (
            row + extent <= there and zlib.crc32(view[row * width : (row + extent) * width]) == check
            for row, extent, check in zip(
                entries["row"].tolist(), extents.tolist(), entries["vector"].tolist(), strict=True
            )
        )
        return np.fromiter(found, dtype=np.bool_, count=len(entries))


def read_shard(log: Path) -> Shard | None:
    """Read the shard of a log; None if not even its header can be used."""
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
    layout = _read_header(header)
    if layout is None:
        if _of_another_version(header):
            raise R2medError(f"{log}: made by another version of r2med; remove {log.parent}, it is made again")
        return None
    dimension, kind, entry = layout
    entries = _read_entries(log, entry)
    good = places_where(lambda some: entries["check"][some] == entry_checks(entries[some]), len(entries))
    damaged = len(entries) - len(good)
    matrix = log.with_suffix(".rows")
    size = matrix.stat().st_size // (dimension * kind.itemsize) if matrix.exists() else 0
    rows = _read_rows(matrix, kind, (size, dimension)) if size else np.empty((0, dimension), kind)
    return Shard(matrix, rows, rows_at(entries, good) if damaged else entries, damaged)


def _read_entries(log: Path, entry: np.dtype[Any]) -> Entries:
    """Read all entries of a log, valid or not; a large one is mapped, which keeps its file open."""
    # A process that was killed may leave a part of an entry at the end.
    count = (log.stat().st_size - _HEADER.size) // entry.itemsize
    if is_short(count * entry.itemsize):
        return np.fromfile(log, entry, count, offset=_HEADER.size)
    return _mapped(log, entry, (count,), _HEADER.size)


def _read_rows(file: Path, kind: np.dtype[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Read a small matrix and map a large one, which keeps its file open."""
    if not is_short(shape[0] * shape[1] * kind.itemsize):
        return _mapped(file, kind, shape)
    rows = np.fromfile(file, kind, shape[0] * shape[1]).reshape(shape)
    rows.flags.writeable = False
    return rows


def _mapped(file: Path, kind: np.dtype[Any], shape: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
    # A plain array over the mapping: the mapping's own class makes every slice slow.
    return np.asarray(np.memmap(file, kind, "r", offset, shape))


class ShardWriter:
    """A new shard. Nothing is on disk before the first batch; appended batches survive if the process dies."""

    layout = 0

    def __init__(self, folder: Path, kind: str, number: int = 0) -> None:
        self.kind = np.dtype(kind)
        self.dimension = 0
        # Above all shards that exist: the later of two vectors of a text counts, without a clock.
        number = number or max(map(number_of, folder.glob("*.log")), default=0) + 1
        self._path = folder / f"{number:016x}-{os.getpid():x}-{token_hex(4)}"
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

    def append(self, texts: TextHashes, rows: NDArray[np.int64], tokens: NDArray[np.int64], vectors: Vectors) -> None:
        """Store a batch: text hashes, their rows, their lengths in tokens, and their vectors."""
        try:
            self._append(texts, rows, tokens, np.ascontiguousarray(vectors, dtype=self.kind))
        except OSError as error:
            raise R2medError(f"cannot keep vectors in {self._path.parent}: {error.strerror or error}") from error

    def _append(
        self,
        texts: TextHashes,
        rows: NDArray[np.int64],
        tokens: NDArray[np.int64],
        vectors: NDArray[np.floating[Any]],
    ) -> None:
        matrix, log = self.files(self._columns(vectors))
        entries = np.empty(len(texts), dtype=ENTRY)
        entries["text"], entries["tokens"] = texts, tokens
        entries["row"], entries["vector"] = self._lay_down(matrix, rows, vectors)
        # The entries come last, in one piece: what they speak of is there already.
        matrix.flush()
        entries["check"] = entry_checks(entries)
        log.write(entries.tobytes())

    def _columns(self, vectors: NDArray[np.floating[Any]]) -> int:
        """Return the number of columns in the file."""
        return int(vectors.shape[1])

    def _lay_down(
        self, matrix: BinaryIO, rows: NDArray[np.int64], vectors: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Write vectors to their rows; returns the place of each, and its checksum."""
        width = vectors.shape[1] * vectors.itemsize
        checks = np.empty(len(rows), dtype=np.uint32)
        for place, row in enumerate(rows.tolist()):
            content = vectors[place].tobytes()
            checks[place] = zlib.crc32(content)
            matrix.seek(row * width)
            matrix.write(content)
        return rows, checks

    def files(self, dimension: int) -> tuple[BinaryIO, BinaryIO]:
        """Return the files of the rows and of the entries, created with the first batch."""
        if self._rows is None or self._log is None:
            self.dimension = dimension
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = self._path.with_suffix(".rows").open("xb")
            self._log = self._path.with_suffix(".log").open("xb", buffering=0)
            lock_open_file(self._log.fileno())  # so that no other process merges it meanwhile
            self._log.write(_header(dimension, self.kind.itemsize, self.layout))
        return self._rows, self._log


def merge_shards(shards: Sequence[Shard], kept: Sequence[Entries], extents: Sequence[NDArray[np.int64]]) -> None:
    """Write entries of some shards, oldest first, and the rows that they take into one shard at the newest one's place.

    If several of them have a text, the newest entry is written.
    """
    entries = np.concatenate(kept)
    newest = len(entries) - 1 - np.unique(entries["text"][::-1], axis=0, return_index=True)[1]
    owners = np.repeat(np.arange(len(kept)), [len(each) for each in kept])[newest]
    taken, entries = np.concatenate(extents)[newest], entries[newest]
    first = shards[0].rows
    with ShardWriter(shards[0].path.parent, first.dtype.str, number_of(shards[-1].path)) as writer:
        writer.layout = _LAYOUTS.index(entries.dtype)
        matrix, log = writer.files(first.shape[1])
        for owner, row, extent in zip(owners.tolist(), entries["row"].tolist(), taken.tolist(), strict=True):
            matrix.write(shards[owner].rows[row : row + extent].tobytes())
        matrix.flush()
        entries["row"] = np.cumsum(taken) - taken
        entries["check"] = entry_checks(entries)
        log.write(entries.tobytes())


def number_of(path: Path) -> int:
    """Return the number by which a shard is newer than others; 0 for a file that is not named like one."""
    number = path.stem.partition("-")[0]
    return int(number, 16) if _HEX.fullmatch(number) else 0


def entry_count(log: Path) -> int:
    """Count the entries of a log, by its size."""
    with log.open("rb") as file:
        layout = _read_header(file.read(_HEADER.size))
    return max(0, log.stat().st_size - _HEADER.size) // (layout[2] if layout else ENTRY).itemsize


def _header(dimension: int, itemsize: int, layout: int) -> bytes:
    bare = _HEADER.pack(_MAGIC, _VERSION, dimension, itemsize, layout, 0)
    return _HEADER.pack(_MAGIC, _VERSION, dimension, itemsize, layout, zlib.crc32(bare[:-4]))


def _read_header(data: bytes) -> tuple[int, np.dtype[Any], np.dtype[Any]] | None:
    """Parse a header: the number of columns, their type, and the layout of an entry."""
    if len(data) < _HEADER.size:
        return None
    magic, version, dimension, itemsize, layout, check = _HEADER.unpack(data)
    if magic != _MAGIC or version != _VERSION or check != zlib.crc32(data[:-4]) or dimension == 0:
        return None
    if itemsize not in _KINDS or layout >= len(_LAYOUTS):
        return None
    return dimension, _KINDS[itemsize], _LAYOUTS[layout]


def _of_another_version(data: bytes) -> bool:
    """Return whether a header is valid except for its version."""
    if len(data) < _HEADER.size:
        return False
    magic, version, *_, check = _HEADER.unpack(data)
    return bool(magic == _MAGIC and version != _VERSION and check == zlib.crc32(data[:-4]))


def entry_checks(entries: Entries) -> NDArray[np.uint32]:
    """Compute a checksum per entry: any change of one of its words changes it, and zeros do not pass."""
    words = np.ascontiguousarray(entries).view("<u4").reshape(-1, entries.dtype.itemsize // 4)[:, :-1]
    found: NDArray[np.uint32] = (words * _MIX[: words.shape[1]]).sum(axis=1, dtype=np.uint32) + np.uint32(0x5BD1E995)
    return found

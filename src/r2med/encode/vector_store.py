"""The vector store: one text under one setting is encoded once, ever.

Under `R2MED_HOME/vectors` there is a folder for every setting (everything an encoder says its vectors depend on, and
the precision they are kept in), with that setting in `settings.json` and the vectors in shards. Within a setting a
text is known by a hash of itself alone, so a small corpus after the large one it was taken from costs nothing.

Several processes may write at once, each to a shard of its own. Of a text that is there more than once the newest
vector counts: so does the one that replaced a damaged vector.

Shards: the files of the vector store, each written by one process and readable at every moment.

A shard is two files. `NAME.rows` is a plain matrix, a row a text, in the order in which the texts were asked for, so
that a collection encoded in one go can be mapped and used as it lies. `NAME.log` says which text has which row: after
a header, 32 bytes a text, appended batch by batch once the batch's rows are in the other file. A row without an entry
does not exist. Entries and rows have checksums of their own, so one flipped bit costs one text.

A text may have one row, or a span of rows that follow one another: the vectors of its tokens (`token_store`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.errors import R2medError, suggest
from r2med.storage.cache import cache_key
from r2med.storage.files import write_file
from r2med.storage.home import home

PRECISIONS = ("float32", "float16")
_SETTINGS = "settings.json"
_HASHED = 65_536  # texts hashed at a time, so that those of a large corpus are never all in memory


def text_hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Each text's 16-byte hash, as two numbers.

    >>> text_hashes(["a", "b"]).shape
    (2, 2)
    """
    hashes = np.empty((len(texts), 2), dtype="<u8")
    for start in range(0, len(texts), _HASHED):
        some = texts[start : start + _HASHED]
        digests = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in some]
        hashes[start : start + _HASHED] = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)
    return hashes


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Vectors of the store in the order they were asked for, read from the mapped shards when they are used.

    `vectors[10:20]` is an array of single precision, a view of the file where the rows lie in a row there;
    `np.asarray(vectors)` reads all of them.
    """

    shards: tuple[NDArray[np.floating[Any]], ...]
    shard: NDArray[np.intp]
    """Which shard holds a vector."""
    row: NDArray[np.intp]
    """And at which of its rows."""
    tokens: NDArray[np.int64]
    """Each text's length in the model's tokens, before truncation."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many vectors, and their dimension."""
        return (len(self.row), self.shards[0].shape[1] if self.shards else 0)

    @property
    def nbytes(self) -> int:
        """Their size as they are kept."""
        return len(self.row) * self.shape[1] * (self.shards[0].itemsize if self.shards else 0)

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        shard, row = self.shard[places], self.row[places]
        if len(row) == 0:
            return np.empty((0, self.shape[1]), dtype=np.float32)
        if (shard == shard[0]).all():
            first, rows = int(row[0]), self.shards[shard[0]]
            # Rows that follow one another need no copy.
            follow = isinstance(places, slice) and bool((np.diff(row) == 1).all())
            found: Vectors = (rows[first : first + len(row)] if follow else rows[row]).astype(np.float32, copy=False)
            return found
        gathered = np.empty((len(row), self.shape[1]), dtype=np.float32)
        for number in np.unique(shard).tolist():
            here = shard == number
            gathered[here] = self.shards[number][row[here]]
        return gathered

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)


class VectorStore:
    """The vectors of one setting, as they are on disk now."""

    precisions: ClassVar[tuple[str, ...]] = PRECISIONS

    def __init__(self, settings: Mapping[str, object], precision: str = "float32", root: Path | None = None) -> None:
        if precision not in self.precisions:
            raise R2medError(f"vectors cannot be kept as {precision!r}; known: {', '.join(self.precisions)}")
        self.settings, self.precision = dict(settings), precision
        self.folder = (root or vector_root()) / cache_key(settings=sorted(self.settings.items()), precision=precision)
        self.damage: list[str] = []
        """What was found damaged, a sentence a shard."""
        self._shards: list[Shard] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the shards that have been added since."""
        known = {shard.path.stem: shard for shard in self._shards}
        self._shards = []
        for log in sorted(self.folder.glob("*.log")):
            shard = known.get(log.stem) or self._read(log)
            if shard is not None and len(shard.entries):
                self._shards.append(shard)
        dimensions = {shard.rows.shape[1] for shard in self._shards}
        if len(dimensions) > 1:
            sizes = " and ".join(map(str, sorted(dimensions)))
            raise R2medError(f"{self.name} has kept vectors of {sizes} dimensions in {self.folder}; remove that folder")
        self.dimension = dimensions.pop() if dimensions else 0
        self._index = _Index([shard.entries for shard in self._shards])

    @property
    def name(self) -> str:
        """The model, as its settings name it."""
        return str(self.settings.get("model", "the model"))

    def _read(self, log: Path) -> Shard | None:
        shard = read_shard(log)
        if shard is None:
            if log.stat().st_size:
                self.damage.append(f"the vectors of {self.name} in {log.name} have a damaged header")
        elif shard.damaged:
            self.damage.append(f"{shard.damaged} entries of {self.name} in {log.name} are damaged")
        return shard

    def find(self, texts: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Where each text's vector is, for `vectors`; -1 for a text that has none, or only a damaged one."""
        found = self._index.find(texts)
        for number, shard in enumerate(self._shards):
            here = np.flatnonzero((found >= 0) & (self._index.shard[found] == number))
            wanted = np.unique(found[here])
            broken = wanted[~self._intact(shard, self._index.entries[wanted])]
            if len(broken):
                found[here[np.isin(found[here], broken)]] = -1
                self.damage.append(f"{len(broken)} vectors of {self.name} in {shard.path.name} are damaged")
        return found

    def _intact(self, shard: Shard, entries: Entries) -> NDArray[np.bool_]:
        return shard.intact(entries)

    def vectors(self, found: NDArray[np.intp]) -> StoredVectors:
        """The vectors at places that `find` gave, none of them missing."""
        entries = self._index.entries[found]
        shards = tuple(shard.rows for shard in self._shards)
        rows, tokens = entries["row"].astype(np.intp), entries["tokens"].astype(np.int64)
        return StoredVectors(shards, self._index.shard[found], rows, tokens)

    def writer(self) -> ShardWriter:
        """A new shard of this setting."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _describe(self.folder, self.settings, self.precision)
        except OSError as error:
            raise R2medError(f"cannot keep vectors in {self.folder}: {error.strerror or error}") from error
        return self._new_shard()

    def _new_shard(self) -> ShardWriter:
        return ShardWriter(self.folder, self.precision)


class _Index:
    """The entries of all shards, oldest first, with a way to find a text's newest without a loop over texts."""

    def __init__(self, logs: Sequence[Entries]) -> None:
        self.shard = np.repeat(np.arange(len(logs)), [len(log) for log in logs])
        self.entries: Entries = np.concatenate(logs) if logs else np.empty(0, dtype=ENTRY)
        keys = self.entries["text"]
        self._order = np.lexsort((keys[:, 1], keys[:, 0]))
        self._high, self._low = keys[self._order, 0], keys[self._order, 1]

    def find(self, texts: NDArray[np.uint64]) -> NDArray[np.intp]:
        """The newest entry of each text, -1 where there is none."""
        found = np.full(len(texts), -1, dtype=np.intp)
        place = np.searchsorted(self._high, texts[:, 0], side="right") - 1
        open_ = np.flatnonzero(place >= 0)
        # One round, but for texts that share half of a hash with another one.
        while len(open_):
            at, wanted = place[open_], texts[open_]
            open_, at, wanted = (part[self._high[at] == wanted[:, 0]] for part in (open_, at, wanted))
            same = self._low[at] == wanted[:, 1]
            found[open_[same]] = self._order[at[same]]
            open_ = open_[~same]
            place[open_] -= 1
            open_ = open_[place[open_] >= 0]
        return found


@dataclass(frozen=True)
class StoredSetting:
    """One folder of the store, for `r2med cache`."""

    model: str
    role: str
    precision: str
    texts: int
    bytes: int
    folder: Path


def sizes(root: Path | None = None) -> list[StoredSetting]:
    """What the store holds, by model; nothing is read but names and sizes."""
    found = []
    for file in sorted((root or vector_root()).glob(f"*/{_SETTINGS}")):
        content = _read_settings(file)
        settings = content.get("settings", {})
        texts = sum(entry_count(log) for log in file.parent.glob("*.log"))
        used = sum(_on_disk(path) for path in file.parent.iterdir())
        model, role = str(settings.get("model", "?")), str(settings.get("role", ""))
        found.append(StoredSetting(model, role, str(content.get("precision", "")), texts, used, file.parent))
    return sorted(found, key=lambda entry: (entry.model, entry.role, entry.precision))


def clear(model: str = "", root: Path | None = None) -> list[StoredSetting]:
    """Forget all vectors of a model, or of every model; gives back what was removed."""
    stored = sizes(root)
    chosen = [entry for entry in stored if not model or entry.model.lower() == model.lower()]
    if model and not chosen:
        raise R2medError(f"no vectors of {model!r} are kept{suggest(model, {entry.model for entry in stored})}")
    for entry in chosen:
        shutil.rmtree(entry.folder, ignore_errors=True)
    return chosen


def vector_root() -> Path:
    """The store's folder in `R2MED_HOME`."""
    return home() / "vectors"


def _describe(folder: Path, settings: Mapping[str, object], precision: str) -> None:
    """Write down what the folder's name is a hash of, for people and for `clear`."""
    file = folder / _SETTINGS
    if not file.exists():
        content = {"precision": precision, "settings": settings}
        write_file(file, orjson.dumps(content, default=repr, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        content = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


def _on_disk(path: Path) -> int:
    """The bytes a file takes: rows that were never written take none."""
    status = path.stat()
    return status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size


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
    """A shard as it lies on disk: its good entries, and its rows, mapped."""

    path: Path
    rows: NDArray[Any]
    entries: Entries
    damaged: int = 0
    """Entries that did not pass their checksum."""

    def intact(self, entries: Entries) -> NDArray[np.bool_]:
        """Which of these entries' vectors pass their checksum."""
        return self.unchanged(entries, np.ones(len(entries), dtype=np.int64))

    def unchanged(self, entries: Entries, extents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these entries still have the content that was written, given how many rows each takes."""
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
    """The shard of a log; None when not even its header can be used."""
    data = log.read_bytes()
    layout = _read_header(data[: _HEADER.size])
    if layout is None:
        return None
    dimension, kind, entry = layout
    # A process that was killed may leave a part of an entry at the end.
    count = (len(data) - _HEADER.size) // entry.itemsize
    entries = np.frombuffer(data, entry, count, _HEADER.size)
    good = entries["check"] == entry_checks(entries)
    file = log.with_suffix(".rows")
    size = file.stat().st_size // (dimension * kind.itemsize) if file.exists() else 0
    # A plain array over the mapping: the mapping's own class makes every slice slow.
    rows = np.asarray(np.memmap(file, kind, "r", shape=(size, dimension))) if size else np.empty((0, dimension), kind)
    return Shard(file, rows, entries[good], int(count - good.sum()))


class ShardWriter:
    """A new shard. Nothing is on disk before the first batch; whatever was appended stays when the process dies."""

    layout = 0

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
        matrix, log = self.files(self._columns(vectors))
        entries = np.empty(len(texts), dtype=ENTRY)
        entries["text"], entries["tokens"] = texts, tokens
        entries["row"], entries["vector"] = self._lay_down(matrix, rows, vectors)
        # The entries come last, in one piece: what they speak of is there already.
        matrix.flush()
        entries["check"] = entry_checks(entries)
        log.write(entries.tobytes())

    def _columns(self, vectors: NDArray[np.floating[Any]]) -> int:
        """How many numbers a row of the file has."""
        return int(vectors.shape[1])

    def _lay_down(
        self, matrix: BinaryIO, rows: NDArray[np.int64], vectors: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Write vectors to their rows; returns where each is, and its checksum."""
        width = vectors.shape[1] * vectors.itemsize
        checks = np.empty(len(rows), dtype=np.uint32)
        for place, row in enumerate(rows.tolist()):
            content = vectors[place].tobytes()
            checks[place] = zlib.crc32(content)
            matrix.seek(row * width)
            matrix.write(content)
        return rows, checks

    def files(self, dimension: int) -> tuple[BinaryIO, BinaryIO]:
        """The files of the rows and of the entries, made with the first batch."""
        if self._rows is None or self._log is None:
            self.dimension = dimension
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = self._path.with_suffix(".rows").open("xb")
            self._log = self._path.with_suffix(".log").open("xb", buffering=0)
            self._log.write(_header(dimension, self.kind.itemsize, self.layout))
        return self._rows, self._log


def _next_number(folder: Path) -> int:
    """A number above those of all shards that are there: of two vectors of a text the later one counts, by no clock."""
    numbers = (log.stem.partition("-")[0] for log in folder.glob("*.log"))
    return max((int(number, 16) for number in numbers if _HEX.fullmatch(number)), default=0) + 1


def entry_count(log: Path) -> int:
    """How many entries a log has, by its size."""
    with log.open("rb") as file:
        layout = _read_header(file.read(_HEADER.size))
    return max(0, log.stat().st_size - _HEADER.size) // (layout[2] if layout else ENTRY).itemsize


def _header(dimension: int, itemsize: int, layout: int) -> bytes:
    bare = _HEADER.pack(_MAGIC, _VERSION, dimension, itemsize, layout, 0)
    return _HEADER.pack(_MAGIC, _VERSION, dimension, itemsize, layout, zlib.crc32(bare[:-4]))


def _read_header(data: bytes) -> tuple[int, np.dtype[Any], np.dtype[Any]] | None:
    """How many numbers a row has, of which kind, and what an entry looks like."""
    if len(data) < _HEADER.size:
        return None
    magic, version, dimension, itemsize, layout, check = _HEADER.unpack(data)
    if magic != _MAGIC or version != _VERSION or check != zlib.crc32(data[:-4]) or dimension == 0:
        return None
    if itemsize not in _KINDS or layout >= len(_LAYOUTS):
        return None
    return dimension, _KINDS[itemsize], _LAYOUTS[layout]


def entry_checks(entries: Entries) -> NDArray[np.uint32]:
    """A checksum an entry: any change of one of its words changes it, and zeros do not pass."""
    words = np.ascontiguousarray(entries).view("<u4").reshape(-1, entries.dtype.itemsize // 4)[:, :-1]
    found: NDArray[np.uint32] = (words * _MIX[: words.shape[1]]).sum(axis=1, dtype=np.uint32) + np.uint32(0x5BD1E995)
    return found

"""The content-addressed store of arrays and values: what a text leads to under one setting is computed once, ever.

Under `R2MED_HOME/vectors` (scores of pairs: `scores`, replies of search engines: `replies`) there is a folder per
setting: all that its arrays depend on besides the text, which is known by a hash of itself alone.

A folder has shards, each written by one process and readable at every moment. `NAME.rows` is a plain matrix; a text has
one row or more that follow one another. `NAME.log` says which: after a header, 40 bytes per text, appended once the
rows are written. Entries and rows have checksums of their own, so one flipped bit costs one text. If a text is stored
more than once, the newest counts. Arrays and their index are mapped, and looked up some thousands at a time.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.errors import R2medError, suggest
from r2med.store.cache import home
from r2med.store.columns import SortedHashes, TextHashes, is_short, places_where, rows_at, scratch_column, spans
from r2med.store.files import lock, make_private, reason, write_file
from r2med.store.hashes import cache_key
from r2med.store.sqlite import warn

_MAGIC = b"r2medvec"
_VERSION = 2
_HEADER = struct.Struct("<8sII4s8xI")  # magic, version, numbers per row, their type, checksum
_HEX = re.compile("[0-9a-f]{1,16}")
ENTRY = np.dtype(
    [("text", "<u8", (2,)), ("row", "<u8"), ("count", "<u4"), ("tokens", "<u4"), ("content", "<u4"), ("check", "<u4")]
)
"""What a log says of a text: its hash, first row, number of rows and length in tokens, and the checksums of its rows
and of all this."""
_MIX = np.array(
    [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD3A2646D, 0xFD7046C5, 0xB55A4F09, 0x8F1BBCDD],
    dtype=np.uint32,
)
_SETTINGS = "settings.json"
_MANY = 8  # so many small shards are merged into one
Entries = NDArray[Any]  # rows of `ENTRY`
Pack = Callable[[Any], Sequence[NDArray[Any]]]  # returns the arrays of a batch as they are stored, a matrix per text


class Shard(NamedTuple):
    """A shard on disk: its log, its rows, memory-mapped, and its valid entries."""

    log: Path
    rows: NDArray[Any]
    entries: Entries
    damaged: int  # entries that did not pass their checksum

    def is_intact(self, entries: Entries) -> NDArray[np.bool_]:
        """Return a mask of the entries whose rows are as written."""
        width, size = self.rows.shape[1] * self.rows.itemsize, len(self.rows)
        view = self.rows.data.cast("B") if size else memoryview(b"")
        columns = (entries[name].tolist() for name in ("row", "count", "content"))
        intact = (
            row + count <= size and zlib.crc32(view[row * width : (row + count) * width]) == check
            for row, count, check in zip(*columns, strict=True)
        )
        return np.fromiter(intact, dtype=np.bool_, count=len(entries))


def read_shard(log: Path) -> Shard | None:
    """Read the shard of a log; None if not even its header can be used."""
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    magic, version, columns, kind, check = _HEADER.unpack(header)
    if magic != _MAGIC or check != zlib.crc32(header[:-4]):
        return None
    if version != _VERSION:
        raise R2medError(f"{log}: made by another version of r2med; remove {log.parent}, it is made again")
    number = np.dtype(kind.rstrip(b"\0").decode())
    entries = _read(log, ENTRY, (count_entries(log),), _HEADER.size)
    good = places_where(lambda some: entries["check"][some] == entry_checks(entries[some]), len(entries))
    matrix = log.with_suffix(".rows")
    size = matrix.stat().st_size // (columns * number.itemsize) if matrix.exists() else 0
    rows = _read(matrix, number, (size, columns)) if size else np.empty((0, columns), number)
    damaged = len(entries) - len(good)
    return Shard(log, rows, rows_at(entries, good) if damaged else entries, damaged)


def _read(file: Path, kind: np.dtype[Any], shape: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
    """Read a small array and map a large one, which keeps its file open."""
    count = int(np.prod(shape))
    if not is_short(count * kind.itemsize):
        # A plain array over the mapping: the mapping's own class makes every slice slow.
        return np.asarray(np.memmap(file, kind, "r", offset, shape))
    array = np.fromfile(file, kind, count, offset=offset).reshape(shape)
    array.flags.writeable = False
    return array


def count_entries(log: Path) -> int:
    """Count the entries of a log by its size; a killed process may have left a part of one at the end."""
    return max(0, log.stat().st_size - _HEADER.size) // ENTRY.itemsize


def entry_checks(entries: Entries) -> NDArray[np.uint32]:
    """Compute a checksum per entry: any change of one of its words changes it, and zeros do not pass."""
    words = np.ascontiguousarray(entries).view("<u4").reshape(-1, len(_MIX) + 1)[:, :-1]
    return np.asarray((words * _MIX).sum(axis=1, dtype=np.uint32) + np.uint32(0x5BD1E995))


class ShardWriter:
    """A new shard. Nothing is on disk before the first batch; appended batches survive if the process dies."""

    def __init__(self, store: ArrayStore, number: int = 0, pack: Pack | None = None) -> None:
        folder = store.folder
        # Above all shards that exist: the later of two arrays of a text counts, without a clock.
        number = number or max(map(_number_of, folder.glob("*.log")), default=0) + 1
        self._path = folder / f"{number:016x}-{os.getpid():x}-{token_hex(4)}"
        self._kind, self._pack = store.kind, pack or store.pack
        self._files: tuple[BinaryIO, BinaryIO] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files or ():
            file.close()

    def append(
        self, texts: TextHashes, tokens: NDArray[np.integer[Any]], batch: Any, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Store a batch: hashes of the texts, their lengths in tokens, and their arrays, as the store packs them.

        They are put one after another, or at the given rows, so that a collection lies in the order of its texts.
        """
        if not len(texts):
            return
        arrays = self._pack(batch)
        width = arrays[0].shape[1] * arrays[0].itemsize
        entries = np.zeros(len(texts), dtype=ENTRY)
        entries["text"], entries["tokens"], entries["count"] = texts, tokens, [len(array) for array in arrays]
        counts = entries["count"].astype(np.int64)
        try:
            matrix, log = self._files = self._files or self._create(arrays[0])
            entries["row"] = matrix.tell() // width + np.cumsum(counts) - counts if rows is None else rows
            for place, array in enumerate(arrays):
                content = array.tobytes()
                entries["content"][place] = zlib.crc32(content)
                if rows is not None:
                    matrix.seek(int(rows[place]) * width)
                matrix.write(content)
            # The entries come last, in one piece: what they speak of is there already.
            matrix.flush()
            entries["check"] = entry_checks(entries)
            log.write(entries.tobytes())
        except OSError as error:
            raise R2medError(f"cannot keep {self._kind} in {self._path.parent}: {reason(error)}") from error

    def _create(self, array: NDArray[Any]) -> tuple[BinaryIO, BinaryIO]:
        matrix = self._path.with_suffix(".rows").open("xb")
        log = self._path.with_suffix(".log").open("xb", buffering=0)
        lock(log.fileno())  # so that no other process merges it meanwhile
        header = _HEADER.pack(_MAGIC, _VERSION, array.shape[1], array.dtype.str.encode(), 0)[:-4]
        log.write(header + struct.pack("<I", zlib.crc32(header)))
        return matrix, log


def _number_of(path: Path) -> int:
    """Return the number by which a shard is newer than others; 0 for a file that is not named like one."""
    number = path.stem.partition("-")[0]
    return int(number, 16) if _HEX.fullmatch(number) else 0


@dataclass(frozen=True, eq=False)
class StoredArrays:
    """Arrays of the store in the order of the request, read from the mapped shards when they are used."""

    shards: tuple[NDArray[Any], ...]
    shard: NDArray[np.intp]  # which shard holds a text's rows
    row: NDArray[np.intp]  # the first of them
    count: NDArray[np.intp]
    tokens: NDArray[np.int64]  # each text's length in the model's tokens, before truncation

    def __len__(self) -> int:
        return len(self.row)

    def rows(self, place: int) -> NDArray[Any]:
        """Return the rows of one text as they are stored."""
        first = int(self.row[place])
        return np.asarray(self.shards[self.shard[place]][first : first + int(self.count[place])])


Arrays = TypeVar("Arrays", bound=StoredArrays)


class ArrayStore:
    """The arrays of one setting, as they are on disk now."""

    kind = "vectors"  # the folder in `R2MED_HOME`, and the name in messages

    def __init__(self, settings: Mapping[str, object], precision: str = "", root: Path | None = None) -> None:
        self.settings, self.precision = dict(settings), precision
        key = cache_key(settings=sorted(self.settings.items()), precision=precision)
        self.folder = (root or home() / self.kind) / key
        self.damage: list[str] = []  # damages that were found, a sentence per shard
        self._shards: list[Shard] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the shards that were added since the last call."""
        shards, self._shards = {shard.log: shard for shard in self._shards}, []
        for log in sorted(self.folder.glob("*.log")):
            shard = shards.get(log)
            if shard is None:
                try:
                    shard, size = read_shard(log), log.stat().st_size
                except FileNotFoundError:
                    # Another process has merged it with others meanwhile: what is there now has its entries.
                    self.refresh()
                    return
                if shard is None and size:
                    self.damage.append(f"the {self.kind} of {self.name} in {log.name} have a damaged header")
                elif shard is not None and shard.damaged:
                    self.damage.append(f"{shard.damaged} entries of {self.name} in {log.name} are damaged")
            if shard is not None and len(shard.entries):
                self._shards.append(shard)
        dimensions = {shard.rows.shape[1] for shard in self._shards}
        if len(dimensions) > 1:
            what = f"{self.kind} of {' and '.join(map(str, sorted(dimensions)))} dimensions"
            raise R2medError(f"{self.name} has kept {what} in {self.folder}; remove that folder")
        self.dimension = dimensions.pop() if dimensions else 0
        self._starts = np.cumsum([0, *(len(shard.entries) for shard in self._shards)])
        self._index = SortedHashes([shard.entries["text"] for shard in self._shards])

    @property
    def name(self) -> str:
        """Return the model's name in its settings."""
        return str(self.settings.get("model", "the model"))

    def find(self, texts: TextHashes) -> NDArray[np.intp]:
        """Return the place of each text's array, for `located`; -1 for a text without one, or with a damaged one."""
        places = self._index.find(texts)
        broken: list[set[int]] = [set() for _ in self._shards]
        for some in spans(len(places)):
            needed = np.unique(places[some][places[some] >= 0])
            for number, here, entries in self._by_shard(needed):
                bad = needed[here][~self._shards[number].is_intact(entries)]
                broken[number].update(bad.tolist())
                places[some][np.isin(places[some], bad)] = -1
        for shard, lost in zip(self._shards, broken, strict=True):
            if lost:
                name = shard.log.with_suffix(".rows").name
                self.damage.append(f"{len(lost)} {self.kind} of {self.name} in {name} are damaged")
        return places

    def _by_shard(self, places: NDArray[np.intp]) -> Iterator[tuple[int, NDArray[np.bool_], Entries]]:
        """Yield the numbers of the shards in which places are, which places these are, and their entries."""
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(numbers).tolist():
            here = numbers == number
            yield number, here, self._shards[number].entries[places[here] - self._starts[number]]

    def pack(self, batch: Any) -> Sequence[NDArray[Any]]:
        """Return the arrays of a batch as they are stored, a matrix per text."""
        return list(batch)

    def located(self, places: NDArray[np.intp], kind: type[Arrays]) -> Arrays:
        """Return the arrays at places that `find` gave, none of them missing."""
        shard, *columns = (scratch_column(len(places), np.int64) for _ in range(4))
        for some in spans(len(places)):
            for number, here, entries in self._by_shard(places[some]):
                shard[some][here] = number
                for name, column in zip(("row", "count", "tokens"), columns, strict=True):
                    column[some][here] = entries[name]
        return kind(tuple(shard.rows for shard in self._shards), shard, *columns)

    def writer(self) -> ShardWriter:
        """Start a new shard of this setting."""
        try:
            make_private(self.folder)
            file = self.folder / _SETTINGS
            if not file.exists():
                content = {"precision": self.precision, "settings": self.settings}
                write_file(file, orjson.dumps(content, default=repr, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
            self._merge()
        except OSError as error:
            raise R2medError(f"cannot keep {self.kind} in {self.folder}: {reason(error)}") from error
        return ShardWriter(self)

    def _merge(self) -> None:
        """Merge small shards into one at the newest one's place: each search with one question adds a shard."""
        small = [shard.log for shard in self._shards if is_short(shard.rows.nbytes)]
        if len(small) < _MANY:
            return
        with ExitStack() as locks:
            shards = []
            for log in small:
                # Another process may hold it, or have merged it.
                with suppress(FileNotFoundError):
                    file = locks.enter_context(log.open("rb"))
                    if lock(file.fileno()) and log.exists() and (shard := read_shard(log)) is not None:
                        shards.append(shard)
            if len(shards) < _MANY:
                return
            with ShardWriter(self, _number_of(shards[-1].log), list) as writer:
                for shard in shards:
                    intact = shard.entries[shard.is_intact(shard.entries)]
                    if len(intact):
                        places = zip(intact["row"].tolist(), intact["count"].tolist(), strict=True)
                        arrays = [shard.rows[row : row + count] for row, count in places]
                        writer.append(intact["text"], intact["tokens"], arrays)
            # The entries first: rows without them do not exist.
            for ending in (".log", ".rows"):
                for shard in shards:
                    shard.log.with_suffix(ending).unlink(missing_ok=True)


class ValueStore(ArrayStore):
    """The values of one setting, some bytes per key of 16 bytes. A value that cannot be kept is a warning."""

    def __init__(self, kind: str, settings: Mapping[str, object]) -> None:
        self.kind = kind
        self._writer: ShardWriter | None = None
        super().__init__(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.__exit__()

    def __len__(self) -> int:
        self.refresh()
        return _count_values(self._shards)

    def read(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values that are stored, by key."""
        self.refresh()
        asked = list(dict.fromkeys(keys))
        places = self.find(np.frombuffer(b"".join(asked), "<u8").reshape(-1, 2))
        for sentence in self.damage:
            warn(f"{sentence}; what was needed of them is made again")
        self.damage.clear()
        stored = np.flatnonzero(places >= 0)
        values = self.located(places[stored], StoredArrays)
        content = {asked[place]: values.rows(number).tobytes() for number, place in enumerate(stored.tolist())}
        return {key: value for key, value in content.items() if value}

    def write(self, values: Mapping[bytes, bytes]) -> None:
        """Store values at once; an empty one removes its key."""
        if not values:
            return
        keys = np.frombuffer(b"".join(values), "<u8").reshape(-1, 2)
        arrays = [np.frombuffer(value, np.uint8)[:, None] for value in values.values()]
        try:
            self._writer = self._writer or self.writer()
            self._writer.append(keys, np.zeros(len(keys), np.int64), arrays)
        except R2medError as error:
            warn(str(error))


def _count_values(shards: Iterable[Shard]) -> int:
    counts: dict[bytes, int] = {}
    for shard in shards:
        keys = np.ascontiguousarray(shard.entries["text"]).view("S16").ravel().tolist()
        counts |= zip(keys, shard.entries["count"].tolist(), strict=True)
    return sum(count > 0 for count in counts.values())


@dataclass(frozen=True)
class StoredSetting:
    """A folder of the store, for `r2med cache`."""

    model: str
    server: str  # the address the values came from; empty for a model that runs here
    role: str
    precision: str
    texts: int
    bytes: int
    folder: Path


def list_settings(kind: str = ArrayStore.kind) -> list[StoredSetting]:
    """List the contents of the store, by model. Of vectors nothing is read but names and sizes."""
    stored = []
    for file in sorted((home() / kind).glob(f"*/{_SETTINGS}")):
        try:
            content = orjson.loads(file.read_bytes())
            settings = content["settings"]
        except (OSError, ValueError, KeyError, TypeError):
            content = settings = {}
        logs = sorted(file.parent.glob("*.log"))
        if kind == ArrayStore.kind:
            texts = sum(map(count_entries, logs))
        else:
            texts = _count_values(shard for log in logs if (shard := read_shard(log)) is not None)
        model, server, role = (str(settings.get(name, "")) for name in ("model", "url", "role"))
        # Blocks, where the system counts them: rows that were never written take none.
        status = [path.stat() for path in file.parent.iterdir()]
        used = sum(one.st_blocks * 512 if hasattr(one, "st_blocks") else one.st_size for one in status)
        precision = str(content.get("precision", ""))
        stored.append(StoredSetting(model or "?", server, role, precision, texts, used, file.parent))
    return sorted(stored, key=lambda entry: (entry.model, entry.server, entry.role, entry.precision))


def clear_settings(model: str = "", kind: str = ArrayStore.kind) -> list[StoredSetting]:
    """Remove all that is kept of a model, or of every model; return what was removed."""
    stored = list_settings(kind)
    removed = [entry for entry in stored if not model or entry.model.lower() == model.lower()]
    if model and not removed:
        raise R2medError(f"no {kind} of {model!r} are kept{suggest(model, {entry.model for entry in stored})}")
    for entry in removed:
        shutil.rmtree(entry.folder, ignore_errors=True)
    return removed

"""The vector store: one text under one setting is encoded once, ever.

Under `R2MED_HOME/vectors` there is a folder for every setting (everything an encoder says its vectors depend on, and
the precision they are kept in), with that setting in `settings.json` and the vectors in shards. Within a setting a
text is known by a hash of itself alone, so a small corpus after the large one it was taken from costs nothing.

Several processes may write at once, each to a shard of its own. If a text is stored more than once, the newest vector
counts, so that a damaged one can be replaced.

Neither vectors nor their index are held in memory: both are mapped, and looked up some thousands at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.text_hashes import SortedHashes, TextHashes
from r2med.encode.vector_shards import ENTRY, Entries, Shard, ShardWriter, entry_count, merge_shards, read_shard
from r2med.errors import R2medError, suggest
from r2med.store.cache import home
from r2med.store.files import lock_open_file, make_private, write_file
from r2med.store.hashes import cache_key
from r2med.store.scratch import is_short, scratch_column, spans

PRECISIONS = ("float32", "float16")
_SETTINGS = "settings.json"
_MANY = 8
"""So many small shards are merged into one."""


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Vectors of the store in the order of the request, read from the mapped shards when they are used.

    `vectors[10:20]` is an array of single precision, a view of the file if its rows are consecutive;
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
        """Return the number of vectors, and their dimension."""
        return (len(self.row), self.shards[0].shape[1] if self.shards else 0)

    @property
    def nbytes(self) -> int:
        """Return the size of the vectors as they are stored."""
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
        """Damages that were found, a sentence per shard."""
        self._shards: list[Shard] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the shards that were added since the last call."""
        known = {shard.path.stem: shard for shard in self._shards}
        self._shards = []
        for log in sorted(self.folder.glob("*.log")):
            try:
                shard = known.get(log.stem) or self._read(log)
            except FileNotFoundError:
                # Another process has merged it with others meanwhile: what is there now has its entries.
                self.refresh()
                return
            if shard is not None and len(shard.entries):
                self._shards.append(shard)
        dimensions = {shard.rows.shape[1] for shard in self._shards}
        if len(dimensions) > 1:
            sizes = " and ".join(map(str, sorted(dimensions)))
            raise R2medError(f"{self.name} has kept vectors of {sizes} dimensions in {self.folder}; remove that folder")
        self.dimension = dimensions.pop() if dimensions else 0
        self._index = _Index(self._shards)

    @property
    def name(self) -> str:
        """Return the model's name in its settings."""
        return str(self.settings.get("model", "the model"))

    def _read(self, log: Path) -> Shard | None:
        shard = read_shard(log)
        if not log.exists():
            raise FileNotFoundError(log)
        if shard is None:
            if log.stat().st_size:
                self.damage.append(f"the vectors of {self.name} in {log.name} have a damaged header")
        elif shard.damaged:
            self.damage.append(f"{shard.damaged} entries of {self.name} in {log.name} are damaged")
        return shard

    def find(self, texts: TextHashes) -> NDArray[np.intp]:
        """Return the place of each text's vector, for `vectors`; -1 for a text that has none, or only a damaged one."""
        found = self._index.find(texts)
        broken: list[set[int]] = [set() for _ in self._shards]
        for some in spans(len(found)):
            found[some] = self._sound(found[some], broken)
        for shard, places in zip(self._shards, broken, strict=True):
            if places:
                self.damage.append(f"{len(places)} vectors of {self.name} in {shard.path.name} are damaged")
        return found

    def _sound(self, found: NDArray[np.intp], broken: Sequence[set[int]]) -> NDArray[np.intp]:
        """Return the places with -1 for damaged vectors, which are added to the shard's broken ones."""
        wanted = np.unique(found[found >= 0])
        shards = self._index.shard_of(wanted)
        for number in np.unique(shards).tolist():
            here = wanted[shards == number]
            bad = here[~self._intact(self._shards[number], self._index.entries(here))]
            broken[number].update(bad.tolist())
            found = np.where(np.isin(found, bad), -1, found) if len(bad) else found
        return found

    def _intact(self, shard: Shard, entries: Entries) -> NDArray[np.bool_]:
        return shard.unchanged(entries, self._extents(shard, entries))

    def _extents(self, shard: Shard, entries: Entries) -> NDArray[np.int64]:
        """Return the number of rows of each entry."""
        return np.ones(len(entries), dtype=np.int64)

    def vectors(self, found: NDArray[np.intp]) -> StoredVectors:
        """Return the vectors at places that `find` gave, none of them missing."""
        shard, row, tokens = self.located(found, "row", "tokens")
        return StoredVectors(tuple(shard.rows for shard in self._shards), shard, row, tokens)

    def located(self, found: NDArray[np.intp], *fields: str) -> list[NDArray[Any]]:
        """Return the number of the shard of each text, and some fields of its entry, as columns."""
        columns = [scratch_column(len(found), np.int64) for _ in ("shard", *fields)]
        for some in spans(len(found)):
            entries = self._index.entries(found[some])
            values = self._index.shard_of(found[some]), *(entries[name] for name in fields)
            for column, value in zip(columns, values, strict=True):
                column[some] = value
        return columns

    def writer(self) -> ShardWriter:
        """Start a new shard of this setting."""
        try:
            make_private(self.folder)
            _describe(self.folder, self.settings, self.precision)
            self._merge()
        except OSError as error:
            raise R2medError(f"cannot keep vectors in {self.folder}: {error.strerror or error}") from error
        return self._new_shard()

    def _new_shard(self) -> ShardWriter:
        return ShardWriter(self.folder, self.precision)

    def _merge(self) -> None:
        """Merge small shards if there are many of them: each search with one question adds one."""
        small = [shard.path.with_suffix(".log") for shard in self._shards if is_short(shard.rows.nbytes)]
        if len(small) < _MANY:
            return
        with ExitStack() as locks:
            logs = [log for log in small if _locked(log, locks)]
            read = [shard for log in logs if (shard := read_shard(log)) is not None]
            if len(read) < _MANY:
                return
            kept = [shard.entries[self._intact(shard, shard.entries)] for shard in read]
            merge_shards(read, kept, [self._extents(*pair) for pair in zip(read, kept, strict=True)])
            # The entries first: rows without them do not exist.
            for ending in (".log", ".rows"):
                for shard in read:
                    shard.path.with_suffix(ending).unlink(missing_ok=True)


def _locked(log: Path, locks: ExitStack) -> bool:
    """Lock the log of a shard; return False if a process holds it, or has merged it."""
    try:
        file = locks.enter_context(log.open("rb"))
    except FileNotFoundError:
        return False
    return lock_open_file(file.fileno()) and log.exists()


class _Index:
    """Entries of all shards, oldest first, as one column; a text's newest is found by its hash."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._logs = [shard.entries for shard in shards]
        self._starts = np.cumsum([0, *map(len, self._logs)])
        self.find = SortedHashes([log["text"] for log in self._logs]).find

    def shard_of(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the number of the shard that has the entry at each place."""
        return np.searchsorted(self._starts, places, side="right") - 1

    def entries(self, places: NDArray[np.intp]) -> Entries:
        """Return the entries at these places."""
        found = np.empty(len(places), dtype=self._logs[0].dtype if self._logs else ENTRY)
        shards = self.shard_of(places)
        for number in np.unique(shards).tolist():
            here = shards == number
            found[here] = self._logs[number][places[here] - self._starts[number]]
        return found


@dataclass(frozen=True)
class StoredSetting:
    """A folder of the store, for `r2med cache`."""

    model: str
    role: str
    precision: str
    texts: int
    bytes: int
    folder: Path


def sizes(root: Path | None = None) -> list[StoredSetting]:
    """List the contents of the store, by model; nothing is read but names and sizes."""
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
    """Remove all vectors of a model, or of every model; returns what was removed."""
    stored = sizes(root)
    chosen = [entry for entry in stored if not model or entry.model.lower() == model.lower()]
    if model and not chosen:
        raise R2medError(f"no vectors of {model!r} are kept{suggest(model, {entry.model for entry in stored})}")
    for entry in chosen:
        shutil.rmtree(entry.folder, ignore_errors=True)
    return chosen


def vector_root() -> Path:
    """Return the store's folder in `R2MED_HOME`."""
    return home() / "vectors"


def _describe(folder: Path, settings: Mapping[str, object], precision: str) -> None:
    """Write down the settings whose hash is the folder's name, for users and for `clear`."""
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
    """Return the bytes a file takes: rows that were never written take none."""
    status = path.stat()
    return status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size

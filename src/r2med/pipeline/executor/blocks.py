"""Blocks of work, and the storage that all hosts share: results as files named by a hash of their input."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from r2med.errors import R2medError
from r2med.store.cache import home
from r2med.store.files import write_file

_HEAD = 8
"""Bytes before the content of a file: its checksum in hexadecimal."""


class Worker(Protocol):
    """Worker of a job; it is sent to the hosts, and loads a model once on each."""

    def load(self) -> None:
        """Load the model into memory."""

    def run(self, payload: bytes) -> bytes:
        """Compute the result of one block."""


@dataclass(frozen=True)
class SpreadJob:
    """Job of many blocks of the same kind of work."""

    name: str
    """The name in messages."""
    worker: Worker
    keeps: bool = False
    """Whether results stay in the storage of blocks, for a consumer that needs all of them first."""


@dataclass(frozen=True)
class WorkBlock:
    """Piece of work whose result depends on nothing but its content."""

    key: str
    """A hash of everything that the result depends on."""
    payload: bytes
    about: Any = field(default=None, compare=False)
    """Data for the driver when the result arrives; it is not sent to workers."""


class Spread(Protocol):
    """Distribution of blocks to other processes, or of a share of them to this one."""

    only_large: bool
    """Whether it is for documents only: queries are few, and every command of a batch needs them all."""

    @property
    def merges(self) -> bool:
        """Return whether this command merges the results of all."""

    @property
    def store(self) -> BlockStore:
        """Return the storage of finished blocks."""

    def run(self, job: SpreadJob, blocks: Iterable[WorkBlock]) -> Iterator[tuple[WorkBlock, bytes]]:
        """Yield each block with its result, in any order; blocks are taken as they are needed."""

    def unfinished(self, job: str, missing: int, total: int) -> R2medError:
        """Return the error to raise if a job's results are not complete after `run`."""


def block_key(*parts: bytes) -> str:
    """Hash parts into a key of 32 hexadecimal digits; their boundaries count."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


class Costly(Protocol):
    """Protocol of items that cost tokens."""

    @property
    def cost(self) -> int:
        """Return the number of tokens, padding included."""


Batch = TypeVar("Batch", bound=Costly)


def grouped(batches: Iterable[Batch], limit: int) -> Iterator[list[Batch]]:
    """Group consecutive batches into blocks of at most this many tokens."""
    group: list[Batch] = []
    for batch in batches:
        if group and sum(member.cost for member in group) + batch.cost > limit:
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


class BlockStore:
    """Folder, or any URL that fsspec knows, with one file for each finished block."""

    def __init__(self, place: str = "") -> None:
        self.place = self._root = place or str(home() / "blocks")
        self._fs: Any = None
        if "://" not in self.place:
            return
        try:
            import fsspec

            self._fs, root = fsspec.core.url_to_fs(self.place)
        except (ImportError, ValueError) as error:
            raise R2medError(f"blocks cannot be kept at {self.place}: {error}") from error
        self._root = root.rstrip("/")

    def put(self, key: str, content: bytes) -> None:
        """Store a result; it is visible as a whole or not at all."""
        data = f"{zlib.crc32(content):08x}".encode() + content
        with self._in_words():
            if self._fs is not None:
                self._fs.makedirs(f"{self._root}/{key[:2]}", exist_ok=True)
                self._fs.pipe_file(self._path(key), data)
                return
            path = Path(self._path(key))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, data)

    def get(self, key: str) -> bytes | None:
        """Return a result; None if it is missing or damaged."""
        with self._in_words():
            try:
                data: bytes = self._fs.cat_file(self._path(key)) if self._fs else Path(self._path(key)).read_bytes()
            except FileNotFoundError:
                return None
        content = data[_HEAD:]
        return content if data[:_HEAD] == f"{zlib.crc32(content):08x}".encode() else None

    def remove(self, key: str) -> None:
        """Remove a result that has been stored elsewhere."""
        with self._in_words(), suppress(FileNotFoundError):
            if self._fs is not None:
                self._fs.rm_file(self._path(key))
            else:
                Path(self._path(key)).unlink()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Turn errors of the storage into one line."""
        try:
            yield
        except OSError as error:
            raise R2medError(f"blocks cannot be kept at {self.place}: {error.strerror or error}") from error

    def _path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}"

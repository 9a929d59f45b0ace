"""Hashes and checksums: cache keys, checksums of folders, digests of files, and digests remembered between runs."""

from __future__ import annotations

import hashlib
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import orjson

from r2med.errors import DataError, R2medError
from r2med.store.files import reason, write_file


def cache_key(**parts: object) -> str:
    """Hash named values into a key; any change of a name or a value gives another key.

    >>> cache_key(k1=0.9, b=0.4) == cache_key(b=0.4, k1=0.9) != cache_key(k1=0.9, b=0.5)
    True
    """
    text = "\n".join(f"{name}={parts[name]!r}" for name in sorted(parts))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


FILE = "meta.json"  # the file of a folder that has the checksum of every other file in it
KEY = "entry.key"  # the file of a cache entry that has its key, which is compared and needs no checksum


def seeded_hash(seed: int, name: str) -> bytes:
    """Hash a name with a seed: sorting by it is a random order that depends on nothing else.

    >>> sorted("abcd", key=lambda name: seeded_hash(0, name)), sorted("abcd", key=lambda name: seeded_hash(1, name))
    (['a', 'd', 'b', 'c'], ['d', 'a', 'b', 'c'])
    """
    return hashlib.blake2b(f"{seed}\t{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def write_checksums(folder: Path, *, by_size: Sequence[str] = ()) -> None:
    """Write the checksums of all files of a folder, after the last is written; of those in `by_size` only the sizes."""
    (folder / FILE).write_bytes(orjson.dumps(_checksums(folder, by_size)))


def is_unchanged(folder: Path, *, by_size: Sequence[str] = ()) -> bool:
    """Return whether a folder holds exactly the files that it was written with, bit for bit.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "a").write_text("whole")
    ...     write_checksums(Path(name))
    ...     before = is_unchanged(Path(name))
    ...     _ = (Path(name) / "a").write_text("while")
    ...     before, is_unchanged(Path(name))
    (True, False)
    """
    try:
        return bool(orjson.loads((folder / FILE).read_bytes()) == _checksums(folder, by_size))
    except (OSError, ValueError):
        return False


def _checksums(folder: Path, by_size: Sequence[str]) -> dict[str, int]:
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: path.stat().st_size if name in by_size else checksum(path)
        for name, path in files.items()
        if name not in (FILE, KEY)
    }


def checksum(path: Path) -> int:
    """Return the checksum of a file; reading it also brings the file into memory for what follows."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


_TAKEN: ContextVar[dict[Path, str]] = ContextVar("_TAKEN")  # unset outside of `steady_digests`


@contextmanager
def steady_digests() -> Iterator[None]:
    """Keep one hash per file within the block, even if the file changes."""
    token = _TAKEN.set({})
    try:
        yield
    finally:
        _TAKEN.reset(token)


def file_digest(path: Path) -> str:
    """Return the hash of a file's content."""
    digests = _TAKEN.get({})
    if path not in digests:
        digests[path] = _hash(path)
    return digests[path]


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise DataError(f"{str(path)!r}: cannot be read: {why}") from error


def confirm_unchanged(path: Path) -> str:
    """Return the hash of a file that was read; raise an error if another one was taken before."""
    content = _hash(path)
    if _TAKEN.get({}).get(path, content) != content:
        raise DataError(f"{path}: was replaced while the run was made; run it again")
    return content


SETTLED = 2.0  # seconds since its last change after which a file's times show if it has changed again
Stamp = tuple[int, ...]


def stamp(path: Path) -> Stamp:
    """Return the identity, size and times of a file; empty if they cannot tell whether it has changed."""
    if sys.platform == "win32":
        return ()  # its ctime is when a file was made
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class FileHashes:
    """Remembered hashes, a small file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, path: Path) -> str:
        """Return the hash of a file if it is known and the file has not changed since, else an empty text."""
        now = stamp(path)
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            entry = orjson.loads(self._place(path).read_bytes())
            if now and entry["stamp"] == list(now) and entry["check"] == _check(entry["stamp"], entry["hash"]):
                return str(entry["hash"])
        return ""

    def remember(self, path: Path, before: Stamp, value: str) -> None:
        """Store the hash of a file that had this stamp before it was read, unless it may have changed meanwhile."""
        if not before or not value or stamp(path) != before or time.time() - max(before[3:]) / 1e9 < SETTLED:
            return
        entry = {"path": str(path), "stamp": before, "hash": value, "check": _check(list(before), value)}
        with suppress(R2medError):
            write_file(self._place(path), orjson.dumps(entry, default=list), parents=True)

    def _place(self, path: Path) -> Path:
        return self._folder / f"{cache_key(path=str(path.absolute()))}.json"


def _check(before: list[int], value: str) -> str:
    return hashlib.blake2b(f"{before} {value}".encode(), digest_size=8).hexdigest()

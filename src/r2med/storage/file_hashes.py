"""Hashes of large files, remembered with what the system says of the file, so that it need not be read to be known.

A file is the same while its device, inode, size and both times are: the time of its last change (ctime), which no
program can set, moves with every write and every replacement. What is remembered is only a file that was the same
before and after it was read, and whose last change was well before: a change within one tick of the clock would leave
the times as they were.
"""

from __future__ import annotations

import hashlib
import sys
import time
from contextlib import suppress
from pathlib import Path

import orjson

from r2med.errors import R2medError
from r2med.storage.cache import cache_key
from r2med.storage.files import write_file

SETTLED = 2.0
"""Seconds since its last change after which a file's times tell whether it has changed again."""

Stamp = tuple[int, ...]


def stamp(path: Path) -> Stamp:
    """What the system says of a file; nothing where that does not tell whether it has changed."""
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
        """The hash of a file, if it is known and the file has not changed since; else nothing."""
        now = stamp(path)
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            known = orjson.loads(self._place(path).read_bytes())
            if now and known["stamp"] == list(now) and known["check"] == _check(known["stamp"], known["hash"]):
                return str(known["hash"])
        return ""

    def remember(self, path: Path, before: Stamp, value: str) -> None:
        """Note the hash of a file that was like this before it was read, unless it may have changed meanwhile."""
        if not before or not value or stamp(path) != before or time.time() - max(before[3:]) / 1e9 < SETTLED:
            return
        known = {"path": str(path), "stamp": before, "hash": value, "check": _check(list(before), value)}
        with suppress(R2medError):
            write_file(self._place(path), orjson.dumps(known, default=list), parents=True)

    def _place(self, path: Path) -> Path:
        return self._folder / f"{cache_key(path=str(path.absolute()))}.json"


def _check(before: list[int], value: str) -> str:
    return hashlib.blake2b(f"{before} {value}".encode(), digest_size=8).hexdigest()

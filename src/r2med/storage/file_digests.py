"""Hashes of files that a result depends on: the same all through a run, and those of the bytes that were read.

The key of a run is made before its files are read. Whoever reads one of them later says what was read (`confirm`), and
a file that was replaced in between is an error, not a result under another file's key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from r2med.errors import DataError
from r2med.storage.files import reason

_LENGTH = 32
"""Digits of a hash."""
_TAKEN: ContextVar[dict[Path, str] | None] = ContextVar("_TAKEN", default=None)


@contextmanager
def steady_digests() -> Iterator[None]:
    """Within the block a file has one hash, whatever becomes of it."""
    token = _TAKEN.set({})
    try:
        yield
    finally:
        _TAKEN.reset(token)


def file_digest(path: Path) -> str:
    """The hash of a file's content."""
    taken = _TAKEN.get()
    if taken is not None and path in taken:
        return taken[path]
    digest = _hash(path)
    if taken is not None:
        taken[path] = digest
    return digest


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:_LENGTH]
    except OSError as error:
        raise DataError(f"{str(path)!r}: cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise DataError(f"{str(path)!r}: cannot be read: {error}") from error


def confirm(path: Path, read: str) -> None:
    """Say what the hash of the bytes was that were read; an error where it is not the one that was taken before."""
    taken = _TAKEN.get()
    if taken is not None and taken.get(path, read) != read:
        raise DataError(f"{path}: was replaced while the run was made; run it again")


def confirm_unchanged(path: Path) -> None:
    """After a file was read by others: an error where it is no longer the one whose hash was taken before."""
    confirm(path, _hash(path))

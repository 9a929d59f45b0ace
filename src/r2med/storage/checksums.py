"""Checksums of the files in a folder: whether what was written is still what is there."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import orjson

FILE = "meta.json"
"""Where a folder keeps the checksum of every other file in it."""
KEY = "entry.key"
"""Where an entry of the cache keeps its own key, which is compared and needs no checksum."""


def write_checksums(folder: Path, *, by_size: Sequence[str] = ()) -> None:
    """Write down the checksums of all files of a folder, after the last of them is written.

    Of files that are named in `by_size` only the size: what is in them is checked when it is read.
    """
    (folder / FILE).write_bytes(orjson.dumps(_checksums(folder, by_size)))


def is_unchanged(folder: Path, *, by_size: Sequence[str] = ()) -> bool:
    """Whether a folder holds exactly the files that it was written with, bit for bit.

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
    """A checksum of a file; reading it also brings the file into memory for what follows."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value

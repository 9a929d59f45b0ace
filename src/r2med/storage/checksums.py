"""Checksums of the files in a folder: whether what was written is still what is there."""

from __future__ import annotations

import zlib
from pathlib import Path

import orjson

FILE = "meta.json"
"""Where a folder keeps the checksum of every other file in it."""


def write_checksums(folder: Path) -> None:
    """Write down the checksums of all files of a folder, after the last of them is written."""
    (folder / FILE).write_bytes(orjson.dumps(_checksums(folder)))


def is_unchanged(folder: Path) -> bool:
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
        return bool(orjson.loads((folder / FILE).read_bytes()) == _checksums(folder))
    except (OSError, ValueError):
        return False


def _checksums(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): checksum(file) for file in files if file.name != FILE}


def checksum(path: Path) -> int:
    """A checksum of a file; reading it also brings the file into memory for what follows."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value

"""Sources of the texts of a corpus that is too large for memory, and how they are read from there.

`MappedFile` is a copy, all texts of a column end to end. `RowFiles` are the files that a corpus was read
from: its texts stay in their lines, and nothing is copied.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import add
from pathlib import Path
from typing import NoReturn, Protocol
from weakref import finalize

import numpy as np

from r2med.errors import DataError

DAMAGED = "damaged"
"""Name of the file beside a stored corpus that marks it as unusable."""
_AT_ONCE = 1 << 26
"""Bytes read at a time at most."""


def encode(text: str) -> bytes:
    """Encode a text for storage; a surrogate without its partner survives the round trip."""
    return text.encode("utf-8", "surrogatepass")


class TextSource(Protocol):
    """Source of texts by their places."""

    def parts(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return the bytes at some places."""

    def decode(self, part: bytes) -> str:
        """Decode the bytes at a place to a text."""

    def refuse(self) -> NoReturn:
        """Raise an error: the bytes at a place are not those that were stored."""


class MappedFile:
    """File of UTF-8, mapped: only what is needed is read. The mapping stays valid if the file is removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.data = np.memmap(path, np.uint8, "r").data if path.stat().st_size else memoryview(b"")

    def parts(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return the bytes at some places."""
        return [bytes(self.data[start : start + length]) for start, length in zip(starts, lengths, strict=True)]

    def decode(self, part: bytes) -> str:
        """Decode the text that was stored."""
        return part.decode("utf-8", "surrogatepass")

    def refuse(self) -> NoReturn:
        """Mark the copy as damaged, so that the next command rebuilds it, and raise an error."""
        (self._path.parent / DAMAGED).touch()
        raise DataError(f"{self._path}: this copy of a corpus is damaged; run the same command again to make it anew")


class RowFiles:
    """Files of rows, as if they were one: each begins where the one before it ends.

    They are the user's and may change at any moment, so they are read and not mapped: a mapped file that is cut short
    ends the process.
    """

    def __init__(self, paths: Sequence[Path], bounds: Sequence[int], decode: Callable[[bytes], str]) -> None:
        self._paths, self._bounds, self._decode = paths, bounds, decode
        self._files = [_OpenFile(path) for path in paths]

    def parts(self, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return the bytes at some places; neighbours are read at once."""
        if not starts:
            return []
        first = min(starts)
        size = max(map(add, starts, lengths)) - first
        if size > min(2 * sum(lengths), _AT_ONCE) or self._file(first) != self._file(first + size - 1):
            return [self._read(start, length) for start, length in zip(starts, lengths, strict=True)]
        whole = self._read(first, size)
        return [whole[start - first : start - first + length] for start, length in zip(starts, lengths, strict=True)]

    def decode(self, part: bytes) -> str:
        """Return the text of a row."""
        return self._decode(part)

    def refuse(self) -> NoReturn:
        """Raise an error; the next command reads the files in their state then."""
        raise DataError(f"{self._paths[0]}: changed while it was in use; run the same command again")

    def _file(self, place: int) -> int:
        return bisect_right(self._bounds, place) - 1

    def _read(self, start: int, size: int) -> bytes:
        file = self._file(start)
        return os.pread(self._files[file].number, size, start - self._bounds[file])


class _OpenFile:
    """File that is open as long as an object holds it."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY)
        finalize(self, os.close, self.number)

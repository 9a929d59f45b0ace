"""Columns of texts and ids too large for memory: they stay in mapped files, and only what is needed is read."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError

DAMAGED = "damaged"  # name of the file beside a stored corpus that marks it as unusable
_AT_ONCE = 1024
_WIDEST = 64  # ids of more bytes than this are sorted one by one


def encode(text: str) -> bytes:
    """Encode a text for storage; a surrogate without its partner survives the round trip."""
    return text.encode("utf-8", "surrogatepass")


class StoredTexts(Sequence[str]):
    """Texts of a file of UTF-8, by the start, length and checksum of each."""

    def __init__(
        self, file: Path, starts: NDArray[np.int64], lengths: NDArray[Any], checks: NDArray[np.uint32] | None = None
    ) -> None:
        self._file, self._starts, self._lengths, self._checks = file, starts, lengths, checks
        # The mapping stays valid if the file is removed.
        self._data = np.memmap(file, np.uint8, "r").data if file.stat().st_size else memoryview(b"")

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return self._read(place)
        place = range(len(self))[place]
        return self._read(slice(place, place + 1))[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._read(slice(start, start + _AT_ONCE))

    def encoded(self, places: slice) -> list[bytes]:
        """Return the texts at some places as they are stored."""
        starts, lengths = self._starts[places].tolist(), self._lengths[places].tolist()
        parts = [bytes(self._data[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
        if self._checks is not None and list(map(zlib.crc32, parts)) != self._checks[places].tolist():
            (self._file.parent / DAMAGED).touch()  # so that the next command makes a new copy
            advice = "run the same command again to make it anew"
            raise DataError(f"{self._file}: this copy of a corpus is damaged; {advice}")
        return parts

    def _read(self, places: slice) -> list[str]:
        return [part.decode("utf-8", "surrogatepass") for part in self.encoded(places)]

    def without(self, places: Sequence[int]) -> Self:
        """Return all but the texts at these places."""
        rest = copy(self)
        rest._starts, rest._lengths = np.delete(self._starts, places), np.delete(self._lengths, places)
        rest._checks = None if self._checks is None else np.delete(self._checks, places)
        return rest

    def alphabetical(self) -> NDArray[np.int64]:
        """Return the places of the texts in alphabetical order: that of their UTF-8, compared eight bytes at a time."""
        lengths, widest = self._lengths, int(self._lengths.max(initial=0))
        if widest > _WIDEST:
            return np.array(sorted(range(len(self)), key=self.__getitem__), dtype=np.int64)
        padded = np.zeros((len(self), max(8, -(-widest // 8) * 8)), dtype=np.uint8)
        data = np.frombuffer(self._data, dtype=np.uint8)
        for column in range(widest):
            longer = np.flatnonzero(lengths > column)
            padded[longer, column] = data[self._starts[longer] + column]
        words = padded.view(">u8").astype(np.uint64)
        keys = [word for word in words.T[::-1] if len(word) and (word != word[0]).any()]
        return np.lexsort([lengths, *keys]).astype(np.int64)


class StoredIds(StoredTexts):
    """Ids of a mapped file, all different, with their alphabetical order."""

    def __init__(
        self, file: Path, starts: NDArray[np.int64], lengths: NDArray[Any], order: NDArray[np.integer[Any]]
    ) -> None:
        super().__init__(file, starts, lengths)
        self._order = order  # the places of the ids in alphabetical order

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Return the position of each id, found by bisection."""
        return _Positions(self, self._order)

    def without(self, places: Sequence[int]) -> Self:
        """Return all but the ids at these places."""
        rest = super().without(places)
        rest._order = rest.alphabetical()
        rest.__dict__.pop("positions", None)
        return rest

    def descending_ranks(self) -> NDArray[np.int64]:
        """Return each id's place when all are sorted descending."""
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[self._order] = np.arange(len(self) - 1, -1, -1)
        return ranks


class _Positions(Mapping[str, int]):
    def __init__(self, ids: StoredIds, order: NDArray[np.integer[Any]]) -> None:
        self._ids, self._order = ids, order

    def __getitem__(self, identifier: str) -> int:
        rank = bisect_left(self._order, identifier, key=lambda place: self._ids[int(place)])
        if rank == len(self._order) or self._ids[int(self._order[rank])] != identifier:
            raise KeyError(identifier)
        return int(self._order[rank])

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

"""Columns of texts and ids that are too large for memory: they stay in files, and only what is needed is read.

`StoredTexts` are the texts of a corpus, by the place, length and checksum of each in some source; `StoredIds` are its
ids, with their order, so that an id's position is found without a table of all of them.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from r2med.data.text_sources import MappedFile, TextSource

_AT_ONCE = 1024
_WIDEST = 64
"""Ids of more bytes than this are sorted one by one."""


class StoredTexts(Sequence[str]):
    """Texts at places of a source."""

    def __init__(
        self,
        source: TextSource,
        starts: NDArray[np.int64],
        lengths: NDArray[Any],
        checks: NDArray[np.uint32] | None = None,
    ) -> None:
        self._source, self._starts, self._lengths, self._checks = source, starts, lengths, checks

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return self._some(place)
        place = range(len(self))[place]
        return self._some(slice(place, place + 1))[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._some(slice(start, start + _AT_ONCE))

    def _some(self, chosen: slice) -> list[str]:
        parts = self._source.parts(self._starts[chosen].tolist(), self._lengths[chosen].tolist())
        if self._checks is not None and list(map(zlib.crc32, parts)) != self._checks[chosen].tolist():
            self._source.refuse()
        return list(map(self._source.decode, parts))

    def without(self, places: Sequence[int]) -> StoredTexts:
        """Return all but the texts at these places."""
        checks = None if self._checks is None else np.delete(self._checks, places)
        return StoredTexts(self._source, np.delete(self._starts, places), np.delete(self._lengths, places), checks)


class StoredIds(StoredTexts):
    """Ids of a mapped file, all different, and their alphabetical order."""

    def __init__(
        self, file: MappedFile, starts: NDArray[np.int64], lengths: NDArray[Any], order: NDArray[np.integer[Any]]
    ) -> None:
        super().__init__(file, starts, lengths)
        self._file = file
        self.order = order
        """The places of the ids in alphabetical order."""

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Return the position of each id."""
        return _Positions(self)

    def without(self, places: Sequence[int]) -> StoredIds:
        """Return all but the ids at these places."""
        kept = np.ones(len(self), dtype=bool)
        kept[places] = False
        order = self.order[kept[self.order]]
        return StoredIds(self._file, self._starts[kept], self._lengths[kept], (np.cumsum(kept) - 1)[order])

    def descending_ranks(self) -> NDArray[np.int64]:
        """Return each id's place when all are sorted descending."""
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[self.order] = np.arange(len(self) - 1, -1, -1)
        return ranks


class _Positions(Mapping[str, int]):
    """Map from an id to its place, by bisection."""

    def __init__(self, ids: StoredIds) -> None:
        self._ids = ids

    def __getitem__(self, identifier: str) -> int:
        ids, order = self._ids, self._ids.order
        rank = bisect_left(order, identifier, key=lambda place: ids[int(place)])
        if rank == len(order) or ids[int(order[rank])] != identifier:
            raise KeyError(identifier)
        return int(order[rank])

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)


def alphabetical(file: MappedFile, starts: NDArray[np.int64], lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of ids in alphabetical order, which is that of their UTF-8.

    Their bytes are compared eight at a time, as numbers; of two that differ in zeros at the end, the shorter is first.
    """
    widest = int(lengths.max(initial=0))
    if widest > _WIDEST:
        ids = StoredTexts(file, starts, lengths)
        return np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    padded = np.zeros((len(starts), max(8, -(-widest // 8) * 8)), dtype=np.uint8)
    data = np.frombuffer(file.data, dtype=np.uint8)
    for column in range(widest):
        longer = np.flatnonzero(lengths > column)
        padded[longer, column] = data[starts[longer] + column]
    words = padded.view(">u8").astype(np.uint64)
    keys = [word for word in words.T[::-1] if len(word) and (word != word[0]).any()]
    return np.lexsort([lengths, *keys]).astype(np.int64)

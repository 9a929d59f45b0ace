"""The inverted index: its columns in memory or mapped from files, and the sorted runs that are merged into it.

A run holds the postings of successive documents, its terms in alphabetical order as in an index. Its documents come
after those of the run before, so a term's postings in the index are those of the first run, then of the second, and
so on: runs are read from start to end, a stretch of the alphabet at a time, in bounded memory; only terms are sorted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.arrays import ragged
from r2med.store.hashes import is_unchanged, write_checksums

TERMS = "terms.txt"
_TERMS_AT_ONCE = 65_536
_POSTINGS_AT_ONCE = 1 << 19
"""Postings merged at a time at most, whatever the memory: larger columns are slower to allocate than to fill."""
_BYTES_A_POSTING = 48
"""Bytes of a posting while it is merged: its target place, and its numbers twice."""


class TermPostings(NamedTuple):
    """Terms in alphabetical order, as bytes, and their postings, one term's after another's."""

    terms: Sequence[bytes]
    offsets: NDArray[np.integer[Any]]
    """Offsets at which each term's postings start, from 0; one more than there are terms."""
    documents: NDArray[np.integer[Any]]
    values: NDArray[Any]


class ColumnWriter:
    """Writer of a column of numbers as a numpy file, in parts; their total number must be known."""

    def __init__(self, path: Path, kind: np.dtype[Any], count: int) -> None:
        self._kind = kind
        self._file: BinaryIO = path.open("wb")
        header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, part: NDArray[Any]) -> None:
        """Append some numbers."""
        self._file.write(np.ascontiguousarray(part, dtype=self._kind).data)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def read_column(folder: Path, name: str) -> NDArray[Any]:
    """Map a column of numbers."""
    # A view, because slicing a `memmap` itself goes through slow Python code.
    mapped: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray)
    return mapped


def save_run(run: TermPostings, folder: Path) -> None:
    """Write a run to its folder."""
    folder.mkdir()
    (folder / TERMS).write_bytes(b"\n".join(run.terms))
    for name in ("offsets", "documents", "values"):
        np.save(folder / f"{name}.npy", getattr(run, name), allow_pickle=False)


@dataclass
class _RunReader:
    """Reader of a run, from its beginning to its end."""

    folder: Path

    def __post_init__(self) -> None:
        self.offsets, self.documents, self.values = (
            read_column(self.folder, name) for name in ("offsets", "documents", "values")
        )
        self.place = 0
        self._file = (self.folder / TERMS).open("rb")
        self._ahead: list[bytes] = []

    @property
    def left(self) -> int:
        """Return the number of terms that have not been taken."""
        return len(self.offsets) - 1 - self.place

    def ahead(self, most: int) -> list[bytes]:
        """Return the next terms: at least one, if any is left, and at most as many as have this many postings."""
        last = int(np.searchsorted(self.offsets, self.offsets[self.place] + most, side="right")) - 1
        wanted = min(max(last - self.place, 1), _TERMS_AT_ONCE, self.left)
        more = islice(self._file, max(0, wanted - len(self._ahead)))
        self._ahead += [line.removesuffix(b"\n") for line in more]
        return self._ahead[:wanted]

    def take(self, count: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Take the next terms: return the number of postings of each, and the postings."""
        bounds = self.offsets[self.place : self.place + count + 1]
        span = slice(int(bounds[0]), int(bounds[-1]))
        del self._ahead[:count]
        self.place += count
        if not self.left:
            self._file.close()
        return np.diff(bounds), self.documents[span], self.values[span]


def merge_runs(folders: Sequence[Path], memory: int) -> Iterator[TermPostings]:
    """Merge the postings of all runs and yield them a stretch of the alphabet at a time, within `memory`."""
    runs = [_RunReader(folder) for folder in folders]
    most = max(1, min(_POSTINGS_AT_ONCE, memory // _BYTES_A_POSTING) // len(runs))
    while live := [run for run in runs if run.left]:
        heads = [run.ahead(most) for run in live]
        # Beyond the least of the last terms, a run may have terms that have not been looked at.
        bound = min(head[-1] for head in heads)
        taken = [head[: bisect_right(head, bound)] for head in heads]
        yield _joined(live, taken)


def _joined(runs: Sequence[_RunReader], taken: Sequence[list[bytes]]) -> TermPostings:
    """Join the postings of some terms, those of each run behind those of the run before."""
    # Sorting what is sorted in parts only merges the parts; equal terms are folded afterwards.
    number = dict(zip(dict.fromkeys(sorted(chain.from_iterable(taken))), count(), strict=False))
    terms = list(number)
    parts = [
        (np.fromiter(map(number.__getitem__, own), np.int64, len(own)), *run.take(len(own)))
        for run, own in zip(runs, taken, strict=True)
        if own
    ]
    held = np.zeros(len(terms), dtype=np.int64)
    for numbers, counts, _, _ in parts:
        held[numbers] += counts
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(held)])
    free = offsets[:-1].copy()
    documents = np.empty(offsets[-1], dtype=np.int32)
    values = np.empty(offsets[-1], dtype=np.result_type(np.uint8, *(part[3].dtype for part in parts)))
    for numbers, counts, own_documents, own_values in parts:
        places = append_places(free, numbers, counts)
        documents[places], values[places] = own_documents, own_values
    return TermPostings(terms, offsets, documents, values)


def append_places(
    free: NDArray[np.signedinteger[Any]], numbers: NDArray[np.integer[Any]], counts: NDArray[np.int64]
) -> NDArray[np.signedinteger[Any]]:
    """Return the places of postings that come term by term, each its term's next free place, and advance `free`.

    >>> free = np.array([0, 3])
    >>> append_places(free, np.array([0, 1]), np.array([2, 1])).tolist(), free.tolist()
    ([0, 1, 3], [2, 4])
    """
    starts = np.cumsum(counts) - counts
    places: NDArray[np.signedinteger[Any]] = np.repeat((free[numbers] - starts).astype(free.dtype), counts)
    places += np.arange(len(places), dtype=free.dtype)
    free[numbers] += counts.astype(free.dtype)
    return places


FORMAT = 2
"""Format number, raised if the files below or their meaning change: part of the cache key."""
_COLUMNS = ("offsets", "documents", "values", "lengths", "ties")


class DamagedIndex(Exception):
    """Error about files of an index that do not fit together; the index should be rebuilt."""


class Postings(NamedTuple):
    """Documents that hold a term, by position, ascending, and its value in each."""

    documents: NDArray[np.integer[Any]]
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class InvertedIndex:
    """Terms of a corpus: all that BM25 needs, for any k1 and b, or the sparse vectors of an encoder by term."""

    terms: Sequence[str]
    """The vocabulary, sorted; a term's number is its place here."""
    offsets: NDArray[np.integer[Any]]
    """Offsets at which each term's postings start; one more than there are terms."""
    documents: NDArray[np.integer[Any]]
    """The documents of all postings, by position, ascending within a term."""
    values: NDArray[Any]
    """Frequency or weight of the term in each of them."""
    lengths: NDArray[np.integer[Any]]
    """Number of tokens of each document; of a sparse vector, number of terms."""
    ties: NDArray[np.int64]
    """Each document's rank among equals, from `r2med.lexical.ranking.id_order`."""

    @property
    def average_length(self) -> float:
        """Return the mean length of a document in tokens."""
        return int(self.lengths.sum(dtype=np.int64)) / len(self.lengths) if len(self.lengths) else 0.0

    def number(self, term: str) -> int:
        """Return a term's number, -1 if no document holds it."""
        place = bisect_left(self.terms, term)
        return place if place < len(self.terms) and self.terms[place] == term else -1

    def postings(self, number: int) -> Postings:
        """Return the postings of the term with this number."""
        span = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        return Postings(self.documents[span], self.values[span])

    def gathered(self, numbers: Sequence[int]) -> tuple[NDArray[np.int64], Postings]:
        """Return the number of postings of each of some terms, and the postings, end to end."""
        chosen = np.array(numbers, dtype=np.intp)
        starts, ends = (self.offsets[bound].astype(np.int64) for bound in (chosen, chosen + 1))
        counts = ends - starts
        places = ragged(starts, counts)
        return counts, Postings(self.documents.take(places, mode="clip"), self.values.take(places, mode="clip"))

    def save(self, folder: Path) -> None:
        """Write the files, with a checksum for each."""
        (folder / TERMS).write_bytes("\n".join(self.terms).encode())
        for name in _COLUMNS:
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
        write_checksums(folder)

    @classmethod
    def open(cls, folder: Path) -> InvertedIndex:
        """Map the files of an index; raise `DamagedIndex` if any is missing, cut short or changed."""
        try:
            if not is_unchanged(folder):
                raise DamagedIndex(f"{folder} has changed since it was written")
        except (OSError, ValueError) as error:
            raise DamagedIndex(f"{folder}: {error}") from error
        return cls.mapped(folder)

    @classmethod
    def mapped(cls, folder: Path) -> InvertedIndex:
        """Map the files of an index without verifying their checksums, reading no more of them than is needed."""
        try:
            columns = {name: read_column(folder, name) for name in _COLUMNS}
            text = (folder / TERMS).read_bytes().decode()
        except (OSError, ValueError) as error:
            raise DamagedIndex(f"{folder}: {error}") from error
        return cls(text.split("\n") if text else [], **columns)

"""The inverted index: its columns in memory or mapped from files, and the sorted runs that are merged into it.

A run holds the postings of successive documents, its terms in alphabetical order as in an index. Its documents come
after those of the run before, so a term's postings in the index are those of the first run, then of the second, and
so on: postings are read from start to end, a stretch of the alphabet at a time; only terms are held in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.arrays import offsets_of, slices_up_to

FORMAT = 2  # format number, raised if the files or their meaning change: part of the cache key
_RUN_COLUMNS = ("offsets", "documents", "values")
_COLUMNS = (*_RUN_COLUMNS, "lengths", "ties")
_TERMS_AT_ONCE = 16_384  # terms of a run merged at a time: few enough to stay in the processor's cache
_POSTINGS_AT_ONCE = 1 << 19
"""Postings merged at a time at most, whatever the memory: larger columns are slower to allocate than to fill."""
_BYTES_A_POSTING = 48  # bytes of a posting while it is merged: its target place, and its numbers twice


class TermPostings(NamedTuple):
    """Terms in alphabetical order, and their postings, one term's after another's."""

    terms: Sequence[str]
    offsets: NDArray[np.int64]  # offsets at which each term's postings start, from 0; one more than there are terms
    documents: NDArray[np.integer[Any]]
    values: NDArray[Any]

    def save(self, folder: Path) -> None:
        """Write the files of a run."""
        _save(self, _RUN_COLUMNS, folder)

    @classmethod
    def mapped(cls, folder: Path) -> TermPostings:
        """Map the files of a run."""
        return cls(*_load(_RUN_COLUMNS, folder))


def _write_terms(folder: Path, terms: Iterable[str]) -> None:
    (folder / "terms.txt").write_bytes("\n".join(terms).encode())


def _save(values: TermPostings | InvertedIndex, columns: Sequence[str], folder: Path) -> None:
    _write_terms(folder, values.terms)
    for name in columns:
        np.save(folder / f"{name}.npy", getattr(values, name), allow_pickle=False)


def _load(columns: Sequence[str], folder: Path) -> tuple[Any, ...]:
    text = (folder / "terms.txt").read_bytes().decode()
    # Views, because slicing a `memmap` itself goes through slow Python code.
    mapped = (np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in columns)
    return text.split("\n") if text else [], *mapped


def merge_runs(folders: Sequence[Path], folder: Path, memory: int) -> None:
    """Merge runs into one, in a folder of its own; `memory` bounds the bytes of the postings that are in work."""
    runs = [TermPostings.mapped(path) for path in folders]
    terms: list[str] = []
    dfs = [np.empty(0, dtype=np.int64)]
    kinds = np.dtype(np.int32), np.result_type(np.uint8, *(run.values.dtype for run in runs))
    with (folder / "documents.npy").open("wb") as documents_file, (folder / "values.npy").open("wb") as values_file:
        for file, kind in zip((documents_file, values_file), kinds, strict=True):
            header = {"descr": kind.str, "fortran_order": False, "shape": (sum(len(run.values) for run in runs),)}
            np.lib.format.write_array_header_1_0(file, header)
        starts = [0 for _ in runs]
        while True:
            heads = [run.terms[start : start + _TERMS_AT_ONCE] for run, start in zip(runs, starts, strict=True)]
            if not any(heads):
                break
            # Beyond the least of the last terms, a run may have terms that have not been looked at.
            bound = min(head[-1] for head in heads if head)
            heads = [head[: bisect_right(head, bound)] for head in heads]
            # Sorting what is sorted in parts only merges the parts; equal terms are folded afterwards.
            number = dict(zip(dict.fromkeys(sorted(chain.from_iterable(heads))), count(), strict=False))
            numbers = [np.fromiter(map(number.__getitem__, head), np.int64, len(head)) for head in heads]
            terms += number
            dfs.append(np.zeros(len(number), dtype=np.int64))
            for run, start, run_numbers in zip(runs, starts, numbers, strict=True):
                dfs[-1][run_numbers] += np.diff(run.offsets[start : start + len(run_numbers) + 1])
            for part in slices_up_to(dfs[-1], max(1, min(_POSTINGS_AT_ONCE, memory // _BYTES_A_POSTING))):
                free = offsets_of(dfs[-1][part])
                documents, values = (np.empty(free[-1], dtype=kind) for kind in kinds)
                for run, start, run_numbers in zip(runs, starts, numbers, strict=True):
                    first, last = np.searchsorted(run_numbers, (part.start, part.stop)).tolist()
                    bounds = run.offsets[start + first : start + last + 1]
                    places = append_places(free, run_numbers[first:last] - part.start, np.diff(bounds))
                    span = slice(int(bounds[0]), int(bounds[-1]))
                    documents[places], values[places] = run.documents[span], run.values[span]
                documents_file.write(documents.data)
                values_file.write(values.data)
            starts = [start + len(head) for start, head in zip(starts, heads, strict=True)]
    _write_terms(folder, terms)
    np.save(folder / "offsets.npy", offsets_of(np.concatenate(dfs)), allow_pickle=False)


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


class Postings(NamedTuple):
    """Documents that hold a term, by position, ascending, and its value in each."""

    documents: NDArray[np.integer[Any]]
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class InvertedIndex:
    """Terms of a corpus: all that BM25 needs, for any k1 and b, or the sparse vectors of an encoder by term."""

    terms: Sequence[str]  # the vocabulary, sorted; a term's number is its place here
    offsets: NDArray[np.integer[Any]]  # offsets at which each term's postings start; one more than there are terms
    documents: NDArray[np.integer[Any]]  # the documents of all postings, by position, ascending within a term
    values: NDArray[Any]  # frequency or weight of the term in each of them
    lengths: NDArray[np.integer[Any]]  # number of tokens of each document; of a sparse vector, number of terms
    ties: NDArray[np.int64]  # each document's rank among equals, from `r2med.lexical.ranking.id_order`

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

    def save(self, folder: Path) -> None:
        """Write the files."""
        _save(self, _COLUMNS, folder)

    @classmethod
    def mapped(cls, folder: Path) -> InvertedIndex:
        """Map the files of an index, reading no more of them than is needed."""
        return cls(*_load(_COLUMNS, folder))

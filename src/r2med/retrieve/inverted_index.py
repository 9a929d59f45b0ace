"""The inverted index: for every term the documents that have it, with a value each, in files that are mapped, not read.

The value is how often the term occurs in the document where terms are words, and what it weighs there where an encoder
gave the terms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.sorted_runs import TERMS, read_column
from r2med.storage.checksums import is_unchanged, write_checksums
from r2med.text.ragged import ragged

FORMAT = 2
"""Changes when the files below or their meaning change: part of the cache key."""

_COLUMNS = ("offsets", "documents", "values", "lengths", "ties")


class DamagedIndex(Exception):
    """The files of an index do not fit together; whoever opened it should build it again."""


class Postings(NamedTuple):
    """The documents that hold a term, by position, ascending, and its value in each."""

    documents: NDArray[np.integer[Any]]
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class InvertedIndex:
    """The terms of a corpus: all that BM25 needs, for any k1 and b, or the sparse vectors of an encoder by term."""

    terms: Sequence[str]
    """The vocabulary, sorted; a term's number is its place here."""
    offsets: NDArray[np.integer[Any]]
    """Where each term's postings start; one more than there are terms."""
    documents: NDArray[np.integer[Any]]
    """The documents of all postings, by position, ascending within a term."""
    values: NDArray[Any]
    """How often the term occurs in each of them, or what it weighs there."""
    lengths: NDArray[np.integer[Any]]
    """How many tokens each document has; of a sparse vector, how many terms."""
    ties: NDArray[np.int64]
    """Each document's rank among equals, from `r2med.data.run.id_order`."""

    @property
    def average_length(self) -> float:
        """The mean length of a document in tokens."""
        return int(self.lengths.sum(dtype=np.int64)) / len(self.lengths) if len(self.lengths) else 0.0

    def number(self, term: str) -> int:
        """A term's number, -1 when no document holds it."""
        place = bisect_left(self.terms, term)
        return place if place < len(self.terms) and self.terms[place] == term else -1

    def postings(self, number: int) -> Postings:
        """The postings of the term with this number."""
        span = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        return Postings(self.documents[span], self.values[span])

    def gathered(self, numbers: Sequence[int]) -> tuple[NDArray[np.int64], Postings]:
        """How many postings each of some terms has, and the postings, end to end."""
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
        """Map the files of an index; raises `DamagedIndex` when any is missing, cut short or changed."""
        try:
            if not is_unchanged(folder):
                raise DamagedIndex(f"{folder} has changed since it was written")
        except (OSError, ValueError) as error:
            raise DamagedIndex(f"{folder}: {error}") from error
        return cls.mapped(folder)

    @classmethod
    def mapped(cls, folder: Path) -> InvertedIndex:
        """Map the files of an index that somebody has opened already, reading no more of them than is asked for."""
        try:
            columns = {name: read_column(folder, name) for name in _COLUMNS}
            text = (folder / TERMS).read_bytes().decode()
        except (OSError, ValueError) as error:
            raise DamagedIndex(f"{folder}: {error}") from error
        return cls(text.split("\n") if text else [], **columns)

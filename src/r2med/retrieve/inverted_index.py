"""The inverted index: for every term the documents that have it and how often, in files that are mapped, not read.

Building the inverted index: documents in, sorted postings out, in memory bounded by the index and one block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.data.run import id_order
from r2med.storage.checksums import is_unchanged, write_checksums
from r2med.text import analyze_pieces
from r2med.text.blocks import Pieces, TermIds, cut

FORMAT = 1
"""Changes when the files below or their meaning change: part of the cache key."""

_COLUMNS = ("offsets", "documents", "frequencies", "lengths", "ties")
_TERMS = "terms.txt"


class DamagedIndex(Exception):
    """The files of an index do not fit together; whoever opened it should build it again."""


class Postings(NamedTuple):
    """The documents that hold a term, by position, ascending, and how often each does."""

    documents: NDArray[np.integer[Any]]
    frequencies: NDArray[np.integer[Any]]


@dataclass(frozen=True)
class InvertedIndex:
    """Term statistics of a corpus: all that BM25 needs, for any k1 and b."""

    terms: Sequence[str]
    """The vocabulary, sorted; a term's number is its place here."""
    offsets: NDArray[np.integer[Any]]
    """Where each term's postings start; one more than there are terms."""
    documents: NDArray[np.integer[Any]]
    """The documents of all postings, by position, ascending within a term."""
    frequencies: NDArray[np.integer[Any]]
    """How often the term occurs in each of them."""
    lengths: NDArray[np.integer[Any]]
    """How many tokens each document has."""
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
        return Postings(self.documents[span], self.frequencies[span])

    def save(self, folder: Path) -> None:
        """Write the files, with a checksum for each."""
        (folder / _TERMS).write_bytes("\n".join(self.terms).encode())
        for name in _COLUMNS:
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
        write_checksums(folder)

    @classmethod
    def open(cls, folder: Path) -> InvertedIndex:
        """Map the files of an index; raises `DamagedIndex` when any is missing, cut short or changed."""
        try:
            if not is_unchanged(folder):
                raise DamagedIndex(f"{folder} has changed since it was written")
            # Views, because slicing a `memmap` itself goes through slow Python code.
            columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in _COLUMNS}
            text = (folder / _TERMS).read_bytes().decode()
        except (OSError, ValueError) as error:
            raise DamagedIndex(f"{folder}: {error}") from error
        return cls(text.split("\n") if text else [], **columns)


BLOCK = 8_000_000
"""How many characters of text are worked on at a time."""


def build_index(documents: Texts, progress: Callable[[float], None] = lambda _: None) -> InvertedIndex:
    """The index of some documents; `progress` is told how many more are done, block by block.

    >>> index = build_index(Texts(["d1", "d2"], ["The cells, the cell's wall.", "Walls!"]))
    >>> index.terms, index.lengths.tolist(), index.postings(index.number("wall")).documents.tolist()
    (['cell', 'wall'], [3, 1], [0, 1])
    """
    builder = _Builder()
    # Cutting is numpy's work and analysis is Python's, so the next block is cut while this one is analyzed.
    with ThreadPoolExecutor(max_workers=1) as helper:
        waiting = None
        for texts in _blocks(documents.texts):
            following = helper.submit(cut, texts), len(texts)
            if waiting is not None:
                builder.add(waiting[0].result(), waiting[1])
                progress(waiting[1])
            waiting = following
        if waiting is not None:
            builder.add(waiting[0].result(), waiting[1])
            progress(waiting[1])
    return builder.finish(id_order(documents.ids))


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start, size = 0, 0
    for place, text in enumerate(texts):
        size += len(text)
        if size >= BLOCK:
            yield texts[start : place + 1]
            start, size = place + 1, 0
    if start < len(texts):
        yield texts[start:]


@dataclass(frozen=True)
class _Block:
    """The postings of a block of documents, sorted by term, then document."""

    terms: NDArray[np.int32]
    documents: NDArray[np.int32]
    frequencies: NDArray[np.unsignedinteger[Any]]


class _Builder:
    """Takes in blocks; knows every piece and term met so far, and what terms each piece gives."""

    def __init__(self) -> None:
        self.numbers = TermIds()
        self.terms: dict[str, int] = {}
        self.piece_counts = np.empty(0, dtype=np.int32)
        self.piece_starts = np.empty(0, dtype=np.int64)
        self.piece_terms = np.empty(0, dtype=np.int32)
        self.lengths: list[NDArray[np.int64]] = []
        self.blocks: list[_Block] = []
        self.documents = 0

    def add(self, pieces: Pieces, documents: int) -> None:
        """Take in a block of so many documents."""
        numbers, new = self.numbers.number(pieces)
        self._learn(new)
        terms, owners = self._tokens(numbers, pieces.owners)
        self.lengths.append(np.bincount(owners, minlength=documents))
        self.blocks.append(self._count(terms, owners, documents))
        self.documents += documents

    def _learn(self, new: list[str]) -> None:
        """Analyze pieces never met before and note their terms' numbers, first come first numbered."""
        tokens, counts = analyze_pieces(new)
        known = self.terms
        numbers = np.fromiter((known.setdefault(token, len(known)) for token in tokens), np.int32, len(tokens))
        more = np.array(counts, dtype=np.int32)
        starts = len(self.piece_terms) + np.cumsum(more, dtype=np.int64) - more
        self.piece_counts = np.concatenate([self.piece_counts, more])
        self.piece_starts = np.concatenate([self.piece_starts, starts])
        self.piece_terms = np.concatenate([self.piece_terms, numbers])

    def _tokens(
        self, numbers: NDArray[np.int32], owners: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The terms of pieces and the documents they stand in: every piece's first term, then the second ones, ..."""
        counts = self.piece_counts[numbers]
        places = np.flatnonzero(counts)
        terms, where = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int64)]
        level = 0
        while len(places):
            terms.append(self.piece_terms[self.piece_starts[numbers[places]] + level])
            where.append(owners[places])
            level += 1
            places = places[counts[places] > level]
        return np.concatenate(terms), np.concatenate(where)

    def _count(self, terms: NDArray[np.int32], owners: NDArray[np.int64], documents: int) -> _Block:
        """Sort tokens by term and document and count equal ones."""
        bits = max(documents - 1, 1).bit_length()
        # One key a token; half the bytes where they suffice make the sort twice as fast.
        width: type[np.unsignedinteger[Any]] = np.uint32 if len(self.terms) << bits < 1 << 32 else np.uint64
        keys = terms.astype(width) << width(bits) | owners.astype(width)
        keys.sort()
        edges = np.flatnonzero(_changes(keys))
        counts = np.diff(edges, append=len(keys))
        distinct = keys[edges]
        return _Block(
            (distinct >> width(bits)).astype(np.int32),
            (distinct & width((1 << bits) - 1)).astype(np.int32) + np.int32(self.documents),
            counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
        )

    def finish(self, ties: NDArray[np.int64]) -> InvertedIndex:
        """Bring the blocks' postings together, term by term in alphabetical order. The builder is used up."""
        names = sorted(self.terms)
        by_name = np.fromiter(map(self.terms.__getitem__, names), dtype=np.int64, count=len(names))
        held = np.zeros(len(names), dtype=np.int64)
        for block in self.blocks:
            held += np.bincount(block.terms, minlength=len(names))
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(held[by_name])])
        # Blocks come in document order, so each only appends to its terms' postings.
        free = np.empty(len(names), dtype=np.int64)
        free[by_name] = offsets[:-1]
        documents = np.empty(offsets[-1], dtype=np.int32)
        widths = [block.frequencies.dtype for block in self.blocks]
        frequencies = np.empty(offsets[-1], dtype=np.result_type(np.uint8, *widths))
        self.blocks.reverse()
        while self.blocks:
            block = self.blocks.pop()
            starts = np.flatnonzero(_changes(block.terms))
            counts = np.diff(starts, append=len(block.terms))
            terms = block.terms[starts]
            places = np.arange(len(block.terms)) + np.repeat(free[terms] - starts, counts)
            documents[places] = block.documents
            frequencies[places] = block.frequencies
            free[terms] += counts
        lengths = np.concatenate([np.empty(0, dtype=np.int64), *self.lengths]).astype(np.int32)
        return InvertedIndex(names, offsets, documents, frequencies, lengths, ties)


def _changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a sorted column's value differs from the one before; the first always does."""
    changed = np.ones(len(column), dtype=bool)
    np.not_equal(column[1:], column[:-1], out=changed[1:])
    return changed

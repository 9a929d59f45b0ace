"""Building the inverted index: documents in, sorted postings out, in memory bounded by the index and one block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.model import Texts
from r2med.ranking import id_order
from r2med.retrieve.inverted import Index
from r2med.retrieve.pieces import PieceNumbers, Pieces, cut
from r2med.text import analyze_pieces

BLOCK = 8_000_000
"""How many characters of text are worked on at a time."""


def build_index(documents: Texts, progress: Callable[[float], None] = lambda _: None) -> Index:
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
        self.numbers = PieceNumbers()
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

    def finish(self, ties: NDArray[np.int64]) -> Index:
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
        return Index(names, offsets, documents, frequencies, lengths, ties)


def _changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a sorted column's value differs from the one before; the first always does."""
    changed = np.ones(len(column), dtype=bool)
    np.not_equal(column[1:], column[:-1], out=changed[1:])
    return changed

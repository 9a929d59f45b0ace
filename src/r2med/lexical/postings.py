"""Postings gathered in memory: blocks of text or of sparse vectors in, sorted runs out.

Blocks come in any order and say which documents they are; a run holds what came since the last one, by term, then
document. Where memory is given, a run is written to disk as soon as it fills that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.analyzer import analyze_pieces
from r2med.lexical.arrays import changes, offsets_of
from r2med.lexical.index import TermPostings, append_places
from r2med.lexical.pieces import JoinedTexts, PieceIds, cut
from r2med.lexical.vectors import SparseVectors

BLOCK = 2_000_000  # characters of text per block, if memory allows
_BYTES_A_CHARACTER = 64  # bytes of a character of a block while the block is processed
_BYTES_A_POSTING = 22  # bytes of a posting until it is written: as gathered, as sorted, and in between
_BYTES_A_NAME = 130  # bytes of a term's name
Report = Callable[[float], None]


def block_size(memory: int | None = None) -> int:
    """Return the number of characters of text per block, within this much memory."""
    return BLOCK if memory is None else min(BLOCK, max(1, memory // (4 * _BYTES_A_CHARACTER)))


class TextBlock(NamedTuple):
    """Block of consecutive documents."""

    first: int  # number of the first of them
    texts: JoinedTexts


class _Block(NamedTuple):
    """Postings of a block of documents, sorted by term, then document."""

    first: int  # number of its first document
    terms: NDArray[np.int32]  # numbers of the terms that occur, each once
    counts: NDArray[np.int64]  # number of postings of each of them
    documents: NDArray[np.int32]
    values: NDArray[Any]

    @classmethod
    def sorted_by(cls, first: int, terms: NDArray[Any], documents: NDArray[np.int32], values: NDArray[Any]) -> _Block:
        """Build a block from sorted postings, given the term of each; documents are counted from its first one."""
        starts = np.flatnonzero(changes(terms))
        counts = np.diff(starts, append=len(terms))
        return cls(first, terms[starts].astype(np.int32), counts, documents + np.int32(first), values)


class PostingsBuilder:
    """Builder that gathers postings block by block, and writes them to disk as soon as they fill the memory."""

    def __init__(self, names: Iterable[str], folder: Path | None = None, memory: int = 0) -> None:
        self._numbers = dict(zip(names, count(), strict=False))
        """The numbers of the terms, in their order."""
        self.folder, self.memory = folder, memory
        self.runs: list[Path] = []
        """The runs on disk, in the order in which they were written."""
        self._lengths: dict[int, NDArray[np.int32]] = {}
        self._blocks: list[_Block] = []
        self._postings = 0

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Return the number of tokens of each document, in the order of their numbers."""
        return np.concatenate([np.empty(0, dtype=np.int32), *(self._lengths[first] for first in sorted(self._lengths))])

    @property
    def vocabulary_bytes(self) -> int:
        """Estimate the bytes that the terms take."""
        return _BYTES_A_NAME * len(self._numbers)

    def add_vectors(self, first: int, vectors: SparseVectors) -> None:
        """Add documents that are sparse vectors, one term per dimension."""
        owners = np.repeat(np.arange(len(vectors), dtype=np.int32), vectors.counts)
        order = np.lexsort((owners, vectors.dimensions))
        block = _Block.sorted_by(first, vectors.dimensions[order], owners[order], vectors.weights[order])
        self._hold(block, vectors.counts.astype(np.int32))

    def _hold(self, block: _Block, lengths: NDArray[np.int32]) -> None:
        self._lengths[block.first] = lengths
        self._blocks.append(block)
        self._postings += len(block.documents)
        if self.folder is not None and _BYTES_A_POSTING * self._postings + self.vocabulary_bytes > self.memory:
            self.spill()

    def spill(self) -> None:
        """Write what has been gathered to disk."""
        if self._blocks and self.folder is not None:
            self.runs.append(self.folder / str(len(self.runs)))
            self.runs[-1].mkdir(parents=True)
            self.take_run().save(self.runs[-1])

    def finish(self) -> list[Path]:
        """Write what has been gathered to disk and return all runs."""
        self.spill()
        return self.runs

    def take_run(self) -> TermPostings:
        """Return what has been gathered, term by term in alphabetical order, and remove it from the builder."""
        names = list(self._numbers)
        dfs = np.zeros(len(names), dtype=np.int64)
        for block in self._blocks:
            dfs[block.terms] += block.counts
        # Terms without postings are known from a run before this one.
        order = np.array(sorted(np.flatnonzero(dfs).tolist(), key=names.__getitem__), dtype=np.int64)
        offsets = offsets_of(dfs[order])
        # Half the bytes if they suffice: scattering is bound by memory.
        width: type[np.signedinteger[Any]] = np.int32 if offsets[-1] < 1 << 31 else np.int64
        free = np.empty(len(names), dtype=width)
        free[order] = offsets[:-1]
        documents = np.empty(offsets[-1], dtype=np.int32)
        values = np.empty(offsets[-1], dtype=np.result_type(np.uint8, *(block.values.dtype for block in self._blocks)))
        # In the order of the documents each block only appends to its terms' postings; the last of the list is next.
        self._blocks.sort(key=lambda block: block.first, reverse=True)
        while self._blocks:
            block = self._blocks.pop()
            places = append_places(free, block.terms, block.counts)
            documents[places] = block.documents
            values[places] = block.values
        self._postings = 0
        return TermPostings([names[number] for number in order.tolist()], offsets, documents, values)


class TextBuilder(PostingsBuilder):
    """Builder from blocks of text; holds pieces and terms met since it last dropped them, and each piece's terms."""

    def __init__(self, folder: Path | None = None, memory: int = 0) -> None:
        super().__init__([], folder, memory)
        self._forget()

    @classmethod
    def within(cls, folder: Path, memory: int) -> TextBuilder:
        """Make a builder that takes about this much memory, including the blocks that it is given."""
        return cls(folder, memory - block_size(memory) * _BYTES_A_CHARACTER)

    def _forget(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._pieces = PieceIds()
        self._piece_counts = np.empty(0, dtype=np.int32)
        self._piece_starts = np.empty(0, dtype=np.int64)
        self._piece_terms = np.empty(0, dtype=np.int32)

    @property
    def vocabulary_bytes(self) -> int:
        """Estimate the bytes of pieces and terms, with room for the arrays to be copied as they grow."""
        pieces = 2 * (self._piece_counts.nbytes + self._piece_starts.nbytes + self._piece_terms.nbytes)
        return pieces + self._pieces.nbytes + super().vocabulary_bytes

    def spill(self) -> None:
        """Write what has been gathered to disk, and drop a vocabulary that takes too much of the memory."""
        super().spill()
        if 2 * self.vocabulary_bytes > self.memory:
            self._forget()

    def add_all(self, blocks: Iterable[TextBlock], progress: Report = lambda _: None) -> None:
        """Add blocks and report the number of documents, block by block."""
        for block in blocks:
            self.add(block)
            progress(len(block.texts.lengths))

    def add(self, block: TextBlock) -> None:
        """Add a block."""
        pieces = cut(block.texts)
        short, long = pieces.short(), pieces.long()
        numbers, new = self._pieces.number(pieces.packed.take(short), [pieces.word(place) for place in long.tolist()])
        self._learn(new)
        owners = np.concatenate([pieces.owners.take(short, mode="clip"), pieces.owners.take(long)])
        terms, owners = self._tokens(numbers, owners)
        documents = len(block.texts.lengths)
        # One key per token, of half the bytes if they suffice.
        bits = max(documents - 1, 1).bit_length()
        key_bits = bits + len(self._numbers).bit_length()
        width: type[np.unsignedinteger[Any]] = np.uint32 if key_bits <= 32 else np.uint64
        keys = _sorted_keys(terms.astype(width) << width(bits) | owners.astype(width), key_bits)
        edges = np.flatnonzero(changes(keys))
        counts = np.diff(edges, append=len(keys))
        distinct = keys[edges]
        postings = _Block.sorted_by(
            block.first,
            distinct >> width(bits),
            (distinct & width((1 << bits) - 1)).astype(np.int32),
            counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
        )
        self._hold(postings, np.bincount(owners, minlength=documents).astype(np.int32))

    def _learn(self, new: Sequence[bytes]) -> None:
        # No piece contains a blank.
        tokens, token_counts = analyze_pieces(b" ".join(new).decode("utf-8", "surrogatepass").split(" ") if new else [])
        counts = np.array(token_counts, dtype=np.int32)
        terms = np.fromiter(map(self._numbers.__getitem__, tokens), np.int32, len(tokens))
        starts = len(self._piece_terms) + np.cumsum(counts) - counts
        self._piece_counts = np.concatenate([self._piece_counts, counts])
        self._piece_starts = np.concatenate([self._piece_starts, starts])
        self._piece_terms = np.concatenate([self._piece_terms, terms])

    def _tokens(
        self, numbers: NDArray[np.int32], owners: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        counts = self._piece_counts.take(numbers, mode="clip")
        places = np.flatnonzero(counts)
        terms, term_owners = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
        level = 0
        while len(places):
            starts = self._piece_starts.take(numbers.take(places, mode="clip"), mode="clip")
            terms.append(self._piece_terms.take(starts + level, mode="clip"))
            term_owners.append(owners.take(places, mode="clip"))
            level += 1
            places = places[counts.take(places, mode="clip") > level]
        return np.concatenate(terms), np.concatenate(term_owners)


def _sorted_keys(keys: NDArray[np.unsignedinteger[Any]], bits: int) -> NDArray[np.unsignedinteger[Any]]:
    # numpy sorts numbers of 16 bits by counting: two or three such passes take less than comparing whole keys.
    for shift in range(0, bits, 16):
        digits = (keys >> keys.dtype.type(shift)).astype(np.uint16)
        keys = keys.take(np.argsort(digits, kind="stable"), mode="clip")
    return keys

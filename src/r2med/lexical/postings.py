"""Postings gathered in memory: blocks of text or of sparse vectors in, sorted runs out.

Blocks come in any order and say which documents they are; a run holds whatever came since the last one, by term, then
document. Where memory is given, a run is written to disk as soon as it fills that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.analyzer import analyze_pieces
from r2med.lexical.blocks import JoinedTexts, cut_joined
from r2med.lexical.index import TermPostings, append_places, save_run
from r2med.lexical.piece_ids import PieceIds

if TYPE_CHECKING:
    from r2med.lexical.vectors import SparseVectors

BLOCK = 2_000_000
"""Characters of text per block, if memory allows."""
_BYTES_A_CHARACTER = 64
"""Bytes of a character of a block while the block is processed."""
_BYTES_A_POSTING = 22
"""Bytes of a posting until it is written: as gathered, as sorted, and in between."""
_BYTES_A_NAME = 130
"""Bytes of a term's name."""
Report = Callable[[float], None]


def block_size(memory: int | None = None) -> int:
    """Return the number of characters of text per block, within this much memory."""
    return BLOCK if memory is None else min(BLOCK, max(1, memory // (4 * _BYTES_A_CHARACTER)))


class TextBlock(NamedTuple):
    """Block of consecutive documents."""

    first: int
    """Number of the first of them."""
    texts: JoinedTexts

    @property
    def documents(self) -> int:
        """Return the number of documents."""
        return len(self.texts.lengths)


def fill(builder: TextBuilder, blocks: Iterable[TextBlock], progress: Report = lambda _: None) -> None:
    """Add blocks of texts to a builder and report the number of documents, block by block."""
    for block in blocks:
        builder.add(block)
        progress(block.documents)


class SortedTerms(NamedTuple):
    """Terms in alphabetical order, that of their bytes."""

    names: list[bytes]
    numbers: NDArray[np.int64]


class _Terms(Protocol):
    """Terms that have numbers."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Estimate the bytes that the terms take."""

    def by_name(self) -> SortedTerms:
        """Sort all terms alphabetically."""


class GivenTerms:
    """Terms that are known beforehand: the number of each is its place."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = [name.encode() for name in names]

    def __len__(self) -> int:
        return len(self._names)

    @property
    def nbytes(self) -> int:
        """Estimate the bytes that the terms take."""
        return _BYTES_A_NAME * len(self._names)

    def by_name(self) -> SortedTerms:
        """Sort the terms."""
        return _sort_terms(self._names)


class TextTerms(dict[bytes, int]):
    """Terms of texts, numbered as they are first looked up.

    >>> terms = TextTerms()
    >>> [terms[term] for term in (b"wall", b"cell", b"wall")], terms.by_name().names
    ([0, 1, 0], [b'cell', b'wall'])
    """

    def __missing__(self, term: bytes) -> int:
        number = self[term] = len(self)
        return number

    @property
    def nbytes(self) -> int:
        """Estimate the bytes that the terms take."""
        return _BYTES_A_NAME * len(self)

    def by_name(self) -> SortedTerms:
        """Sort the terms."""
        return _sort_terms(list(self))


def _sort_terms(names: Sequence[bytes]) -> SortedTerms:
    order = sorted(range(len(names)), key=names.__getitem__)
    return SortedTerms([names[number] for number in order], np.array(order, dtype=np.int64))


class _Block(NamedTuple):
    """Postings of a block of documents, sorted by term, then document."""

    first: int
    """Number of its first document."""
    terms: NDArray[np.int32]
    """Numbers of the terms that occur, each once."""
    counts: NDArray[np.int64]
    """Number of postings of each of them."""
    documents: NDArray[np.int32]
    values: NDArray[Any]

    @classmethod
    def sorted_by(cls, first: int, terms: NDArray[Any], documents: NDArray[np.int32], values: NDArray[Any]) -> _Block:
        """Build a block from sorted postings, given the term of each; documents are counted from its first one."""
        starts = np.flatnonzero(_changes(terms))
        counts = np.diff(starts, append=len(terms))
        return cls(first, terms[starts].astype(np.int32), counts, documents + np.int32(first), values)


class PostingsBuilder:
    """Builder that gathers postings block by block, writes them to disk if memory is short, and yields them by term."""

    def __init__(self, terms: _Terms, folder: Path | None = None, memory: int = 0) -> None:
        self.terms, self.folder, self.memory = terms, folder, memory
        self.runs: list[Path] = []
        """The runs on disk, in the order in which they were written."""
        self.postings = 0
        self.width: np.dtype[Any] = np.dtype(np.uint8)
        """Type of the values: as narrow as the largest allows."""
        self._lengths: dict[int, NDArray[np.int32]] = {}
        self._blocks: list[_Block] = []
        self._held = 0

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Return the number of tokens of each document, in the order of their numbers."""
        return np.concatenate([np.empty(0, dtype=np.int32), *(self._lengths[first] for first in sorted(self._lengths))])

    def forget_terms(self) -> None:
        """Start a new run; a vocabulary that takes too much of the memory may be dropped and learnt again."""

    @property
    def _vocabulary(self) -> int:
        """Estimate the bytes that the terms take."""
        return self.terms.nbytes

    def add_vectors(self, first: int, vectors: SparseVectors) -> None:
        """Add documents that are sparse vectors, one term per dimension."""
        owners = np.repeat(np.arange(len(vectors), dtype=np.int32), vectors.counts)
        order = np.lexsort((owners, vectors.dimensions))
        block = _Block.sorted_by(first, vectors.dimensions[order], owners[order], vectors.weights[order])
        self._take(block, vectors.counts.astype(np.int32))

    def _take(self, block: _Block, lengths: NDArray[np.int32]) -> None:
        """Add a block; `lengths` has an entry for each of its documents."""
        self._lengths[block.first] = lengths
        self._blocks.append(block)
        self._held += len(block.documents)
        if self.folder is not None and _BYTES_A_POSTING * self._held + self._vocabulary > self.memory:
            self.spill()

    def spill(self) -> None:
        """Write what has been gathered to disk."""
        if self.folder is None or not self._blocks:
            return
        self.folder.mkdir(exist_ok=True)
        self.runs.append(self.folder / str(len(self.runs)))
        save_run(self.take_run(), self.runs[-1])
        self.forget_terms()

    def take_run(self) -> TermPostings:
        """Return what has been gathered, term by term in alphabetical order, and remove it from the builder."""
        held = np.zeros(len(self.terms), dtype=np.int64)
        for block in self._blocks:
            held[block.terms] += block.counts
        names, by_name = self.terms.by_name()
        if not held.all():
            # Terms known from a run before this one.
            names = [name for name, count in zip(names, held[by_name].tolist(), strict=True) if count]
            by_name = by_name[held[by_name] > 0]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(held[by_name])])
        # Half the bytes if they suffice: scattering is bound by memory.
        kind: type[np.signedinteger[Any]] = np.int32 if offsets[-1] < 1 << 31 else np.int64
        free = np.empty(len(self.terms), dtype=kind)
        free[by_name] = offsets[:-1]
        documents = np.empty(offsets[-1], dtype=np.int32)
        widths = [block.values.dtype for block in self._blocks]
        values = np.empty(offsets[-1], dtype=np.result_type(np.uint8, *widths))
        # In the order of the documents each block only appends to its terms' postings; the last of the list is next.
        self._blocks.sort(key=lambda block: block.first, reverse=True)
        while self._blocks:
            block = self._blocks.pop()
            places = append_places(free, block.terms, block.counts)
            documents[places] = block.documents
            values[places] = block.values
        self._held = 0
        self.postings += len(documents)
        self.width = np.result_type(self.width, values.dtype)
        return TermPostings(names, offsets, documents, values)


class TextBuilder(PostingsBuilder):
    """Builder from blocks of text; holds pieces and terms met since it last dropped them, and each piece's terms."""

    terms: TextTerms

    def __init__(self, folder: Path | None = None, memory: int = 0) -> None:
        super().__init__(TextTerms(), folder, memory)
        self._forget()

    def _forget(self) -> None:
        self.pieces = PieceIds()
        self.terms = TextTerms()
        self.piece_counts = np.empty(0, dtype=np.int32)
        self.piece_starts = np.empty(0, dtype=np.int64)
        self.piece_terms = np.empty(0, dtype=np.int32)

    def forget_terms(self) -> None:
        """Drop a vocabulary that takes too much of the memory."""
        if 2 * self._vocabulary > self.memory:
            self._forget()

    @property
    def _vocabulary(self) -> int:
        """Estimate the bytes of pieces and terms, with room for the arrays to be copied as they grow."""
        pieces = 2 * (self.piece_counts.nbytes + self.piece_starts.nbytes + self.piece_terms.nbytes)
        return pieces + self.pieces.nbytes + self.terms.nbytes

    @classmethod
    def within(cls, folder: Path, memory: int) -> TextBuilder:
        """Make a builder that takes about this much memory, including the blocks that it is given."""
        return cls(folder, memory - block_size(memory) * _BYTES_A_CHARACTER)

    def add(self, block: TextBlock) -> None:
        """Add a block."""
        pieces = cut_joined(block.texts)
        short, long = pieces.short(), pieces.long()
        owners = np.concatenate([pieces.owners.take(short, mode="clip"), pieces.owners.take(long)])
        long_pieces = [pieces.word(place) for place in long.tolist()]
        numbers, new = self.pieces.number(pieces.packed.at(short), long_pieces)
        self._learn(new)
        terms, owners = self._tokens(numbers, owners)
        lengths = np.bincount(owners, minlength=block.documents).astype(np.int32)
        self._take(self._count(terms, owners, block), lengths)

    def _learn(self, new: Sequence[bytes]) -> None:
        """Analyze pieces never met before and store the numbers of their terms."""
        # No piece and no token contains a blank.
        tokens, counted = analyze_pieces(b" ".join(new).decode("utf-8", "surrogatepass").split(" ") if new else [])
        counts = np.array(counted, dtype=np.int32)
        names = " ".join(tokens).encode().split()
        numbers = np.fromiter(map(self.terms.__getitem__, names), np.int32, len(names))
        starts = len(self.piece_terms) + np.cumsum(counts) - counts
        self.piece_counts = np.concatenate([self.piece_counts, counts])
        self.piece_starts = np.concatenate([self.piece_starts, starts])
        self.piece_terms = np.concatenate([self.piece_terms, numbers])

    def _tokens(
        self, numbers: NDArray[np.int32], owners: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the terms of pieces and their documents: every piece's first term, then the second ones, ..."""
        counts = self.piece_counts.take(numbers, mode="clip")
        places = np.flatnonzero(counts)
        terms, where = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
        level = 0
        while len(places):
            starts = self.piece_starts.take(numbers.take(places, mode="clip"), mode="clip")
            terms.append(self.piece_terms.take(starts + level, mode="clip"))
            where.append(owners.take(places, mode="clip"))
            level += 1
            places = places[counts.take(places, mode="clip") > level]
        return np.concatenate(terms), np.concatenate(where)

    def _count(self, terms: NDArray[np.int32], owners: NDArray[np.int32], block: TextBlock) -> _Block:
        """Sort tokens by term and document and count equal ones."""
        bits = max(block.documents - 1, 1).bit_length()
        key_bits = bits + len(self.terms).bit_length()
        # One key per token, of half the bytes if they suffice.
        width: type[np.unsignedinteger[Any]] = np.uint32 if key_bits <= 32 else np.uint64
        keys = _sorted_keys(terms.astype(width) << width(bits) | owners.astype(width), key_bits)
        edges = np.flatnonzero(_changes(keys))
        counts = np.diff(edges, append=len(keys))
        distinct = keys[edges]
        return _Block.sorted_by(
            block.first,
            distinct >> width(bits),
            (distinct & width((1 << bits) - 1)).astype(np.int32),
            counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
        )


def _sorted_keys(keys: NDArray[np.unsignedinteger[Any]], bits: int) -> NDArray[np.unsignedinteger[Any]]:
    """Sort numbers of this many bits ascending.

    >>> _sorted_keys(np.array([70_000, 3, 70_001, 65_536], dtype=np.uint32), 17).tolist()
    [3, 65536, 70000, 70001]
    """
    # numpy sorts numbers of 16 bits by counting: two or three such passes take less than comparing whole keys.
    for shift in range(0, bits, 16):
        digits = (keys >> keys.dtype.type(shift)).astype(np.uint16)
        keys = keys.take(np.argsort(digits, kind="stable"), mode="clip")
    return keys


def _changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark where a sorted column's value differs from the one before; the first always does."""
    changed = np.ones(len(column), dtype=bool)
    np.not_equal(column[1:], column[:-1], out=changed[1:])
    return changed

"""Building the inverted index: documents or sparse vectors in, sorted postings out, in memory bounded by a setting.

Postings are gathered until they fill the memory that was given, then written to disk as a sorted run; at the end the
runs are merged. The files are the same, bit for bit, however often that happened.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Texts
from r2med.data.run import id_order
from r2med.encode.sparse_vectors import SparseVectors
from r2med.retrieve.inverted_index import InvertedIndex
from r2med.retrieve.sorted_runs import (
    TERMS,
    ColumnWriter,
    TermPostings,
    append_places,
    merge_runs,
    read_column,
    save_run,
)
from r2med.storage.checksums import write_checksums
from r2med.text import analyze_pieces
from r2med.text.blocks import Pieces, TermIds, cut

BLOCK = 2_000_000
"""How many characters of text are worked on at a time, where memory allows."""
_BYTES_A_CHARACTER = 64
"""What a character of a block takes while it is worked on, with the next block at its side."""
_BYTES_A_POSTING = 22
"""What a posting takes until it is written: as it was gathered, as it is sorted, and on its way there."""
_BYTES_A_TERM = 130
"""A term in the table of terms."""

Report = Callable[[float], None]


def build_index(documents: Texts, progress: Report = lambda _: None) -> InvertedIndex:
    """The index of some documents, in memory; `progress` is told how many more are done, block by block.

    >>> index = build_index(Texts(["d1", "d2"], ["The cells, the cell's wall.", "Walls!"]))
    >>> index.terms, index.lengths.tolist(), index.postings(index.number("wall")).documents.tolist()
    (['cell', 'wall'], [3, 1], [0, 1])
    """
    builder = _TextBuilder()
    _fill(builder, documents.texts, BLOCK, progress)
    run = builder.take_run()
    names = [term.decode() for term in run.terms]
    return InvertedIndex(names, run.offsets, run.documents, run.values, builder.lengths, id_order(documents.ids))


def write_index(documents: Texts, folder: Path, memory: int, progress: Report = lambda _: None) -> None:
    """Write the index of some documents into a folder, with about so many bytes of memory."""
    block = min(BLOCK, max(1, memory // (4 * _BYTES_A_CHARACTER)))
    builder = _TextBuilder(folder / "runs", memory - block * _BYTES_A_CHARACTER)
    _fill(builder, documents.texts, block, progress)
    _finish(builder, documents.ids, folder, memory)


def write_vector_index(
    blocks: Iterable[SparseVectors],
    names: Sequence[str],
    ids: Sequence[str],
    folder: Path,
    memory: int,
    progress: Report = lambda _: None,
) -> None:
    """Write the index of sparse vectors into a folder: blocks of documents in their order, terms by their names."""
    builder = _PostingsBuilder(folder / "runs", memory // 2)
    builder.terms = {name: number for number, name in enumerate(names)}
    for vectors in blocks:
        builder.add_vectors(vectors)
        progress(len(vectors))
    _finish(builder, ids, folder, memory)


def build_run(texts: Sequence[str]) -> tuple[TermPostings, NDArray[np.int32]]:
    """The postings of some documents, numbered from 0, and their lengths."""
    builder = _TextBuilder()
    _fill(builder, texts, BLOCK, lambda _: None)
    return builder.take_run(), builder.lengths


def merge_index(
    runs: Sequence[Path], lengths: NDArray[np.int32], ids: Sequence[str], folder: Path, memory: int
) -> None:
    """Write the index that runs on disk make together, one's documents after the other's."""
    values = [read_column(run, "values") for run in runs]
    width = np.result_type(np.uint8, *(column.dtype for column in values))
    _write(merge_runs(runs, memory // 2), sum(map(len, values)), width, folder)
    _complete(lengths, ids, folder)


def _finish(builder: _PostingsBuilder, ids: Sequence[str], folder: Path, memory: int) -> None:
    """Write what a builder has gathered, in memory and on disk, as an index."""
    if not builder.runs:
        parts: Iterator[TermPostings] = iter([builder.take_run()])
    else:
        builder.spill()
        parts = merge_runs(builder.runs, memory // 2)
    _write(parts, builder.postings, builder.width, folder)
    _complete(builder.lengths, ids, folder)


def _complete(lengths: NDArray[np.int32], ids: Sequence[str], folder: Path) -> None:
    """Write what stands beside the postings, and the seal over all of it."""
    np.save(folder / "lengths.npy", lengths, allow_pickle=False)
    np.save(folder / "ties.npy", id_order(ids), allow_pickle=False)
    shutil.rmtree(folder / "runs", ignore_errors=True)
    write_checksums(folder)


def _write(parts: Iterator[TermPostings], postings: int, width: np.dtype[Any], folder: Path) -> None:
    """Write so many postings, which come term by term in alphabetical order."""
    documents = ColumnWriter(folder / "documents.npy", np.dtype(np.int32), postings)
    values = ColumnWriter(folder / "values.npy", width, postings)
    offsets: list[NDArray[np.integer[Any]]] = [np.zeros(1, dtype=np.int64)]
    before, separator = 0, b""
    with (folder / TERMS).open("wb") as file:
        for part in parts:
            documents.write(part.documents)
            values.write(part.values)
            offsets.append(before + part.offsets[1:])
            before += int(part.offsets[-1])
            if part.terms:
                file.write(separator + b"\n".join(part.terms))
                separator = b"\n"
    documents.close()
    values.close()
    np.save(folder / "offsets.npy", np.concatenate(offsets), allow_pickle=False)


class _NumberedBlock(NamedTuple):
    """A block of texts cut into pieces, and what a table of numbers says of them."""

    pieces: Pieces
    documents: int
    numbers: NDArray[np.int32]
    """The number of each piece."""
    new: list[str]
    """Pieces that the table had never met, in the order of their numbers."""


def _fill(builder: _TextBuilder, documents: Sequence[str], block: int, progress: Report) -> None:
    # Cutting and numbering are numpy's work and analysis is Python's: one block is cut while another is analyzed.
    with ThreadPoolExecutor(max_workers=1) as helper:
        waiting: Future[_NumberedBlock] | None = None
        for texts in text_blocks(documents, block):
            table = builder.numbers
            following = helper.submit(_cut_and_number, texts, table)
            if waiting is not None:
                _add(builder, waiting.result(), progress)
                if builder.numbers is not table:
                    following = helper.submit(_number, *following.result()[:2], builder.numbers)
            waiting = following
        if waiting is not None:
            _add(builder, waiting.result(), progress)


def _add(builder: _TextBuilder, block: _NumberedBlock, progress: Report) -> None:
    builder.add(block)
    progress(block.documents)


def _cut_and_number(texts: list[str], table: TermIds) -> _NumberedBlock:
    return _number(cut(texts), len(texts), table)


def _number(pieces: Pieces, documents: int, table: TermIds) -> _NumberedBlock:
    return _NumberedBlock(pieces, documents, *table.number(pieces))


def text_blocks(texts: Sequence[str], characters: int) -> Iterator[list[str]]:
    """Texts in a row, as many as make about so many characters."""
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size >= characters:
            yield block
            block, size = [], 0
    if block:
        yield block


@dataclass(frozen=True)
class _Block:
    """The postings of a block of documents, sorted by term, then document."""

    terms: NDArray[np.int32]
    """The terms that occur, by number, each once."""
    counts: NDArray[np.int64]
    """How many postings each of them has."""
    documents: NDArray[np.int32]
    values: NDArray[Any]

    @classmethod
    def sorted_by(cls, terms: NDArray[Any], documents: NDArray[np.int32], values: NDArray[Any]) -> _Block:
        """A block of postings that are sorted, given the term of each."""
        starts = np.flatnonzero(_changes(terms))
        counts = np.diff(starts, append=len(terms))
        return cls(terms[starts].astype(np.int32), counts, documents, values)


class _PostingsBuilder:
    """Gathers postings block by block, writes them to disk where memory is short, and hands them out by term."""

    def __init__(self, folder: Path | None = None, memory: int = 0) -> None:
        self.folder, self.memory = folder, memory
        self.runs: list[Path] = []
        """The runs on disk."""
        self.postings = 0
        self.width: np.dtype[Any] = np.dtype(np.uint8)
        """How wide values are: as narrow as the largest allows."""
        self.documents = 0
        self.terms: dict[str, int] = {}
        """The numbers of the terms, by name."""
        self._lengths: list[NDArray[np.int32]] = []
        self._blocks: list[_Block] = []
        self._held = 0

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many tokens each document has."""
        return np.concatenate([np.empty(0, dtype=np.int32), *self._lengths])

    def forget_terms(self) -> None:
        """Begin a new run; a vocabulary that takes too much of the memory may be learnt anew."""

    @property
    def _vocabulary(self) -> int:
        """About how many bytes the terms take."""
        return _BYTES_A_TERM * len(self.terms)

    def add_vectors(self, vectors: SparseVectors) -> None:
        """Take in documents that are sparse vectors, a term a dimension."""
        owners = np.repeat(np.arange(len(vectors), dtype=np.int32), vectors.counts)
        order = np.lexsort((owners, vectors.dimensions))
        documents = owners[order] + np.int32(self.documents)
        block = _Block.sorted_by(vectors.dimensions[order], documents, vectors.weights[order])
        self._take(block, vectors.counts.astype(np.int32))

    def _take(self, block: _Block, lengths: NDArray[np.int32]) -> None:
        """Hold a block; `lengths` has an entry for each of its documents."""
        self._lengths.append(lengths)
        self._blocks.append(block)
        self.documents += len(lengths)
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
        """What has been gathered, term by term in alphabetical order; the builder holds it no longer."""
        held = np.zeros(len(self.terms), dtype=np.int64)
        for block in self._blocks:
            held[block.terms] += block.counts
        names = sorted(self.terms)
        by_name = np.fromiter(map(self.terms.__getitem__, names), dtype=np.int64, count=len(names))
        if not held.all():
            # Terms known from a run before this one.
            names = [name for name, count in zip(names, held[by_name].tolist(), strict=True) if count]
            by_name = by_name[held[by_name] > 0]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(held[by_name])])
        # Half the bytes where they suffice: scattering waits for memory.
        kind: type[np.signedinteger[Any]] = np.int32 if offsets[-1] < 1 << 31 else np.int64
        free = np.empty(len(self.terms), dtype=kind)
        free[by_name] = offsets[:-1]
        documents = np.empty(offsets[-1], dtype=np.int32)
        widths = [block.values.dtype for block in self._blocks]
        values = np.empty(offsets[-1], dtype=np.result_type(np.uint8, *widths))
        self._blocks.reverse()
        # Blocks come in document order, so each only appends to its terms' postings.
        while self._blocks:
            block = self._blocks.pop()
            places = append_places(free, block.terms, block.counts)
            documents[places] = block.documents
            values[places] = block.values
        self._held = 0
        self.postings += len(documents)
        self.width = np.result_type(self.width, values.dtype)
        return TermPostings("\n".join(names).encode().split(b"\n") if names else [], offsets, documents, values)


class _TextBuilder(_PostingsBuilder):
    """Takes in blocks of text; knows the pieces and terms met since it last forgot them, and each piece's terms."""

    def __init__(self, folder: Path | None = None, memory: int = 0) -> None:
        super().__init__(folder, memory)
        self._forget()

    def _forget(self) -> None:
        self.numbers = TermIds()
        # A term that is looked up for the first time gets the next number.
        self.terms: defaultdict[str, int] = defaultdict(count().__next__)
        self.piece_counts = np.empty(0, dtype=np.int32)
        self.piece_starts = np.empty(0, dtype=np.int64)
        self.piece_terms = np.empty(0, dtype=np.int32)

    def forget_terms(self) -> None:
        """A vocabulary that takes too much of the memory is learnt anew."""
        if 2 * self._vocabulary > self.memory:
            self._forget()

    @property
    def _vocabulary(self) -> int:
        """About how many bytes pieces and terms take, with room for the arrays to be copied as they grow."""
        pieces = 2 * (self.piece_counts.nbytes + self.piece_starts.nbytes + self.piece_terms.nbytes)
        return pieces + self.numbers.nbytes + _BYTES_A_TERM * len(self.terms)

    def add(self, block: _NumberedBlock) -> None:
        """Take in a block, numbered by this builder's table, after those that were numbered before it."""
        self._learn(block.new)
        terms, owners = self._tokens(block.numbers, block.pieces.owners)
        lengths = np.bincount(owners, minlength=block.documents).astype(np.int32)
        self._take(self._count(terms, owners, block.documents), lengths)

    def _learn(self, new: list[str]) -> None:
        """Analyze pieces never met before and note their terms' numbers, first come first numbered."""
        tokens, counts = analyze_pieces(new)
        numbers = np.fromiter(map(self.terms.__getitem__, tokens), np.int32, len(tokens))
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
        return _Block.sorted_by(
            distinct >> width(bits),
            (distinct & width((1 << bits) - 1)).astype(np.int32) + np.int32(self.documents),
            counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
        )


def _changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a sorted column's value differs from the one before; the first always does."""
    changed = np.ones(len(column), dtype=bool)
    np.not_equal(column[1:], column[:-1], out=changed[1:])
    return changed

"""Building the inverted index: documents or sparse vectors in, sorted postings out, in memory bounded by a setting.

Postings are gathered until they fill the memory that was given, then written to disk as a sorted run; at the end the
runs are merged. A large collection is worked on from both ends, from the other one by a second process. The files are
the same, bit for bit, however often something was written and wherever the two met.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.index import TERMS, ColumnWriter, InvertedIndex, TermPostings, merge_runs, read_column
from r2med.lexical.postings import GivenTerms, PostingsBuilder, Report, TextBuilder, block_size, fill
from r2med.lexical.ranking import id_order
from r2med.lexical.two_processes import SecondIndexer, TextQueue, is_worthwhile
from r2med.store.hashes import write_checksums

if TYPE_CHECKING:
    from r2med.lexical.vectors import SparseVectors

_RUNS, _SECOND = "runs", "second"
"""Folders of the runs until the index is complete: those of this process, and those of the second one."""


class Documents(Protocol):
    """Texts with their ids, in one order."""

    @property
    def ids(self) -> Sequence[str]:
        """Return the ids, all different."""

    @property
    def texts(self) -> Sequence[str]:
        """Return the texts."""


def build_index(documents: Documents, progress: Report = lambda _: None) -> InvertedIndex:
    """Build the index of documents in memory; `progress` receives the number of documents of each block.

    >>> from r2med.data.dataset import Texts
    >>> index = build_index(Texts(["d1", "d2"], ["The cells, the cell's wall.", "Walls!"]))
    >>> index.terms, index.lengths.tolist(), index.postings(index.number("wall")).documents.tolist()
    (['cell', 'wall'], [3, 1], [0, 1])
    """
    builder = TextBuilder()
    fill(builder, TextQueue(documents.texts).blocks(block_size()), progress)
    run = builder.take_run()
    names = [term.decode() for term in run.terms]
    return InvertedIndex(names, run.offsets, run.documents, run.values, builder.lengths, id_order(documents.ids))


def write_index(documents: Documents, folder: Path, memory: int, progress: Report = lambda _: None) -> None:
    """Write the index of documents into a folder, within about this many bytes of memory."""
    if is_worthwhile(documents.texts):
        _write_index_by_two(documents, folder, memory, progress)
        return
    builder = TextBuilder.within(folder / _RUNS, memory)
    fill(builder, TextQueue(documents.texts).blocks(block_size(memory)), progress)
    _finish(builder, documents.ids, folder, memory)


def _write_index_by_two(documents: Documents, folder: Path, memory: int, progress: Report) -> None:
    """Write an index together with a worker, half of the memory for each."""
    share = memory // 2
    builder = TextBuilder.within(folder / _RUNS, share)
    queue = TextQueue(documents.texts)
    with SecondIndexer(queue, folder / _SECOND, share) as worker:
        progress(worker.feed())
        fill(builder, queue.blocks(block_size(share)), lambda more: progress(more + worker.feed()))
        worker.finish()
        builder.spill()
        result = worker.result()
    if result is None:
        shutil.rmtree(folder / _SECOND, ignore_errors=True)
        fill(builder, TextQueue(documents.texts, start=queue.stop).blocks(block_size(share)))
        _finish(builder, documents.ids, folder, memory)
        return
    runs, lengths = result
    _merge([*builder.runs, *runs], np.concatenate([builder.lengths, lengths]), documents.ids, folder, memory)


def write_vector_index(
    blocks: Iterable[SparseVectors],
    names: Sequence[str],
    ids: Sequence[str],
    folder: Path,
    memory: int,
    progress: Report = lambda _: None,
) -> None:
    """Write the index of sparse vectors into a folder: blocks of documents in their order, terms by their names."""
    builder = PostingsBuilder(GivenTerms(names), folder / _RUNS, memory // 2)
    first = 0
    for vectors in blocks:
        builder.add_vectors(first, vectors)
        first += len(vectors)
        progress(len(vectors))
    _finish(builder, ids, folder, memory)


def _merge(runs: Sequence[Path], lengths: NDArray[np.int32], ids: Sequence[str], folder: Path, memory: int) -> None:
    """Write the index of runs on disk, the documents of one after those of the other."""
    values = [read_column(run, "values") for run in runs]
    width = np.result_type(np.uint8, *(column.dtype for column in values))
    _write(merge_runs(runs, memory // 2), sum(map(len, values)), width, folder)
    _complete(lengths, ids, folder)


def _finish(builder: PostingsBuilder, ids: Sequence[str], folder: Path, memory: int) -> None:
    """Write what a builder holds, in memory and on disk, as an index."""
    if not builder.runs:
        parts: Iterator[TermPostings] = iter([builder.take_run()])
    else:
        builder.spill()
        parts = merge_runs(builder.runs, memory // 2)
    _write(parts, builder.postings, builder.width, folder)
    _complete(builder.lengths, ids, folder)


def _complete(lengths: NDArray[np.int32], ids: Sequence[str], folder: Path) -> None:
    """Write the files beside the postings, and the checksums of all files."""
    np.save(folder / "lengths.npy", lengths, allow_pickle=False)
    np.save(folder / "ties.npy", id_order(ids), allow_pickle=False)
    for place in (_RUNS, _SECOND):
        shutil.rmtree(folder / place, ignore_errors=True)
    write_checksums(folder)


def _write(parts: Iterator[TermPostings], postings: int, width: np.dtype[Any], folder: Path) -> None:
    """Write postings that come term by term in alphabetical order, given their total number."""
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

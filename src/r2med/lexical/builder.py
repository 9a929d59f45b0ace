"""Building the inverted index: documents or sparse vectors in, sorted postings out, in memory bounded by a setting.

Postings are gathered until they fill the memory that was given, then written to disk as a sorted run; at the end the
runs are merged. A large collection is worked on from both ends, from the other one by a second process. The files are
the same, bit for bit, however often something was written and wherever the two met.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.lexical.index import InvertedIndex, merge_runs
from r2med.lexical.postings import PostingsBuilder, Report, TextBuilder, block_size
from r2med.lexical.ranking import id_order
from r2med.lexical.two_processes import SecondIndexer, TextQueue, is_worthwhile
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
    builder.add_all(TextQueue(documents.texts).blocks(block_size()), progress)
    run = builder.take_run()
    return InvertedIndex(*run, builder.lengths, id_order(documents.ids))


def write_index(
    documents: Documents, folder: Path, memory: int, progress: Report = lambda _: None, threads: int = 1
) -> None:
    """Write the index of documents into a folder, within about this many bytes of memory.

    `progress` receives the number of documents of each block. With two threads or more, a large collection is indexed
    by two processes.
    """
    queue = TextQueue(documents.texts)
    if not is_worthwhile(documents.texts, threads):
        builder = TextBuilder.within(folder / _RUNS, memory)
        builder.add_all(queue.blocks(block_size(memory)), progress)
        _finish(builder.finish(), builder.lengths, documents.ids, folder, memory)
        return
    share = memory // 2
    builder = TextBuilder.within(folder / _RUNS, share)
    with SecondIndexer(queue, folder / _SECOND, share) as worker:
        progress(worker.feed())
        builder.add_all(queue.blocks(block_size(share)), lambda more: progress(more + worker.feed()))
        worker.finish()
        builder.spill()
        result = worker.result()
        if result is None:
            builder.add_all(TextQueue(documents.texts, start=queue.stop).blocks(block_size(share)))
            result = [], np.empty(0, dtype=np.int32)
        runs, lengths = result
        _finish([*builder.finish(), *runs], np.concatenate([builder.lengths, lengths]), documents.ids, folder, memory)


def write_vector_index(
    blocks: Iterable[SparseVectors],
    names: Sequence[str],
    ids: Sequence[str],
    folder: Path,
    memory: int,
    progress: Report = lambda _: None,
) -> None:
    """Write the index of sparse vectors into a folder: blocks of documents in their order, terms by their names."""
    builder = PostingsBuilder(names, folder / _RUNS, memory // 2)
    first = 0
    for vectors in blocks:
        builder.add_vectors(first, vectors)
        first += len(vectors)
        progress(len(vectors))
    _finish(builder.finish(), builder.lengths, ids, folder, memory)


def _finish(runs: Sequence[Path], lengths: NDArray[np.int32], ids: Sequence[str], folder: Path, memory: int) -> None:
    if len(runs) == 1:
        for path in runs[0].iterdir():
            path.rename(folder / path.name)
    else:
        merge_runs(runs, folder, memory // 2)
    np.save(folder / "lengths.npy", lengths, allow_pickle=False)
    np.save(folder / "ties.npy", id_order(ids), allow_pickle=False)
    for name in (_RUNS, _SECOND):
        shutil.rmtree(folder / name, ignore_errors=True)

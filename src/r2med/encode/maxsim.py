"""Exact late interaction: for every token of a query its best token of a document, and the sum of these.

Documents are read block by block from the mapped file, in the order in which they lie there, and a block is multiplied
with the tokens of many queries at once. The product of a block stays in the processor's cache while the best token of
each document is taken from it, so that what goes through memory is little more than the vectors themselves. No document
is padded to the length of another: one whose tokens are no multiple of eight has its last repeated, which changes no
maximum, so that eight rows at a time can be reduced to one.

Each thread has blocks of its own. A library that splits one small product among threads has them wait for one another
at every block.

The product in single precision draws up a shortlist: every document that could be among the best, given how far
rounding can carry a score. Those are scored once more in double precision, document by document, and ranked by the one
rule. The result is the same for every block size, memory limit and thread count.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.token_store import TokenVectors, as_single
from r2med.encode.vector_search import VectorHits
from r2med.errors import R2medError, require_extra
from r2med.models.devices import thread_count

MEMORY = 1 << 29
"""Working memory unless told otherwise, in bytes."""
_CACHE = 1 << 19
"""Numbers of a product: as many as stay in a processor's cache."""
_FEWEST = 256
"""Tokens of documents that a block holds at the least."""
_COLUMNS = 1024
"""Tokens of queries that a block is multiplied with at a time."""
_TOGETHER = 8
"""Rows of a product that are reduced to one at a time."""
_UNIT = 2.0**-24
"""The rounding of one operation in single precision."""


class TokenBlock(NamedTuple):
    """Documents whose vectors follow one another in a shard."""

    shard: int
    first: int
    last: int
    """The block's rows, the last not among them."""
    documents: slice
    """Which of the documents, in the order of the shards."""
    counts: NDArray[np.intp]
    """How many rows each of them has."""


@dataclass(frozen=True, eq=False)
class MaxSimIndex:
    """The token vectors of documents, ready to be searched."""

    documents: TokenVectors
    memory: int = MEMORY
    unit: bool = True
    """Whether the model gives vectors of length 1."""

    @property
    def nbytes(self) -> int:
        """The size of the vectors on disk."""
        return self.documents.nbytes

    @cached_property
    def _order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """One document for each span, in the order of the shards; and for each document its place there."""
        places = np.stack([self.documents.shard, self.documents.row])
        _, first, place = np.unique(places, axis=1, return_index=True, return_inverse=True)
        return first, place.ravel()

    def blocks(self, tokens: int) -> Iterator[TokenBlock]:
        """Blocks of whole documents with at most so many tokens, unless one document alone has more."""
        first, _ = self._order
        shard, row, count = (part[first] for part in (self.documents.shard, self.documents.row, self.documents.count))
        apart = np.flatnonzero((shard[1:] != shard[:-1]) | (row[1:] != row[:-1] + count[:-1])) + 1
        edges = np.concatenate(([0], apart, [len(first)]))
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            ends = row[start:stop] + count[start:stop]
            here = start
            while here < stop:
                fits = int(np.searchsorted(ends, row[here] + tokens, side="right"))
                last = max(here + 1, start + fits)
                begin, end = int(row[here]), int(ends[last - start - 1])
                yield TokenBlock(int(shard[here]), begin, end, slice(here, last), count[here:last])
                here = last

    def _groups(self, queries: Sequence[Vectors]) -> Iterator[slice]:
        """Queries whose scores of all documents fit the memory."""
        size = max(1, self.memory // (8 * max(1, len(self.documents))))
        for start in range(0, len(queries), size):
            yield slice(start, min(start + size, len(queries)))

    def _pass(self, queries: Sequence[Vectors]) -> NDArray[np.float32]:
        """One reading of all documents: a row a span, a column a query."""
        edges = np.cumsum([0, *map(len, queries)])[:-1]
        matcher = _Matcher(np.concatenate(queries))
        found = np.empty((len(self._order[0]), len(queries)), dtype=np.float32)

        def work(block: TokenBlock) -> None:
            rows = self.documents.shards[block.shard][block.first : block.last]
            found[block.documents] = np.add.reduceat(matcher.best(rows, block.counts), edges, axis=1)

        with single_threads() as pool:
            for _ in pool.map(work, self.blocks(max(_FEWEST, _CACHE // matcher.width))):
                pass
        if not np.isfinite(found).all():
            raise R2medError("the vectors of a document are not finite")
        return found

    def search(self, queries: Sequence[Vectors], depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """The `depth` best documents of every query, exactly; equal scores in the order of `tie_order`."""
        depth = min(depth, len(self.documents))
        places = np.empty((len(queries), depth), dtype=np.intp)
        scores = np.empty((len(queries), depth), dtype=np.float32)
        for some in self._groups(queries):
            rough = self._pass(queries[some])[self._order[1]].T
            with single_threads() as pool:
                best = pool.map(lambda query, row: self._best(query, row, depth, tie_order), queries[some], rough)
                for number, found in zip(range(some.start, some.stop), best, strict=True):
                    places[number], scores[number] = found
        return VectorHits(places, scores)

    def _best(
        self, query: Vectors, rough: NDArray[np.float32], depth: int, tie_order: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        last = np.partition(rough, len(rough) - depth)[len(rough) - depth]
        shortlist = np.flatnonzero(rough >= last - 2 * self._error(query))
        exact = rescore_tokens(query, self.documents, shortlist)
        order = np.lexsort((tie_order[shortlist], -exact))[:depth]
        return shortlist[order], exact[order]

    def _error(self, query: Vectors) -> float:
        """How far the score of a document may be off: the rounding of every term and sum, in whatever order."""
        lengths = np.sqrt((query.astype(np.float64) ** 2).sum(axis=1))
        terms = query.shape[1] + len(query) + 8
        return float(lengths.sum() * self._longest * terms * 2 * _UNIT)

    @cached_property
    def _longest(self) -> float:
        """A length that no vector of a document exceeds; rounding makes some of length 1 a little longer."""
        if self.unit:
            return 1.05
        parts = (self.documents.shards[block.shard][block.first : block.last] for block in self.blocks(1 << 14))
        return max(float(np.sqrt((as_single(part) ** 2).sum(axis=1)).max()) for part in parts) * 1.01


def rescore_tokens(query: Vectors, documents: TokenVectors, places: NDArray[np.intp]) -> NDArray[np.float32]:
    """The scores of the documents at these places for a query, in double precision until the end."""
    require_extra("torch", "torch")
    import torch

    turned = torch.from_numpy(np.ascontiguousarray(query.T, dtype=np.float64))
    scores = np.empty(len(places), dtype=np.float64)
    for number, place in enumerate(places.tolist()):
        rows = torch.from_numpy(documents.of(place).astype(np.float64))
        scores[number] = float(torch.mm(rows, turned).amax(dim=0).sum())
    return scores.astype(np.float32)


class _Matcher:
    """The tokens of queries, and the best match of each in a document, by torch, which reads half precision fast."""

    def __init__(self, queries: Vectors) -> None:
        require_extra("torch", "torch")
        import torch

        self._torch = torch
        with warnings.catch_warnings():
            # A mapped file cannot be written to, and nothing here does; torch says so once a process.
            warnings.simplefilter("ignore")
            torch.from_numpy(np.frombuffer(bytes(4), dtype=np.float32))
        parts = (queries[start : start + _COLUMNS] for start in range(0, len(queries), _COLUMNS))
        self._turned = [torch.from_numpy(np.ascontiguousarray(part.T)) for part in parts]
        self.width = min(len(queries), _COLUMNS)

    def best(self, rows: NDArray[Any], counts: NDArray[np.intp]) -> NDArray[np.float32]:
        """A row a document, a column a token of a query: the greatest product."""
        places, firsts = _in_eights(counts)
        chosen = self._torch.from_numpy(places)
        if rows.dtype == np.uint8:
            rows = as_single(rows)
        vectors = self._torch.from_numpy(rows).index_select(0, chosen).to(self._torch.float32)
        found = []
        for turned in self._turned:
            product = self._torch.mm(vectors, turned).view(-1, _TOGETHER, turned.shape[1])
            found.append(np.maximum.reduceat(product.amax(dim=1).numpy(), firsts, axis=0))
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


def _in_eights(counts: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of documents that follow one another, each document's last repeated until it has a multiple of eight.

    Beside them, which of these eights is each document's first.

    >>> [part.tolist() for part in _in_eights(np.array([2, 9]))]
    [[0, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10, 10, 10, 10], [0, 1]]
    """
    groups = -(-counts // _TOGETHER)
    firsts = np.cumsum(groups) - groups
    ends = np.cumsum(counts)
    wanted = np.repeat(ends - counts - firsts * _TOGETHER, groups * _TOGETHER) + np.arange(groups.sum() * _TOGETHER)
    return np.minimum(wanted, np.repeat(ends - 1, groups * _TOGETHER)).astype(np.int64), firsts.astype(np.int64)


@contextmanager
def single_threads() -> Iterator[ThreadPoolExecutor]:
    """Threads of which each multiplies by itself; torch has its own number of them again afterwards."""
    import torch

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(thread_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)

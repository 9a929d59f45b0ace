"""Exact late interaction: for every token of a query its best token of a document, and the sum of these.

Documents are read block by block from the mapped file, in the order in which they lie there. In the product with a
block a query token has a row, so that the tokens of a document are neighbours and their maximum is read in one go; a
block and its product stay in the processor's cache. Each thread has blocks of its own: a library that splits one small
product among threads has them wait for one another at every block.

The product in single precision draws up a shortlist: every document that could be among the best, given how far
rounding can carry a score. Those are scored once more in double precision and ranked by the one rule. The result is the
same for every block size, memory limit and thread count.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.encode.vector_search import MEMORY, VectorHits
from r2med.encode.vectors import TokenVectors, as_single, codes_and_scales
from r2med.errors import R2medError, require_extra
from r2med.models.memory import fix_rounding
from r2med.settings import thread_count

if TYPE_CHECKING:
    import torch

_BLOCK = 1024
"""Tokens of documents that a block holds: few enough that its vectors and products stay in a processor's cache."""
_ROWS = 256  # tokens of queries that are multiplied with a block at a time
_UNIT = 2.0**-24  # the rounding of one operation in single precision


class TokenBlock(NamedTuple):
    """Documents whose vectors follow one another in a shard."""

    shard: int
    first: int
    last: int  # the block's rows, the last not among them
    documents: slice  # which of the documents, in the order of the shards
    counts: NDArray[np.intp]  # how many rows each of them has


@dataclass(frozen=True, eq=False)
class MaxSimIndex:
    """The token vectors of documents, ready to be searched."""

    documents: TokenVectors
    memory: int = MEMORY
    unit: bool = True  # whether the model gives vectors of length 1

    @cached_property
    def _order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return one document for each span, in the order of the shards, and each document's place in that order."""
        places = np.stack([self.documents.shard, self.documents.row])
        _, first, place = np.unique(places, axis=1, return_index=True, return_inverse=True)
        return first, place.ravel()

    def blocks(self, tokens: int) -> Iterator[TokenBlock]:
        """Yield blocks of whole documents with at most so many tokens, unless one document alone has more."""
        first, _ = self._order
        shard, row, count = (part[first] for part in (self.documents.shard, self.documents.row, self.documents.count))
        apart = np.flatnonzero((shard[1:] != shard[:-1]) | (row[1:] != row[:-1] + count[:-1])) + 1
        for start, stop in pairwise([0, *apart.tolist(), len(first)]):
            for some in _slices(count[start:stop], tokens):
                documents = slice(start + some.start, start + some.stop)
                begin, rows = int(row[documents.start]), count[documents]
                yield TokenBlock(int(shard[start]), begin, begin + int(rows.sum()), documents, rows)

    def _pass(self, queries: Sequence[Vectors]) -> NDArray[np.float32]:
        """Score all documents in one pass: a row per query, a column per span."""
        require_extra("torch", "torch")
        fix_rounding()
        import torch

        with warnings.catch_warnings():
            # A mapped file cannot be written to, and nothing here does; torch says so once a process.
            warnings.simplefilter("ignore")
            torch.from_numpy(np.frombuffer(bytes(4), dtype=np.float32))
        edges = np.cumsum([0, *map(len, queries)])[:-1]
        rows = torch.from_numpy(np.concatenate(queries))
        tokens = [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
        scores = np.empty((len(queries), len(self._order[0])), dtype=np.float32)

        def work(block: TokenBlock) -> None:
            vectors = self.documents.shards[block.shard][block.first : block.last]
            np.add.reduceat(_best_matches(tokens, vectors, block.counts), edges, axis=0, out=scores[:, block.documents])

        with single_threads() as pool:
            deque(pool.map(work, self.blocks(_BLOCK)), maxlen=0)
        if not np.isfinite(scores).all():
            raise R2medError("the vectors of a document are not finite")
        return scores

    def search(self, queries: Sequence[Vectors], depth: int, tie_order: NDArray[np.int64]) -> VectorHits:
        """Return the `depth` best documents of every query, exactly; equal scores in the order of `tie_order`."""
        depth = min(depth, len(self.documents))
        places = np.empty((len(queries), depth), dtype=np.intp)
        scores = np.empty((len(queries), depth), dtype=np.float32)
        # Groups of queries whose scores of all documents fit the memory.
        size = max(1, self.memory // (8 * max(1, len(self.documents))))
        for start in range(0, len(queries), size):
            some = slice(start, min(start + size, len(queries)))
            rough = self._pass(queries[some])[:, self._order[1]]
            with single_threads() as pool:
                best = pool.map(lambda query, row: self._best(query, row, depth, tie_order), queries[some], rough)
                for number, ranking in zip(range(some.start, some.stop), best, strict=True):
                    places[number], scores[number] = ranking
        return VectorHits(places, scores)

    def _best(
        self, query: Vectors, rough: NDArray[np.float32], depth: int, tie_order: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        # How far a score can be off: the rounding of every term and sum, in any order.
        lengths = np.sqrt((query.astype(np.float64) ** 2).sum(axis=1))
        terms = query.shape[1] + len(query) + 8
        error = float(lengths.sum() * self._longest * terms * 2 * _UNIT)
        last = np.partition(rough, len(rough) - depth)[len(rough) - depth]
        shortlist = np.flatnonzero(rough >= last - 2 * error)
        exact = rescore_tokens(query, self.documents, shortlist)
        order = np.lexsort((tie_order[shortlist], -exact))[:depth]
        return shortlist[order], exact[order]

    @cached_property
    def _longest(self) -> float:
        """Return a length that no vector of a document exceeds; rounding makes some of length 1 a little longer."""
        if self.unit:
            return 1.05
        parts = (self.documents.shards[block.shard][block.first : block.last] for block in self.blocks(1 << 14))
        return max(float(np.sqrt((as_single(part) ** 2).sum(axis=1)).max()) for part in parts) * 1.01


def rescore_tokens(query: Vectors, documents: TokenVectors, places: NDArray[np.intp]) -> NDArray[np.float32]:
    """Score the documents at these places for a query, in double precision until the end."""
    require_extra("torch", "torch")
    fix_rounding()
    import torch

    tokens = torch.from_numpy(query.astype(np.float64))
    counts = documents.count[places]
    scores = np.empty(len(places), dtype=np.float64)
    for some in _slices(counts, _BLOCK):
        spans = [documents.of(place) for place in places[some].tolist()]
        product = torch.mm(tokens, torch.from_numpy(np.concatenate(spans, dtype=np.float64)).T)
        first = np.cumsum(counts[some]) - counts[some]
        scores[some] = np.maximum.reduceat(product.numpy(), first, axis=1).sum(axis=0)
    return scores.astype(np.float32)


def _slices(counts: NDArray[np.intp], tokens: int) -> Iterator[slice]:
    """Yield runs of documents that have at most so many tokens, unless one alone has more."""
    ends, first = np.cumsum(counts), 0
    while first < len(counts):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] - counts[first] + tokens, side="right")))
        yield slice(first, last)
        first = last


def _best_matches(tokens: Iterable[torch.Tensor], rows: NDArray[Any], counts: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the greatest product: a row per token of a query, a column per document."""
    import torch

    # As `as_single`, but torch widens half precision and bytes faster than numpy.
    codes, scales = codes_and_scales(rows) if rows.dtype == np.uint8 else (rows, None)
    vectors = torch.from_numpy(codes).to(torch.float32)
    if scales is not None:
        vectors.mul_(torch.from_numpy(scales))
    first = np.cumsum(counts) - counts
    return np.concatenate([np.maximum.reduceat(torch.mm(part, vectors.T).numpy(), first, axis=1) for part in tokens])


@contextmanager
def single_threads() -> Iterator[ThreadPoolExecutor]:
    """Open a pool of threads that each multiply alone; torch's number of threads is restored afterwards."""
    import torch

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(thread_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)

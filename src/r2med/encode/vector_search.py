"""Exact search: the best documents of every query by cosine or dot product, whatever the memory and the machine.

The last bits of a product in single precision depend on the shape of the matrices, the number of threads and the
library. So it only draws up a shortlist: every document whose score could still be among the best, given how far
rounding can carry a product of that length. Each pair on the shortlist is then scored once more in double precision,
element by element in one fixed order, and ranked by the one rule. Documents are read block by block, never held whole.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.encode.encoder import Vectors
from r2med.errors import R2medError

SIMILARITIES = ("cosine", "dot")
MEMORY = 1 << 29
"""Default working memory, in bytes."""
_FIRST = 1024  # documents of the first block, which is followed by ever larger ones
_BLOCK = 8192  # documents multiplied at a time: more does not make the product faster
_FEWEST = 64  # documents a block must hold at the least; with less memory, queries are taken in groups
_UNIT = 2.0**-24  # the rounding of one operation in single precision
_NEARLY_ONE = 1e-6  # lengths that differ from 1 by no more are not divided by
_TINY = 1e-15  # lengths below this, or beyond its inverse, are divided by in double precision
_SMALLEST = 2.0**-125  # what may be lost of a term that is too small for single precision
_GREATEST = 1e38  # scores beyond this are refused
_THREADS = max(1, min(4, os.cpu_count() or 1))
_PAIRS = 256  # pairs scored in double precision at a time


class VectorRows(Protocol):
    """Vectors that can be read in part: an array, a mapped file, rows of the vector store, a quantised index."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of vectors, and their dimension."""

    @property
    def nbytes(self) -> int:
        """Return the size of the vectors as they are held."""

    def __getitem__(self, places: slice | NDArray[np.intp], /) -> Vectors:
        """Return the vectors at these places, in single precision."""


class VectorHits(NamedTuple):
    """Best documents of each query, best first, the same number for every query."""

    places: NDArray[np.intp]  # positions of the documents, a row per query
    scores: NDArray[np.float32]  # their scores


@dataclass(frozen=True)
class Similarity:
    """Similarity of vectors, and the memory that a search may use."""

    name: str = "cosine"
    memory: int = MEMORY
    block: int = 0  # documents multiplied at a time; 0 for as many as are good for the memory

    def __post_init__(self) -> None:
        if self.name not in SIMILARITIES:
            raise R2medError(f"unknown similarity {self.name!r}; known: {', '.join(SIMILARITIES)}")


def search(
    queries: Vectors, documents: VectorRows, depth: int, tie_order: NDArray[np.int64], how: Similarity | None = None
) -> VectorHits:
    """Return the `depth` best documents of every query, exactly; equal scores in the order of `tie_order`.

    >>> documents = np.array([[1, 0], [0, 1], [2, 0]], dtype=np.float32)
    >>> hits = search(np.array([[3, 1]], dtype=np.float32), documents, 2, np.array([0, 1, 2]))
    >>> hits.places.tolist(), [round(score, 3) for score in hits.scores[0].tolist()]
    ([[0, 2]], [0.949, 0.949])
    """
    how = how or Similarity()
    count, dimension = documents.shape
    if queries.shape[1] != dimension:
        raise R2medError(f"queries of {queries.shape[1]} dimensions cannot be compared with documents of {dimension}")
    if not np.isfinite(queries).all():
        raise R2medError(f"the vector of query {int(np.isfinite(queries).all(axis=1).argmin())} is not finite")
    depth = min(depth, count)
    places = np.empty((len(queries), depth), dtype=np.intp)
    scores = np.empty((len(queries), depth), dtype=np.float32)
    if depth > 0:
        # As many queries at once as leave half of the memory to a small block of scores.
        group = max(1, min(len(queries), how.memory // (2 * _FEWEST * _BYTES_A_SCORE)))
        for start in range(0, len(queries), group):
            some = slice(start, start + group)
            places[some], scores[some] = _Shortlist(queries[some], documents, depth, tie_order, how).best()
    return VectorHits(places, scores)


def rescore(
    queries: Vectors, documents: VectorRows, candidates: NDArray[np.intp], tie_order: NDArray[np.int64], similarity: str
) -> VectorHits:
    """Rank the given candidates of every query (a row each) by their score in double precision."""
    rows, width = candidates.shape
    places = candidates.ravel()
    owners = np.repeat(np.arange(rows), width)
    scores = _scored(queries.astype(np.float64), documents, owners, places, similarity)
    order = np.lexsort((tie_order[places], _descending(owners, scores)))
    return VectorHits(places[order].reshape(rows, width), scores[order].reshape(rows, width))


_BYTES_A_SCORE = 4 + 1 + 24  # the score, whether it passes, and its place on the shortlist if it does


class _Candidates(NamedTuple):
    """Candidates of a block of documents, and what raises the bar for the next."""

    owners: NDArray[np.intp]
    places: NDArray[np.intp]
    scores: NDArray[np.float32]
    last: NDArray[np.float32]
    longest: float


class _Shortlist:
    """Candidates that may yet be among the best of a group of queries, as columns of query, document and score.

    Blocks are read by a few threads, for all but the matrix product runs on one core. A thread may see the bar as it
    was some blocks ago: a lower bar lets more through and loses nothing.
    """

    def __init__(
        self, queries: Vectors, documents: VectorRows, depth: int, tie_order: NDArray[np.int64], how: Similarity
    ) -> None:
        self.documents, self.depth, self.tie_order, self.how = documents, depth, tie_order, how
        self.exact = queries.astype(np.float64)
        lengths = np.sqrt((self.exact * self.exact).sum(axis=1))
        cosine = how.name == "cosine"
        scale = np.where(lengths > 0, lengths, 1.0) if cosine else np.ones(len(queries))
        self.turned = np.ascontiguousarray((self.exact / scale[:, None]).astype(np.float32).T)
        # How far a product in single precision can be from the true one, for documents of length 1: the rounding of
        # the query, of every term and sum in whatever order, of the document's own length, and of the final score.
        terms = queries.shape[1]
        self.error = ((2 * terms + 16) * _UNIT * 1.01 + _NEARLY_ONE) * (1.0 if cosine else lengths)
        self.least = terms * _SMALLEST
        self.reach = float(lengths.max(initial=0.0))
        self.longest = 1.0 if cosine else 0.0
        self.last = np.full(len(queries), -np.inf, dtype=np.float32)
        self.owners, self.places = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        self.scores = np.empty(0, dtype=np.float32)
        self.shortest = 0

    def best(self) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Read all documents and rank the candidates."""
        count, dimension = self.documents.shape
        bytes_a_document = (len(self.exact) * _BYTES_A_SCORE + 8 * dimension) * _THREADS
        fitting = int(np.clip(self.how.memory // bytes_a_document, _FEWEST, _BLOCK))
        most = min(self.how.block or fitting, count)
        waiting: deque[Future[_Candidates]] = deque()
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            # Small blocks first: they set a bar that keeps most of the next one off the list.
            start, width = 0, min(most, max(_FIRST, 2 * self.depth))
            while start < count:
                waiting.append(pool.submit(self._read, start, min(start + width, count), self.last, self.longest))
                start, width = start + width, min(most, 2 * width)
                if len(waiting) > _THREADS:
                    self._add(waiting.popleft().result())
            for future in waiting:
                self._add(future.result())
            self._shorten()
            self._settle(pool)
        return self.places.reshape(-1, self.depth), self.scores.reshape(-1, self.depth)

    def _read(self, start: int, stop: int, last: NDArray[np.float32], longest: float) -> _Candidates:
        """Return the candidates of a block, by the bar at the time the block was submitted."""
        block, length = self._multiply(self.documents[start:stop], start)
        longest = max(longest, length)
        if len(block) >= self.depth and not np.isfinite(last).any():
            last = np.partition(block.T, len(block) - self.depth, axis=1)[:, len(block) - self.depth]
        passing = np.flatnonzero(block >= self._bar(last, longest))
        rows, owners = np.divmod(passing, block.shape[1])
        return _Candidates(owners, start + rows, block.ravel()[passing], last, longest)

    def _multiply(self, rows: Vectors, start: int) -> tuple[NDArray[np.float32], float]:
        """Return similarities, a row per document, and the greatest length for the error bound."""
        with np.errstate(over="ignore"):
            lengths = np.sqrt(np.vecdot(rows, rows))
        shortest, longest = float(lengths.min()), float(lengths.max())
        if not np.isfinite(longest) and not (finite := np.isfinite(rows).all(axis=1)).all():
            raise R2medError(f"the vector of document {start + int(finite.argmin())} is not finite")
        if self.how.name == "dot":
            if longest * self.reach > _GREATEST:
                raise R2medError("dot products of vectors this long do not fit single precision; use cosine")
            return rows @ self.turned, longest
        # Squares of very great and very small lengths leave single precision.
        extreme = not _TINY < shortest <= longest < 1 / _TINY
        block = (unit(rows) if extreme else rows) @ self.turned
        if not extreme and max(longest - 1, 1 - shortest) > _NEARLY_ONE / 2:
            block /= lengths[:, None]
        return block, 1.0

    def _bar(self, last: NDArray[np.float32], longest: float) -> NDArray[np.float32]:
        """Return the last of the best minus twice the error of a score of documents that are at most so long."""
        bar = (last - 2 * (self.error * longest + self.least)).astype(np.float32)
        return np.nextafter(bar, np.float32(-np.inf))  # type: ignore[no-any-return]  # of single precision

    def _add(self, block: _Candidates) -> None:
        """Add a block's candidates to the list, and shorten the list whenever it has doubled."""
        self.longest = max(self.longest, block.longest)
        self.last = np.maximum(self.last, block.last)
        self.owners = np.concatenate((self.owners, block.owners))
        self.places = np.concatenate((self.places, block.places))
        self.scores = np.concatenate((self.scores, block.scores))
        if len(self.owners) > 2 * self.shortest + 2 * self.depth * len(self.exact):
            self._shorten()
            if len(self.owners) > max(self.how.memory // (4 * _BYTES_A_SCORE), 2 * self.depth * len(self.exact)):
                self._settle()
            self.shortest = len(self.owners)

    def _shorten(self) -> None:
        """Raise the bar to the scores seen so far and drop what lies below."""
        keys = np.sort(_descending(self.owners, self.scores))
        edges = np.searchsorted(keys, np.arange(len(self.exact) + 1, dtype=np.uint64) << np.uint64(32))
        enough = edges[1:] - edges[:-1] >= self.depth
        last = self.last.copy()
        falling = keys[edges[:-1][enough] + self.depth - 1].astype(np.uint32)
        sign = np.uint32(1 << 31)
        last[enough] = np.where(falling & sign, falling, ~falling & ~sign).astype(np.uint32).view(np.float32)
        self.last = last
        self._keep(np.flatnonzero(self.scores >= self._bar(last, self.longest)[self.owners]))

    def _settle(self, pool: Executor | None = None) -> None:
        """Score the list in double precision and keep only each query's best, to which no later document can add."""
        self._keep(np.argsort(self.owners, kind="stable"))
        self.scores = _scored(self.exact, self.documents, self.owners, self.places, self.how.name, pool)
        order = np.lexsort((self.tie_order[self.places], _descending(self.owners, self.scores)))
        owners = self.owners[order]
        rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
        self._keep(order[rank < self.depth])

    def _keep(self, kept: NDArray[np.intp]) -> None:
        self.owners, self.places, self.scores = self.owners[kept], self.places[kept], self.scores[kept]


def _descending(owners: NDArray[np.intp], scores: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return a whole number per pair that sorts by query, then by score descending; numpy sorts columns slowly."""
    bits = (scores + np.float32(0)).view(np.uint32)  # adding zero makes one zero of two
    sign = np.uint32(1 << 31)
    falling = np.where(bits & sign, bits, ~(bits | sign))
    return (owners.astype(np.uint64) << np.uint64(32)) | falling


def unit(rows: Vectors) -> Vectors:
    """Scale rows to length 1, in double precision until the end; rows of zeros stay."""
    exact = rows.astype(np.float64)
    lengths = np.sqrt((exact * exact).sum(axis=1, keepdims=True))
    return (exact / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def _scored(
    queries: NDArray[np.float64],
    documents: VectorRows,
    owners: NDArray[np.intp],
    places: NDArray[np.intp],
    similarity: str,
    pool: Executor | None = None,
) -> NDArray[np.float32]:
    """Score each pair in double precision and in one order, so that no other pair and no thread can change it.

    numpy multiplies element by element and sums each row by itself; a BLAS call here would undo that.
    """
    lengths = np.sqrt((queries * queries).sum(axis=1))
    scores = np.empty(len(owners), dtype=np.float64)

    def score(some: slice) -> None:
        owner = owners[some.start]
        rows = documents[places[some]].astype(np.float64)
        products = (rows * queries[owner]).sum(axis=1)
        if similarity == "cosine":
            np.multiply(rows, rows, out=rows)
            both = np.sqrt(rows.sum(axis=1)) * lengths[owner]
            products = np.divide(products, both, out=np.zeros_like(products), where=both > 0)
        scores[some] = products

    edges = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    starts = ((start, last) for first, last in pairwise(edges) for start in range(first, last, _PAIRS))
    spans = (slice(start, min(start + _PAIRS, last)) for start, last in starts)
    deque((pool.map if pool else map)(score, spans), maxlen=0)
    return scores.astype(np.float32)

"""BM25 search done elsewhere: a block is a range of documents and some queries, and the best of all ranges are merged.

A document's score depends on the document, the query and figures of the whole collection (how many documents have a
term, how long they are on average), never on the other documents that are looked at with it. So the best of the ranges'
best are the best, with the scores that one process gives, bit for bit.

The index is mapped on every host from the one folder: a range of documents is a stretch of every term's postings, and
what others work on is not read. The index of a collection may so be larger than the memory of any host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from r2med.data.run import top
from r2med.engine.kept_results import results_in_order
from r2med.engine.work_blocks import Spread, SpreadJob, WorkBlock, block_key, packed_columns, unpacked_columns
from r2med.errors import R2medError
from r2med.pipeline.engine import Engine
from r2med.retrieve.bm25_scorer import Scorer
from r2med.retrieve.inverted_index import DamagedIndex, InvertedIndex, Postings
from r2med.retrieve.postings_search import BestDocuments, Weights
from r2med.text.portions import by_size

_RANGE = 1 << 20
"""Documents of a block: their stretch of the index and the sums of a few queries fit the memory of a small host."""
_POSTINGS = 500_000_000
"""Postings that the queries of a block look at: seconds of work, and what is lost when a worker dies."""
_LEAST = 4
"""Work of fewer blocks is done here: to start workers would take as long."""
_TERMS_KEPT = 64


@dataclass(frozen=True)
class IndexRange(InvertedIndex):
    """The documents of an index from one place to another, numbered from 0; the terms are those of the whole."""

    start: int = 0

    @classmethod
    def of(cls, index: InvertedIndex, start: int, stop: int) -> IndexRange:
        """A stretch of an index; nothing is copied."""
        span = slice(start, stop)
        columns = (index.offsets, index.documents, index.values, index.lengths[span], index.ties[span])
        return cls(index.terms, *columns, start=start)

    def postings(self, number: int) -> Postings:
        """The postings of a term within the range; terms that many queries have are cut out once."""
        return self._cut(number)

    def gathered(self, numbers: Sequence[int]) -> tuple[NDArray[np.int64], Postings]:
        """How many postings each of some terms has within the range, and the postings, end to end."""
        every = [self.postings(number) for number in numbers]
        counts = np.array([len(postings.documents) for postings in every], dtype=np.int64)
        documents, values = (np.concatenate(column) for column in zip(*every, strict=True))
        return counts, Postings(documents, values)

    @cached_property
    def _cut(self) -> Callable[[int], Postings]:
        @lru_cache(_TERMS_KEPT)
        def cut(number: int) -> Postings:
            documents, values = InvertedIndex.postings(self, number)
            first, last = np.searchsorted(documents, (self.start, self.start + len(self.lengths)))
            mine = documents[first:last]
            return Postings(mine - mine.dtype.type(self.start) if self.start else mine, values[first:last])

        return cut


@dataclass(frozen=True)
class RangeScorer(Scorer):
    """Scores documents of a range as members of the whole collection."""

    whole: InvertedIndex

    @property
    def collection_size(self) -> int:
        """That of the whole collection."""
        return len(self.whole.lengths)

    @cached_property
    def average_length(self) -> float:
        """That of the whole collection."""
        return self.whole.average_length


@dataclass(frozen=True)
class SearchWorker:
    """Searches ranges of an index, wherever it was sent to."""

    folder: str
    """Where the index is, for every host."""
    k1: float
    b: float
    depth: int

    @cached_property
    def _index(self) -> InvertedIndex:
        try:
            return InvertedIndex.mapped(Path(self.folder))
        except DamagedIndex as error:
            raise R2medError(f"a worker cannot read the index: {error}; do all hosts see R2MED_HOME?") from error

    def load(self) -> None:
        """Map the index."""
        self._index  # noqa: B018 - this maps it

    def run(self, payload: bytes) -> bytes:
        """The best documents of a block's range, for each of its queries."""
        asked = orjson.loads(payload)
        start, stop = asked["range"]
        scorer = RangeScorer(IndexRange.of(self._index, start, stop), self.k1, self.b, self._index)
        queries = [dict(zip(numbers, weights, strict=True)) for numbers, weights in asked["queries"]]
        hidden = [place - start if start <= place < stop else -1 for place in asked["hidden"]]
        found = list(scorer.best(queries, self.depth, hidden))
        counts = np.array([len(best.places) for best in found], dtype=np.int64)
        places = np.concatenate([best.places for best in found]).astype(np.int64) + start
        return packed_columns(counts, places, np.concatenate([best.scores for best in found]))


@dataclass(frozen=True)
class SpreadSearch:
    """A search whose blocks are done by others."""

    worker: SearchWorker
    scorer: Scorer
    spread: Spread
    engine: Engine

    def worth_it(self, queries: Sequence[Weights]) -> bool:
        """Whether there is so much to look at that several are faster than one, and all of them see the index."""
        return self.spread.shares_home and sum(map(self._cost, queries)) >= _LEAST * _POSTINGS

    def best(self, queries: Sequence[Weights], hidden: Sequence[int]) -> list[BestDocuments]:
        """Each query's best documents, those that `PostingsScorer.best` finds."""
        found = [BestDocuments(np.empty(0, dtype=np.intp), np.empty(0))] * len(queries)
        blocks = list(self._blocks(queries, hidden))
        job = SpreadJob("search bm25", self.worker, keeps=True)
        with self.engine.progress("search", len(blocks)) as bar:
            results = results_in_order(self.spread, job, blocks, lambda _: bar.advance())
            for places, result in results:
                for query, best in zip(places, _lists(result), strict=True):
                    found[query] = self._merged(found[query], best)
        return found

    def _merged(self, one: BestDocuments, other: BestDocuments) -> BestDocuments:
        places, scores = (np.concatenate(columns) for columns in zip(one, other, strict=True))
        chosen = top(scores, self.worker.depth, self.scorer.index.ties[places])
        return BestDocuments(places[chosen], scores[chosen])

    def _cost(self, weights: Weights) -> int:
        """How many postings a query looks at."""
        return sum(map(self.scorer.holding, weights))

    def _blocks(self, queries: Sequence[Weights], hidden: Sequence[int]) -> Iterator[WorkBlock]:
        """Range by range, so that blocks which follow each other read the same part of the index."""
        total = len(self.scorer.index.lengths)
        costs = [self._cost(weights) for weights in queries]
        for start in range(0, total, _RANGE):
            stop = min(start + _RANGE, total)
            for places in by_size(range(len(queries)), costs.__getitem__, _POSTINGS * total // (stop - start)):
                yield self._block((start, stop), places, queries, hidden)

    def _block(
        self, span: tuple[int, int], places: list[int], queries: Sequence[Weights], hidden: Sequence[int]
    ) -> WorkBlock:
        columns = [[list(queries[place]), list(queries[place].values())] for place in places]
        asked = {"range": span, "queries": columns, "hidden": [hidden[place] for place in places]}
        payload, worker = orjson.dumps(asked), self.worker
        settings = orjson.dumps([worker.k1, worker.b, worker.depth])
        return WorkBlock(block_key(b"search", Path(worker.folder).name.encode(), settings, payload), payload, places)


def _lists(result: bytes) -> Iterator[BestDocuments]:
    counts, places, scores = unpacked_columns(result)
    ends = np.cumsum(counts)
    for start, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
        yield BestDocuments(places[start:end].astype(np.intp), scores[start:end])

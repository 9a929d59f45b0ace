"""BM25 in the two forms that are published under that name, exact and with every tie broken by the one rule."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from r2med.data.run import Ranking, Run
from r2med.errors import SpecError
from r2med.lexical.analyzer import ANALYZER, ANALYZER_VERSION, analyze
from r2med.lexical.builder import write_index
from r2med.lexical.index import FORMAT, InvertedIndex
from r2med.lexical.scorers import Scorer
from r2med.lexical.search import BestDocuments, Weights
from r2med.pipeline.joins import query_copies, search_texts
from r2med.pipeline.stage import Context, Retriever
from r2med.settings import thread_count
from r2med.store.hashes import cache_key

if TYPE_CHECKING:
    from pathlib import Path

    from r2med.data.dataset import Collection, Texts
    from r2med.pipeline.spec import Call


def index_key(documents: Texts) -> str:
    """Return the cache key of the index of some documents: all that it depends on."""
    return cache_key(documents=documents.fingerprint, analyzer=(ANALYZER, ANALYZER_VERSION), format=FORMAT)


def open_index(documents: Texts, context: Context) -> InvertedIndex:
    """Open the index of some documents from the cache, or build it; a damaged one is built again."""
    key = index_key(documents)

    def build(folder: Path) -> None:
        with context.executor.progress("indexing", len(documents)) as bar:
            write_index(documents, folder, context.executor.memory, bar.advance, thread_count())

    return InvertedIndex.mapped(context.cache.sound_entry("bm25", key, build))


@dataclass(frozen=True)
class _BM25(Retriever):
    """Base of both forms of BM25: everything but the weight of a query's terms."""

    k1: float = 0.9  # how slowly a further occurrence of a term stops counting; 0 counts presence only
    b: float = 0.4  # how much a long document is held back: 0 not at all, 1 fully
    depth: int = 100  # how many documents are kept
    drop_self: bool | None = None
    """Whether the document whose id is the query's own is left out; None leaves it to the task."""
    join: str = ""  # how generated texts join the query: replace, concat, "repeat(n)"; empty for the published way

    name: ClassVar[str]
    weighting: ClassVar[str]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.k1) and self.k1 >= 0):
            raise SpecError(f"{self.name}: k1 must be 0 or more, not {self.k1}")
        if not 0 <= self.b <= 1:
            raise SpecError(f"{self.name}: b must lie between 0 and 1, not {self.b}")
        if self.depth < 1:
            raise SpecError(f"{self.name}: depth must be 1 or more, not {self.depth}")
        if self.join:
            query_copies(self.join)

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language."""
        from r2med.pipeline.registry import spec_of  # which a search does without

        return spec_of(self, self.name)

    def fingerprint(self) -> Mapping[str, object]:
        """Return the analyzer, which decides what a term is."""
        return {"analyzer": ANALYZER, "analyzer_version": ANALYZER_VERSION}

    def describe(self) -> Mapping[str, object]:
        """Return every setting, with the analyzer and the query weighting, which tell this BM25 from others."""
        weighting = {"analyzer": ANALYZER, "query weighting": self.weighting, "k1": self.k1, "b": self.b}
        return weighting | {"depth": self.depth, "drop_self": self.self_rule, "join": self.join or "as published"}

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Report whether the index is cached, for a plan."""
        to_build = f"to build, of {len(collection.documents):,} documents"
        return {"index": "in the cache" if self.is_ready(collection, context) else to_build}

    def is_ready(self, collection: Collection, context: Context) -> bool:
        """Return whether the index is cached."""
        return context.cache.has("bm25", index_key(collection.documents))

    @abstractmethod
    def weigh(self, counts: Mapping[int, int], scorer: Scorer) -> Weights:
        """Return the weights of a query's terms, from their frequencies in the query."""

    def retrieve(self, collection: Collection, context: Context) -> Run:
        """Return each query's best documents; those that share no term with it are left out."""
        with context.timed("index"):
            index = open_index(collection.documents, context)
            scorer = Scorer(index, self.k1, self.b)
        context.notes.facts |= {
            "analyzer": f"{ANALYZER} {ANALYZER_VERSION}",
            "query_weighting": self.weighting,
            "vocabulary": len(index.terms),
            "average_length": index.average_length,
        }
        number = cache(index.number)  # queries share most of their terms
        texts = search_texts(collection, self.join) if collection.generations else collection.queries.texts
        queries = [self.weigh(_known_terms(text, number), scorer) for text in texts]
        silent = sum(not weights for weights in queries)
        if silent:
            context.warn(f"{silent} of {len(queries)} queries share no term with any document and find nothing")
        hidden = hidden_places(self, collection, context)
        return Run.from_ranked(dict(named(collection, scorer.best(queries, self.depth, hidden, thread_count()))))


def hidden_places(stage: Retriever, collection: Collection, context: Context) -> list[int]:
    """Return the place of the document that each query's list leaves out, -1 for none."""
    copies = stage.drop_copies(collection, context)
    position = collection.documents.position if copies else {}
    return [position[query] if query in copies else -1 for query in collection.queries.ids]


def named(collection: Collection, results: Iterable[BestDocuments]) -> Iterator[tuple[str, Ranking]]:
    """Yield the list of each query, by its id."""
    ids = collection.documents.ids
    for name, best in zip(collection.queries.ids, results, strict=True):
        yield name, Ranking([ids[place] for place in best.places.tolist()], best.scores)


def _known_terms(text: str, number: Callable[[str], int]) -> dict[int, int]:
    """Count each term of the vocabulary in a text, by its number; terms without one have a number below zero."""
    numbers = {number(term): count for term, count in Counter(analyze(text)).items()}
    return {place: count for place, count in sorted(numbers.items()) if place >= 0}


class BM25(_BM25):
    """BM25 as in the benchmark's published baseline: the query is weighted by BM25 as if it were a document.

    >>> str(BM25(k1=1.2)), BM25().describe()["query weighting"]
    ('bm25(k1=1.2)', 'query-side BM25')
    """

    name = "bm25"
    weighting = "query-side BM25"

    def weigh(self, counts: Mapping[int, int], scorer: Scorer) -> Weights:
        """Return the BM25 weights that a document of these terms alone would have."""
        if not counts:
            return {}
        damping = scorer.damping(sum(counts.values()))
        return {number: scorer.idf(number) * (count / (count + damping)) for number, count in counts.items()}


class BM25Classic(_BM25):
    """BM25 as Lucene and most engines have it: a query's term counts by its frequency.

    >>> str(BM25Classic()), BM25Classic().describe()["query weighting"]
    ('bm25-classic', 'term frequency')
    """

    name = "bm25-classic"
    weighting = "term frequency"

    def weigh(self, counts: Mapping[int, int], scorer: Scorer) -> Weights:
        """Return the counts themselves."""
        return {number: float(count) for number, count in counts.items()}

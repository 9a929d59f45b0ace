"""Signals of query difficulty, from a query's text and the lists of a cheap system, without judgements.

The predictors of the literature are here in the form that any retriever's scores allow: if a formula has the score of
the whole collection, which only a few engines know, the mean of the list's own scores replaces it.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r2med.data.dataset import Collection
from r2med.data.run import Ranking, Run
from r2med.errors import SpecError
from r2med.lexical.analyzer import ANALYZER, ANALYZER_VERSION, analyze
from r2med.lexical.index import InvertedIndex
from r2med.pipeline.registry import NamedStage, build_system
from r2med.pipeline.stage import Context, Signal
from r2med.pipeline.system import System
from r2med.retrieve.bm25 import open_index

Values = NDArray[np.float64]


class NamedSignal(NamedStage, Signal):
    """Base of r2med's own signals: a dataclass with a name."""

    def __post_init__(self) -> None:
        depth = getattr(self, "depth", 1)
        if depth < 1:
            raise SpecError(f"{self.name}: depth must be 1 or more, not {depth}")

    def describe(self) -> Mapping[str, object]:
        """Return the hard end of its scale."""
        return {"harder": self.harder}


class ScoreSignal(NamedSignal):
    """A signal of the scores of one list."""

    def values(self, collection: Collection, run: Run, context: Context) -> Values:
        """Compute the signal of each query; NaN for an empty list."""
        scores = [np.asarray(run[query].scores, dtype=np.float64) for query in collection.queries.ids]
        rows = zip(scores, collection.queries.texts, strict=True)
        return np.array([self.of(row, text) if len(row) else math.nan for row, text in rows], dtype=np.float64)

    @abstractmethod
    def of(self, scores: Values, query: str) -> float:
        """Return the signal of the scores, best first, of a list with at least one document."""


@dataclass(frozen=True)
class TopScore(ScoreSignal):
    """The score of the first document.

    >>> TopScore().of(np.array([7.0, 5.0]), "")
    7.0
    """

    name = "top-score"

    def of(self, scores: Values, query: str) -> float:
        """Return the best score."""
        return float(scores[0])


@dataclass(frozen=True)
class ScoreGap(ScoreSignal):
    """Lead of the first document over the second, as a share of its score.

    >>> ScoreGap().of(np.array([8.0, 6.0, 1.0]), "")
    0.25
    """

    name = "score-gap"

    def of(self, scores: Values, query: str) -> float:
        """Return the lead; 1 for a single document."""
        if len(scores) < 2:
            return 1.0
        return float((scores[0] - scores[1]) / abs(scores[0])) if scores[0] else 0.0


@dataclass(frozen=True)
class NQC(ScoreSignal):
    """Normalised query commitment: the spread of the scores over their mean (Shtok and others, 2012).

    >>> NQC().of(np.array([3.0, 1.0]), "")
    0.5
    """

    name = "nqc"

    depth: int = 100  # how many of the best documents are looked at

    def of(self, scores: Values, query: str) -> float:
        """Return the standard deviation of the best scores, over the absolute value of their mean."""
        best = scores[: self.depth]
        return float(best.std() / max(abs(best.mean()), 1e-12))


@dataclass(frozen=True)
class WIG(ScoreSignal):
    """Weighted information gain: the lead of the best documents over the list's mean (Zhou and Croft, 2007).

    >>> WIG(depth=1).of(np.array([4.0, 2.0]), "one two three four")
    0.5
    """

    name = "wig"

    depth: int = 5  # how many of the best documents are looked at

    def of(self, scores: Values, query: str) -> float:
        """Return the mean of the best less that of all, over the root of the query's length."""
        return float((scores[: self.depth].mean() - scores.mean()) / math.sqrt(max(1, len(query.split()))))


class TextSignal(NamedSignal):
    """A signal of the queries alone, before any search, so that a plan knows which are sent on."""

    @abstractmethod
    def of_queries(self, collection: Collection) -> Values:
        """Compute the signal of each query."""

    def values(self, collection: Collection, run: Run, context: Context) -> Values:
        """Compute the signal of each query, whatever the lists are."""
        return self.of_queries(collection)


@dataclass(frozen=True)
class QueryLength(TextSignal):
    """Number of words of the query; long ones count as hard."""

    name = "query-length"
    harder = "high"

    def of_queries(self, collection: Collection) -> Values:
        """Return the number of words of each query."""
        return np.array([len(text.split()) for text in collection.queries.texts], dtype=np.float64)


@dataclass(frozen=True)
class Random(TextSignal):
    """Random baseline that any other signal has to beat."""

    name = "random"

    seed: int = 0  # another seed is another draw

    def of_queries(self, collection: Collection) -> Values:
        """Return a number that depends on the query's id and the seed alone."""
        digests = (hashlib.sha256(f"{self.seed}\t{query}".encode()).digest() for query in collection.queries.ids)
        return np.array([int.from_bytes(digest[:6], "big") / 2**48 for digest in digests])


@dataclass(frozen=True)
class ListAgreement(NamedSignal):
    """Agreement with another system: the share of the best documents that both lists have."""

    name = "agreement"

    system: System
    depth: int = 10  # how many of the best documents are looked at

    def __post_init__(self) -> None:
        object.__setattr__(self, "system", build_system(self.system))
        self.system.check()
        super().__post_init__()

    def values(self, collection: Collection, run: Run, context: Context) -> Values:
        """Return the share for each query; NaN if either list is empty."""
        other = self.system.run(collection, context)
        return np.array([shared(run[query], other[query], self.depth) for query in collection.queries.ids])


def shared(one: Ranking, other: Ranking, depth: int) -> float:
    """Return the share of two lists' best documents that both have.

    >>> shared(Ranking(["a", "b"], np.zeros(2)), Ranking(["b", "c"], np.zeros(2)), 2)
    0.5
    """
    ours, theirs = set(one.documents[:depth]), set(other.documents[:depth])
    return len(ours & theirs) / max(len(ours), len(theirs)) if ours and theirs else math.nan


@dataclass(frozen=True)
class Clarity(NamedSignal):
    """Distance of the words of the best documents from those of the collection (Cronen-Townsend and others, 2002).

    The relative entropy of the two, in bits; each of the best documents counts the same.
    """

    name = "clarity"

    depth: int = 10  # how many of the best documents are looked at

    def fingerprint(self) -> Mapping[str, object]:
        """Return the analyzer, which decides what a term is."""
        return {"analyzer": ANALYZER, "analyzer_version": ANALYZER_VERSION}

    def values(self, collection: Collection, run: Run, context: Context) -> Values:
        """Return the entropy for each query; NaN if nothing was found."""
        with context.timed("index"):
            index = open_index(collection.documents, context)
        best = (run[query].documents[: self.depth] for query in collection.queries.ids)
        text = collection.documents.text
        return np.array([relative_entropy([analyze(text(name)) for name in names], index) for names in best])


def relative_entropy(documents: Sequence[Sequence[str]], index: InvertedIndex) -> float:
    """Compute the relative entropy, in bits, of the mean of some documents' words against a whole collection's."""
    spoken = [terms for terms in documents if terms]
    if not spoken:
        return math.nan
    model: defaultdict[str, float] = defaultdict(float)
    for terms in spoken:
        for term, count in Counter(terms).items():
            model[term] += count / len(terms) / len(spoken)
    total = int(index.lengths.sum(dtype=np.int64))
    common = {term: int(index.postings(index.number(term)).values.sum(dtype=np.int64)) for term in model}
    return float(sum(share * math.log2(share * total / common[term]) for term, share in model.items()))

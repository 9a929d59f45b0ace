"""The reasoning gap, measured: how far the words of a query are from its documents, and how near the answer's are.

Its ceiling is the score of a search with the gold answer; a system is placed between plain search and that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from r2med.data.dataset import Dataset, Texts
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.errors import R2medError
from r2med.expand.methods import OracleAnswer
from r2med.lexical.analyzer import analyze
from r2med.lexical.index import InvertedIndex
from r2med.lexical.scorers import Scorer
from r2med.measure.bootstrap import percentile_ends, resampled_means, task_intervals
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.score import positive
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.loaded_runs import HEADLINE
from r2med.pipeline.stage import Context, Retriever
from r2med.pipeline.system import System
from r2med.retrieve.bm25 import open_index
from r2med.retrieve.dense import ENCODER, Floats, dense_of, unit_rows
from r2med.runs.ledger import Entry
from r2med.store.cache import Cache


def bare(system: System) -> System:
    """Return the retriever alone, without expanders before it and rerankers after it, inside a fusion too.

    >>> str(bare(System.parse("oracle-answer >> rrf(replay >> bm25, bm25-classic(k1=2))")))
    'rrf(bm25, bm25-classic(k1=2))'
    """
    # A fusion takes its systems one by one, so that it cannot be built anew by the names of its fields.
    stage = copy.copy(system.retriever)
    for name, value in vars(system.retriever).items():
        if isinstance(value, System):
            object.__setattr__(stage, name, bare(value))
        elif isinstance(value, tuple) and value and isinstance(value[0], System):
            object.__setattr__(stage, name, tuple(map(bare, value)))
    return System((stage,))


def with_answer(system: System) -> System:
    """Return the system's retriever searching with the gold answer, joined as it joins any generated text.

    >>> str(with_answer(System.parse("replay >> bm25(k1=2)")))
    'oracle-answer >> bm25(k1=2)'
    """
    return OracleAnswer() >> bare(system)


def searches(system: System) -> bool:
    """Return whether the retriever depends on the query at all; stored lists do not."""
    return all(stage.searches for stage in bare(system).walk() if isinstance(stage, Retriever))


def measure(system: System, dataset: Dataset, executor: Executor | None = None) -> Entry:
    """Return a system's result on a dataset, from the ledger or evaluated now and kept there."""
    report = evaluate(system, dataset, Options(executor=executor or quiet())).whole()
    if report.failures:
        raise R2medError(report.failures[0].message)
    return report.results[0]


class Rarity:
    """The idf of terms in a collection: that of BM25, from the same cached index.

    >>> rarity = Rarity.of(Texts(["a", "b"], ["scurvy and gums", "gums bleed"]))
    >>> rarity.idf("scurvi") > rarity.idf("gum") > 0
    True
    >>> rarity.coverage("gums?", "Gums bleed."), rarity.coverage("the", "gums")
    (1.0, None)
    """

    def __init__(self, index: InvertedIndex) -> None:
        self.index = index
        self._scorer = Scorer(index, 0.9, 0.4)
        self._idf: dict[str, float] = {}

    @classmethod
    def of(cls, documents: Texts, executor: Executor | None = None) -> Rarity:
        """Return the rarity of terms among some documents; their index is built if it is missing."""
        return cls(open_index(documents, Context(Cache.default(), executor or quiet())))

    def idf(self, term: str) -> float:
        """Return the idf of a term; one that no document holds is rarer than all others."""
        if term not in self._idf:
            number = self.index.number(term)
            unheard = math.log(len(self.index.lengths) + 1.0) - math.log(0.5)
            self._idf[term] = self._scorer.idf(number) if number >= 0 else unheard
        return self._idf[term]

    def weight(self, terms: Iterable[str]) -> float:
        """Return the sum of the idf of different terms."""
        return math.fsum(self.idf(term) for term in set(terms))

    @staticmethod
    def terms(text: str) -> frozenset[str]:
        """Return the different terms of a text."""
        return frozenset(analyze(text))

    def share(self, terms: Set[str], others: Set[str]) -> float | None:
        """Return the share of the terms' weight that is among the others, from 0 to 1; None if there are no terms."""
        whole = self.weight(terms)
        return min(1.0, self.weight(terms & others) / whole) if whole > 0 else None

    def coverage(self, text: str, other: str) -> float | None:
        """Return the share of a text's weight whose terms stand in the other; None for a text without terms."""
        return self.share(self.terms(text), self.terms(other))


PAIRS: Mapping[str, str] = {
    "query-positive": "the query's words in its relevant documents",
    "answer-positive": "the gold answer's words in the query's relevant documents",
    "query-answer": "the gold answer's words in the query",
    "query-other": "the query's words in documents relevant to other queries: chance",
}
"""What is compared: of which text how much stands in which other."""
Nearness = Mapping[str, Figure]  # pair to its mean over queries, with its 95% interval


@dataclass(frozen=True)
class Gap:
    """The gap of one task: each pair's lexical overlap and similarity of embeddings, means over its queries."""

    task: str
    queries: int  # queries with a gold answer: only they are compared
    overlap: Nearness  # the share of the first text's weight (each term by its rarity) whose terms stand in the second
    similarity: Nearness  # the cosine of the two embeddings
    encoder: str

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        sides = {
            side: {pair: figure_dict(mean, "mean") for pair, mean in getattr(self, side).items()}
            for side in ("overlap", "similarity")
        }
        return {"task": self.task, "queries": self.queries, "encoder": self.encoder, **sides}


class _Query(NamedTuple):
    """A query with what it is compared with."""

    text: str
    answer: str
    positives: list[str]
    others: list[str]  # documents that are relevant to other queries and not to this one


def measure_gap(dataset: Dataset, encoder: str = ENCODER, executor: Executor | None = None) -> Gap:
    """Measure the gap of a task, over its queries that have a gold answer."""
    texts, documents, qrels = dataset.collection.queries, dataset.collection.documents, dataset.gold.qrels
    positives = {
        query: [name for name in relevant if documents.text(name).strip()]
        for query, relevant in positive(qrels).items()
    }
    answers = {query: text for query, text in dataset.gold.answers.items() if text.strip()}
    ids = [query for query in texts.ids if query in answers and positives.get(query)]
    if not ids:
        raise R2medError(f"{dataset.name} has no gold answers, without which there is no gap to measure")
    names = list(dict.fromkeys(name for query in ids for name in positives[query]))
    others = {query: [name for name in names if qrels[query].get(name, 0) < 1] for query in ids}
    queries = [_Query(texts.text(query), answers[query], positives[query], others[query]) for query in ids]
    passages = Texts(names, [documents.text(name) for name in names])
    overlaps = _overlaps(queries, passages, Rarity.of(documents, executor))
    similarities = _similarities(queries, passages, dataset, encoder, executor)
    return Gap(dataset.name, len(ids), _means(overlaps), _means(similarities), encoder)


def _overlaps(queries: Sequence[_Query], passages: Texts, rarity: Rarity) -> dict[str, list[float]]:
    """Return each pair's overlap by query; a pair that cannot be compared for a query is left out there."""
    terms = {name: rarity.terms(text) for name, text in passages}
    overlaps: dict[str, list[float]] = {pair: [] for pair in PAIRS}
    for query in queries:
        asked, answer = rarity.terms(query.text), rarity.terms(query.answer)
        rows = {
            "query-positive": [rarity.share(asked, terms[name]) for name in query.positives],
            "answer-positive": [rarity.share(answer, terms[name]) for name in query.positives],
            "query-answer": [rarity.share(answer, asked)],
            "query-other": [rarity.share(asked, terms[name]) for name in query.others],
        }
        for pair, shares in rows.items():
            if comparable := [share for share in shares if share is not None]:
                overlaps[pair].append(float(np.mean(comparable)))
    return overlaps


def _similarities(
    queries: Sequence[_Query], passages: Texts, dataset: Dataset, encoder: str, executor: Executor | None
) -> dict[str, list[float]]:
    """Return each pair's cosine by query: of the query and of the answer with the mean over documents."""
    stage = dense_of(encoder)
    model, context = stage.encoder(dataset.task), Context(Cache.default(), executor or quiet())
    numbers = [str(row) for row in range(len(queries))]
    texts, answers = (Texts(numbers, [getattr(query, name) for query in queries]) for name in ("text", "answer"))
    asked = unit_rows(encode_all(model, texts, Role.QUERY, context)[:])
    answered = unit_rows(encode_all(model.for_passages(), answers, Role.QUERY, context, label="answers")[:])
    vectors = unit_rows(encode_all(model, passages, Role.DOCUMENT, context, precision=stage.store)[:])
    place = {name: row for row, name in enumerate(passages.ids)}
    cosines: dict[str, list[float]] = {pair: [] for pair in PAIRS}
    for query, question, answer in zip(queries, asked, answered, strict=True):
        relevant = vectors[[place[name] for name in query.positives]]
        cosines["query-positive"].append(float((relevant @ question).mean()))
        cosines["answer-positive"].append(float((relevant @ answer).mean()))
        cosines["query-answer"].append(float(question @ answer))
        if query.others:
            others = vectors[[place[name] for name in query.others]]
            cosines["query-other"].append(float((others @ question).mean()))
    return cosines


def _means(pairs: Mapping[str, Sequence[float]]) -> dict[str, Figure]:
    return {pair: task_intervals(np.array([values]))[0] for pair, values in pairs.items() if values}


BASE = "bm25"  # the retriever whose plain search is the floor and whose search with the gold answer is the ceiling
ByQuery = Mapping[str, float]


@dataclass(frozen=True)
class Climb:
    """A system between floor and ceiling, on one task or averaged over several."""

    plain: float
    oracle: float
    system: float
    closed: float | None
    """The share of the way from plain to oracle that the system goes; None where the two do not differ."""
    low: float | None = None
    high: float | None = None
    """The 95% interval of that share, over resampled queries."""


@dataclass(frozen=True)
class Ceiling:
    """A base's floor and ceiling with a system between them, by task and over all of them."""

    base: str
    oracle: str
    system: str
    measure: str
    tasks: Mapping[str, Climb]
    overall: Climb


def floor_and_ceiling(base: str, dataset: Dataset, executor: Executor | None = None) -> tuple[ByQuery, ByQuery]:
    """Return the headline by query of a base's plain search and of its search with the gold answer.

    Both are runs of the ledger, the second marked as an oracle.
    """
    plain = bare(System.parse(base))
    results = [measure(system, dataset, executor) for system in (plain, with_answer(plain))]
    floor, ceiling = (dict(zip(run.queries, run.scores[str(HEADLINE)].tolist(), strict=True)) for run in results)
    return floor, ceiling


def climb(base: str, system: str, rows: Mapping[str, tuple[ByQuery, ByQuery, ByQuery]]) -> Ceiling:
    """Place a system between floor and ceiling, from the scores by query (plain, oracle, system) of each task."""
    plain = bare(System.parse(base))
    tables = {
        task: np.array([[column[query] for query in first] for column in (first, *rest)])
        for task, (first, *rest) in rows.items()
    }
    tasks = {task: _climb([table]) for task, table in tables.items()}
    whole = _climb(list(tables.values()))
    return Ceiling(plain.spec, with_answer(plain).spec, system, str(HEADLINE), tasks, whole)


def _climb(tables: Sequence[Floats]) -> Climb:
    """Compute one place from tables of plain, oracle and system by query, the mean over tasks."""
    plain, oracle, system = np.mean([table.mean(axis=1) for table in tables], axis=0).tolist()
    if not oracle > plain:
        return Climb(plain, oracle, system, None)
    resampled = [resampled_means(table, place) for place, table in enumerate(tables)]
    floor, top, here = np.mean(resampled, axis=0)
    way = top - floor
    shares = (here - floor)[way > 0] / way[way > 0]
    ends = percentile_ends(shares, [table.shape[1] for table in tables]) or (None, None)
    return Climb(plain, oracle, system, (system - plain) / (oracle - plain), *ends)

"""The reasoning gap, measured: how far the words of a query are from its documents, and how near the answer's are.

Its ceiling is the score of a search with the gold answer; a system is placed between plain search and that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

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
from r2med.pipeline.stage import Context, Retriever, Stage
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
    return System((_bare_stage(system.retriever),))


def _bare_stage(stage: Stage) -> Stage:
    # A fusion takes its systems one by one, so that it cannot be built anew by the names of its fields.
    made = copy.copy(stage)
    for name, value in vars(stage).items():
        if isinstance(value, System):
            object.__setattr__(made, name, bare(value))
        elif isinstance(value, tuple) and value and isinstance(value[0], System):
            object.__setattr__(made, name, tuple(bare(system) for system in value))
    return made


def with_answer(system: System) -> System:
    """Return the system's retriever searching with the gold answer, joined as it joins any generated text.

    >>> str(with_answer(System.parse("replay >> bm25(k1=2)")))
    'oracle-answer >> bm25(k1=2)'
    """
    return OracleAnswer() >> bare(system)


def searches(system: System) -> bool:
    """Return whether the retriever depends on the query at all; stored lists do not."""
    return all(stage.searches for stage in bare(system).walk() if isinstance(stage, Retriever))


def measured(system: System, dataset: Dataset, executor: Executor | None = None) -> Entry:
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
        self._known: dict[str, float] = {}

    @classmethod
    def of(cls, documents: Texts, executor: Executor | None = None) -> Rarity:
        """Return the rarity of terms among some documents; their index is built if it is missing."""
        return cls(open_index(documents, Context(Cache.default(), executor or quiet())))

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.index, 0.9, 0.4)

    def idf(self, term: str) -> float:
        """Return the idf of a term; one that no document holds is rarer than all others."""
        if term not in self._known:
            number = self.index.number(term)
            unheard = math.log(len(self.index.lengths) + 1.0) - math.log(0.5)
            self._known[term] = self._scorer.idf(number) if number >= 0 else unheard
        return self._known[term]

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
Nearness = Mapping[str, Figure]
"""Pair to its mean over queries, with its 95% interval."""


@dataclass(frozen=True)
class Gap:
    """The gap of one task: each pair's lexical overlap and similarity of embeddings, means over its queries."""

    task: str
    queries: int
    """Queries with a gold answer: only they are compared."""
    overlap: Nearness
    """The share of the first text's weight (each term by its rarity) whose terms stand in the second."""
    similarity: Nearness
    """The cosine of the two embeddings."""
    encoder: str

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        sides = {"overlap": self.overlap, "similarity": self.similarity}
        return {
            "task": self.task,
            "queries": self.queries,
            "encoder": self.encoder,
            **{
                side: {pair: figure_dict(found, "mean") for pair, found in pairs.items()}
                for side, pairs in sides.items()
            },
        }


def measure_gap(dataset: Dataset, encoder: str = ENCODER, executor: Executor | None = None) -> Gap:
    """Measure the gap of a task, over its queries that have a gold answer."""
    answers = {query: text for query, text in dataset.gold.answers.items() if text.strip()}
    documents = dataset.collection.documents
    wanted = {
        query: [name for name in found if documents.text(name).strip()]
        for query, found in positive(dataset.gold.qrels).items()
    }
    queries = [query for query in dataset.collection.queries.ids if query in answers and wanted.get(query)]
    if not queries:
        raise R2medError(f"{dataset.name} has no gold answers, without which there is no gap to measure")
    texts = _Compared(dataset, queries, wanted, answers)
    lexical, dense = _overlaps(texts, executor), _similarities(texts, encoder, executor)
    return Gap(dataset.name, len(queries), _means(lexical), _means(dense), encoder)


@dataclass(frozen=True)
class _Compared:
    """The texts of a task that are compared."""

    dataset: Dataset
    queries: Sequence[str]
    positives: Mapping[str, Sequence[str]]
    answers: Mapping[str, str]

    @property
    def documents(self) -> list[str]:
        """Return every document that is relevant to one of the queries, once."""
        return list(dict.fromkeys(name for query in self.queries for name in self.positives[query]))

    def others(self, query: str) -> list[str]:
        """Return documents that are relevant to other queries and not to this one."""
        own = self.dataset.gold.qrels[query]
        return [name for name in self.documents if own.get(name, 0) < 1]


def _overlaps(texts: _Compared, executor: Executor | None) -> dict[str, list[float]]:
    """Return each pair's overlap by query; a pair that cannot be compared for a query is left out there."""
    collection = texts.dataset.collection
    rarity = Rarity.of(collection.documents, executor)
    terms = {name: rarity.terms(collection.documents.text(name)) for name in texts.documents}
    found: dict[str, list[float]] = {pair: [] for pair in PAIRS}
    for query in texts.queries:
        asked = rarity.terms(collection.queries.text(query))
        answer = rarity.terms(texts.answers[query])
        own, others = texts.positives[query], texts.others(query)
        rows = {
            "query-positive": [rarity.share(asked, terms[name]) for name in own],
            "answer-positive": [rarity.share(answer, terms[name]) for name in own],
            "query-answer": [rarity.share(answer, asked)],
            "query-other": [rarity.share(asked, terms[name]) for name in others],
        }
        for pair, shares in rows.items():
            known = [share for share in shares if share is not None]
            if known:
                found[pair].append(float(np.mean(known)))
    return found


def _similarities(texts: _Compared, encoder: str, executor: Executor | None) -> dict[str, list[float]]:
    """Return each pair's cosine by query: of the query and of the answer with the mean over documents."""
    vectors = _Vectors(texts, encoder, executor)
    place = {name: row for row, name in enumerate(texts.documents)}
    found: dict[str, list[float]] = {pair: [] for pair in PAIRS}
    for row, query in enumerate(texts.queries):
        asked, answer = vectors.queries[row], vectors.answers[row]
        own = vectors.documents[[place[name] for name in texts.positives[query]]]
        others = vectors.documents[[place[name] for name in texts.others(query)]]
        found["query-positive"].append(float((own @ asked).mean()))
        found["answer-positive"].append(float((own @ answer).mean()))
        found["query-answer"].append(float(asked @ answer))
        if len(others):
            found["query-other"].append(float((others @ asked).mean()))
    return found


class _Vectors:
    """The embeddings of queries, answers and relevant documents, each of length 1."""

    def __init__(self, texts: _Compared, encoder: str, executor: Executor | None) -> None:
        stage = dense_of(encoder)
        model = stage.encoder(texts.dataset.task)
        context = Context(Cache.default(), executor or quiet())
        collection = texts.dataset.collection
        queries = Texts(texts.queries, [collection.queries.text(query) for query in texts.queries])
        answers = Texts(texts.queries, [texts.answers[query] for query in texts.queries])
        documents = Texts(texts.documents, [collection.documents.text(name) for name in texts.documents])
        self.queries = unit_rows(encode_all(model, queries, Role.QUERY, context)[:])
        self.answers = unit_rows(encode_all(model.for_passages(), answers, Role.QUERY, context, label="answers")[:])
        self.documents = unit_rows(encode_all(model, documents, Role.DOCUMENT, context, precision=stage.store)[:])


def _means(found: Mapping[str, Sequence[float]]) -> dict[str, Figure]:
    return {pair: task_intervals(np.array([values]))[0] for pair, values in found.items() if values}


BASE = "bm25"
"""The retriever whose plain search is the floor and whose search with the gold answer is the ceiling."""
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

    def as_dict(self) -> dict[str, float | None]:
        """Return the shape of `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Ceiling:
    """A base's floor and ceiling with a system between them, by task and over all of them."""

    base: str
    oracle: str
    system: str
    measure: str
    tasks: Mapping[str, Climb]
    overall: Climb

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {
            "base": self.base,
            "oracle": self.oracle,
            "system": self.system,
            "measure": self.measure,
            "tasks": {task: climb.as_dict() for task, climb in self.tasks.items()},
            "overall": self.overall.as_dict(),
        }


def floor_and_ceiling(base: str, dataset: Dataset, executor: Executor | None = None) -> tuple[ByQuery, ByQuery]:
    """Return the headline by query of a base's plain search and of its search with the gold answer.

    Both are runs of the ledger, the second marked as an oracle.
    """
    plain = bare(System.parse(base))
    found = [measured(system, dataset, executor) for system in (plain, with_answer(plain))]
    columns = [dict(zip(each.queries, each.scores[str(HEADLINE)].tolist(), strict=True)) for each in found]
    return columns[0], columns[1]


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

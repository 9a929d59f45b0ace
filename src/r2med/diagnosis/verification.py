"""The verifiability ceiling: relevant documents are put among hard distractors, and a strong reranker orders them.

The distance from a system's score to that ceiling has two parts. Retrieval: relevant documents that the system does not
find. Verification: those that it finds, which the verifier recognises and the system does not. The pool holds the
judgements, so that all of this is an oracle: a ceiling, never a system.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np

from r2med.data.dataset import Collection, Dataset, Texts
from r2med.data.run import Run
from r2med.errors import R2medError, SpecError
from r2med.formatting import percent
from r2med.measure.bootstrap import Floats, average_intervals
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.score import score
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import HEADLINE, LoadedRun
from r2med.pipeline.plan import Plan, PlannedTask, plan_stage
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context, Reranker, Retriever
from r2med.pipeline.system import System
from r2med.store.cache import Cache
from r2med.store.hashes import cache_key, is_unchanged
from r2med.store.typed import read_json, write_json

LAST = 0.9
"""A verifier ranks a relevant document last if at least this share of the distractors stands above it."""
RETRIEVAL, VERIFICATION = "retrieval", "verification"
FORMAT = 1  # changes when a verification is measured or written otherwise
_KIND, _FILE = "verified", "verification.json"


@dataclass(frozen=True)
class VerifiedQuery:
    """One query of one system, with one verifier."""

    system: str
    verifier: str
    query: str
    score: float
    """nDCG@10 of the system's list."""
    reranked: float
    """nDCG@10 of the pool in the verifier's order, without the relevant documents that the system does not find."""
    ceiling: float
    """nDCG@10 of the whole pool in the verifier's order."""


@dataclass(frozen=True)
class VerifiedSystem:
    """One system below the ceiling of one verifier, on one task or averaged over several."""

    system: str
    verifier: str
    queries: int
    score: Figure
    ceiling: Figure
    distance: Figure
    """The ceiling minus the score, paired by query."""
    retrieval: Figure
    """The part of the distance that relevant documents take which the system does not find."""
    verification: Figure
    """The rest: those that it finds and ranks lower than the verifier does."""
    fails_in: str
    """`retrieval` or `verification`, whichever is shown to be the larger part; empty if neither is."""

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {name: figure_dict(x, "mean") if isinstance(x, Figure) else x for name, x in vars(self).items()}


class UnverifiedPositive(NamedTuple):
    """A relevant document that every verifier ranks last."""

    query: str
    document: str
    above: float
    """The share of distractors above it, with the verifier that ranks it highest."""


@dataclass(frozen=True)
class TaskVerification:
    """Systems and verifiers on one task."""

    task: str
    deep_cutoff: int  # What stands deeper in a system's list counts as not found.
    distractors: int  # Of the smallest pool: lists may hold fewer than were asked for.
    systems: Sequence[VerifiedSystem]
    queries: Sequence[VerifiedQuery]
    left_out: Mapping[str, Mapping[str, str]]  # Verifier to the queries that it could not order, and why.
    unverified: Sequence[UnverifiedPositive]
    """Relevant documents that every verifier ranks last, the most suspicious first."""

    def as_dict(self) -> dict[str, Any]:
        """Return the task for JSON."""
        unverified = [pair._asdict() for pair in self.unverified]
        return vars(self) | {"systems": [row.as_dict() for row in self.systems], "unverified": unverified}


@dataclass(frozen=True)
class VerificationStudy:
    """Systems and verifiers on several tasks."""

    tasks: Sequence[TaskVerification]
    measure: str = str(HEADLINE)

    @cached_property
    def overall(self) -> list[VerifiedSystem]:
        """Return the rows averaged over tasks."""
        return average([task.queries for task in self.tasks])

    @property
    def sentences(self) -> list[str]:
        """Return what may be concluded, a sentence per row, then one per row over all tasks."""
        sentences = [_conclude(row, task.task) for task in self.tasks for row in task.systems]
        return sentences + ([_conclude(row, "all tasks") for row in self.overall] if len(self.tasks) > 1 else [])

    def as_dict(self) -> dict[str, Any]:
        """Return the study for JSON."""
        return {
            "oracle": True,
            "measure": self.measure,
            "tasks": [task.as_dict() for task in self.tasks],
            "overall": [row.as_dict() for row in self.overall],
            "sentences": self.sentences,
        }


def parse_verifier(text: str) -> Reranker:
    """Build a reranker from its spec; anything else is an error."""
    stages = build_system(text).stages
    stage = stages[0].as_reranker() if isinstance(stages[0], Retriever) else stages[0]
    if len(stages) > 1 or not isinstance(stage, Reranker):
        kinds = " >> ".join(stage.kind for stage in stages)
        advice = "--verify takes one that reads documents, such as bge-reranker or 'pointwise(gpt-4o)'"
        raise SpecError(f"{text} is not a reranker ({kinds}); {advice}")
    stage.check_files()
    return stage


class _Pools(NamedTuple):
    """The pool of each query of a task, in a random order, and what a reranker needs to order it."""

    lists: Mapping[str, Sequence[str]]
    collection: Collection
    depth: int  # documents of the largest pool

    def deepen(self, verifier: Reranker) -> Reranker:
        """Return the verifier with a depth that reaches to the end of every pool."""
        (stage,) = System((verifier,)).with_option("depth", self.depth).stages
        assert isinstance(stage, Reranker)
        return stage

    def order(self, verifier: Reranker, context: Context) -> dict[str, list[str]]:
        """Return every pool that the verifier could order, best first; ties keep the random order."""
        places = {query: [float(-place) for place in range(len(pool))] for query, pool in self.lists.items()}
        run = Run.from_lists({query: (pool, places[query]) for query, pool in self.lists.items()})
        reranked, ordered = self.deepen(verifier).rerank(self.collection, run, context), {}
        for query, pool in self.lists.items():
            if query not in context.notes.incomplete:
                scores = dict(zip(*reranked[query], strict=True))
                ordered[query] = sorted(pool, key=lambda document: -np.float32(scores[document]))
        return ordered


def _make_pools(opened: Sequence[LoadedRun], distractors: int) -> _Pools:
    """Put each query's relevant documents among the first others of the systems' lists, taken in turn."""
    data, lists = opened[0].dataset.collection, {}
    for query, relevant in opened[0].positives.items():
        ranked = zip_longest(*(run.found(query, len(data.documents)) for run in opened))
        others = dict.fromkeys(document for document in chain.from_iterable(ranked) if document not in relevant)
        others.pop(None, None)
        pool = [*relevant, *list(others)[:distractors]]
        # A reranker that cannot tell two documents apart keeps their order, which must say nothing about relevance.
        random.Random(query).shuffle(pool)
        lists[query] = pool
    names = list(dict.fromkeys(chain.from_iterable(lists.values())))
    documents = Texts(names, [data.documents.text(name) for name in names])
    collection = replace(data.select(list(lists)), documents=documents, generations=())
    return _Pools(lists, collection, max(map(len, lists.values())))


def plan_verification(opened: Sequence[LoadedRun], verifiers: Sequence[Reranker], distractors: int) -> list[Plan]:
    """Forecast what each verifier would compute on a task; compute nothing."""
    pools, plans = _make_pools(opened, distractors), []
    for stage in map(pools.deepen, verifiers):
        forecast = {str(stage): dict(stage.forecast(pools.collection, Context(Cache.default(), Executor())))}
        plans.append(Plan(str(stage), [plan_stage(stage)], [PlannedTask(opened[0].entry.task, "to verify", forecast)]))
    return plans


def verify(
    opened: Sequence[LoadedRun], verifiers: Sequence[Reranker], distractors: int, executor: Executor
) -> TaskVerification:
    """Measure systems against the ceiling of each verifier on one task, and keep the outcome for an audit queue."""
    first, pools = opened[0], _make_pools(opened, distractors)
    left_out: dict[str, Mapping[str, str]] = {}
    orders: list[dict[str, list[str]]] = []
    queries: list[VerifiedQuery] = []
    for verifier in verifiers:
        context, name = Context(Cache.default(), executor), str(verifier)
        with executor.working(name, first.entry.task):
            order = pools.order(verifier, context)
        if not order:
            reason = next(iter(context.notes.incomplete.values()))
            raise R2medError(f"{name} ordered no pool of {first.entry.task}: {reason}")
        orders.append(order)
        left_out[name] = dict(context.notes.incomplete)
        ceiling = _ndcg(order, first)
        for run in opened:
            reranked = _ndcg({query: _without_missing(pool, query, run) for query, pool in order.items()}, first)
            queries += [
                VerifiedQuery(run.system, name, query, run.values[query], reranked[query], ceiling[query])
                for query in order
            ]
    fewest = min(len(pool) - len(first.positives[query]) for query, pool in pools.lists.items())
    facts = (first.entry.task, first.deep, fewest, average([queries]), queries, left_out)
    return _keep(first.dataset, TaskVerification(*facts, _find_unverified(first, orders)))


def _without_missing(pool: Sequence[str], query: str, run: LoadedRun) -> list[str]:
    """Remove the relevant documents that a system does not find from an ordered pool."""
    reached = set(run.found(query, run.deep))
    return [document for document in pool if document in reached or document not in run.positives[query]]


def _ndcg(order: Mapping[str, Sequence[str]], opened: LoadedRun) -> dict[str, float]:
    """Return the headline of ordered pools by query."""
    lists = {query: (pool, np.arange(len(pool), 0.0, -1.0)) for query, pool in order.items()}
    scores = score(Run.from_lists(lists), {query: opened.positives[query] for query in order}, [HEADLINE])
    return dict(zip(scores.queries, scores.values(HEADLINE).tolist(), strict=True))


def average(tasks: Sequence[Sequence[VerifiedQuery]]) -> list[VerifiedSystem]:
    """Return the row of each system and verifier, over the queries of one task or averaged over several."""
    rows = []
    for system, verifier in dict.fromkeys((row.system, row.verifier) for row in tasks[0]):
        tables: list[Floats] = []
        for task in tasks:
            queries = [row for row in task if (row.system, row.verifier) == (system, verifier)]
            plain, reranked, ceiling = np.array([(row.score, row.reranked, row.ceiling) for row in queries]).T
            parts = (ceiling - reranked, reranked - plain)
            tables.append(np.stack([plain, ceiling, ceiling - plain, *parts, parts[0] - parts[1]]))
        mean, top, distance, retrieval, verification, larger = average_intervals(tables)
        fails_in = ""
        if distance.ends[0] > 0:
            fails_in = RETRIEVAL if larger.ends[0] > 0 else VERIFICATION if larger.ends[1] < 0 else ""
        count = sum(table.shape[1] for table in tables)
        rows.append(VerifiedSystem(system, verifier, count, mean, top, distance, retrieval, verification, fails_in))
    return rows


def _find_unverified(opened: LoadedRun, orders: Sequence[Mapping[str, Sequence[str]]]) -> list[UnverifiedPositive]:
    """Return the relevant documents that all verifiers rank last, those with the most distractors above them first."""
    pairs = []
    for query, relevant in opened.positives.items():
        shares = [_shares_above(order[query], relevant) for order in orders if query in order]
        if len(shares) == len(orders):
            least = {document: min(share.get(document, 0.0) for share in shares) for document in relevant}
            pairs += [UnverifiedPositive(query, document, above) for document, above in least.items() if above >= LAST]
    return sorted(pairs, key=lambda pair: -pair.above)


def _shares_above(order: Sequence[str], relevant: Mapping[str, int]) -> dict[str, float]:
    """Return the share of the distractors that stands above each relevant document; none without distractors."""
    is_distractor = np.array([document not in relevant for document in order])
    if not is_distractor.any():
        return {}
    shares = is_distractor.cumsum() / is_distractor.sum()
    return {document: float(share) for document, share in zip(order, shares, strict=True) if document in relevant}


def _conclude(row: VerifiedSystem, where: str) -> str:
    """Return what may be concluded of a row, in a sentence."""
    start, ceiling = f"{row.system} on {where}", f"the ceiling of {row.verifier}, {percent(row.ceiling.value, 1)}"
    low, high = row.distance.ends
    if high < 0:
        return f"{start}: {ceiling}, is below the score; {row.verifier} is the weaker of the two, and no ceiling."
    if not low > 0:
        return f"{start}: no distance to {ceiling}, is shown."
    missing = f"{percent(row.retrieval.value, 1)} ({row.retrieval.value / row.distance.value:.0%}) in retrieval"
    parts = f"{missing}, {percent(row.verification.value, 1)} in verification"
    verdict = f"fails in {row.fails_in}" if row.fails_in else "neither part is shown to be the larger"
    return f"{start}: {verdict}; {percent(row.distance.value, 1)} points to {ceiling}: {parts}."


def _key(task: str, data: str) -> str:
    return cache_key(task=task, data=data, format=FORMAT)


def _keep(dataset: Dataset, result: TaskVerification) -> TaskVerification:
    """Keep the last verification of a task on its data, in place of the one before."""
    cache, key = Cache.default(), _key(dataset.name, dataset.fingerprint)
    cache.drop(_KIND, key)
    with suppress(R2medError):  # it can be measured again
        cache.sound_entry(_KIND, key, lambda folder: write_json(folder / _FILE, result))
    return result


def kept_verification(task: str, data: str) -> TaskVerification | None:
    """Return the last verification of a task on the data of a fingerprint, or None."""
    cache, key = Cache.default(), _key(task, data)
    folder = cache.root / _KIND / key
    if not cache.has(_KIND, key) or not is_unchanged(folder):
        return None
    with suppress(R2medError):
        return read_json(folder / _FILE, TaskVerification)
    return None

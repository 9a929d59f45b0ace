"""The profile of a nano set: the effectiveness of its BM25, dense and hybrid candidate lists on each task.

Recall@100 is micro: relevant documents found over all relevant documents of the task, safeguards not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from r2med.data.candidates import candidates, offered_kinds
from r2med.data.dataset import Qrels
from r2med.data.loader import load
from r2med.data.manifests import read_manifest
from r2med.data.published import find_published
from r2med.data.run import Run
from r2med.data.tasks import Task, groups, registry, resolve
from r2med.errors import DataError
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.nano.recipe import HYBRID_DEPTH, Recipe
from r2med.pipeline.executor.local import Executor, quiet
from r2med.store.typed import plain

KINDS = {"bm25": "BM25", "dense": "dense", "hybrid": "hybrid"}
_PUBLISHED_MEASURES = ("nDCG@10", "Hit@10", "micro-Recall@100")
_RECALL_DEPTH = 100


@dataclass(frozen=True)
class ProfileFigures:
    """The three figures of a profile."""

    ndcg_at_10: float
    hit_at_10: float
    recall_at_100: float


MEASURES = {"ndcg_at_10": "nDCG@10", "hit_at_10": "hit@10", "recall_at_100": "recall@100"}
Profiles = Mapping[str, ProfileFigures]


@dataclass(frozen=True)
class TaskProfile:
    """One task of a set."""

    task: str
    split: str
    """The published name where the task has one."""
    queries: int
    documents: int
    positives: int
    profiles: Profiles
    published: Profiles
    """The published figures; none for a task that is not one of the eight, or was not built as they were."""
    safeguards: int
    """How many hybrid lists end in a safeguard."""

    def as_dict(self) -> dict[str, Any]:
        """Return the task's profile in the shape of `--json`."""
        return {**asdict(self), "best": best(self.profiles), "best_published": best(self.published) or None}


@dataclass(frozen=True)
class SetProfile:
    """All tasks of a set. Sets never share an average."""

    name: str
    tasks: Sequence[TaskProfile]
    dense: str = ""

    def averages(self) -> dict[str, Profiles]:
        """Return the averages of each profile that all tasks have: weighted by queries, and the mean over tasks."""
        return _averages([task.profiles for task in self.tasks], [task.queries for task in self.tasks])

    def published_averages(self) -> dict[str, Profiles]:
        """Return the averages of the published figures; empty unless all tasks have them."""
        rows = [task.published for task in self.tasks]
        return _averages(rows, [task.queries for task in self.tasks]) if all(rows) else {}

    def as_dict(self) -> dict[str, Any]:
        """Return the set's profile in the shape of `--json`."""
        return {
            "set": self.name,
            "dense": self.dense or None,
            "tasks": [task.as_dict() for task in self.tasks],
            "averages": plain(self.averages()),
            "published_averages": plain(self.published_averages()),
        }


def _averages(rows: Sequence[Profiles], sizes: Sequence[int]) -> dict[str, Profiles]:
    shared = [kind for kind in KINDS if all(kind in row for row in rows)]
    values = {kind: [[getattr(row[kind], name) for name in MEASURES] for row in rows] for kind in shared}
    return {
        name: {kind: ProfileFigures(*np.average(values[kind], 0, weights).tolist()) for kind in shared}
        for name, weights in (("query-weighted", sizes), ("macro", None))
    }


def best(profiles: Profiles, measure: str = "ndcg_at_10") -> str:
    """Return the profile with the highest nDCG@10, or another figure; the first of equals, empty if there is none.

    >>> best({"bm25": ProfileFigures(0.2, 0.9, 0.9), "dense": ProfileFigures(0.3, 0.1, 0.1)})
    'dense'
    """
    return max(profiles, key=lambda kind: float(getattr(profiles[kind], measure)), default="")


@cache
def published() -> Mapping[str, Profiles]:
    """Return the published figures of NanoR2MED, by split.

    >>> round(published()["NanoR2MEDBiology"]["dense"].ndcg_at_10, 4)
    0.4953
    """
    rows = {kind: find_published(f"nano/{kind}")[0].figures for kind in KINDS}
    return {
        task.split: {
            kind: ProfileFigures(*(row[measure].tasks[task.name] for measure in _PUBLISHED_MEASURES))
            for kind, row in rows.items()
        }
        for task in sorted(groups()["nano"], key=lambda task: task.split)
    }


def profile(sets: Sequence[str | Path], executor: Executor | None = None) -> list[SetProfile]:
    """Return the profiles of nano sets: `nano`, some of its tasks, or folders; each folder is a set of its own."""
    sets_of: dict[str, list[Task]] = {}
    for task in resolve(sets):
        sets_of.setdefault("NanoR2MED" if task.folder is None else str(task.folder), []).append(task)
    executor = executor or quiet()
    profiles = []
    for name, tasks in sets_of.items():
        built = read_manifest(tasks[0].folder) if tasks[0].folder is not None else None
        dense = str(built.candidates.get("dense", {}).get("system", "")) if built else ""
        profiles.append(SetProfile(name, executor.map(f"profile of {name}", profile_task, tasks), dense))
    return profiles


def profile_task(task: Task) -> TaskProfile:
    """Return the profile of one task, from its candidate lists."""
    if task.hub and task.group != "nano":
        raise DataError(f"{task.name} is not a nano task and has no candidate lists; try nano/{task.base}")
    dataset = load(task)
    kinds = offered_kinds(dataset.collection)
    if not kinds:
        raise DataError(f"{task.name} has no candidate lists, so it is not a nano set; r2med nano build makes one")
    runs = {kind: candidates(dataset.collection, kind) for kind in kinds}
    built = read_manifest(task.folder) if task.folder is not None else None
    published_task = registry().get(f"nano/{task.base}")
    if built is not None:
        split, safeguards = built.name(task.split), built.split(task.split).safeguards
    else:
        split = published_task.split if published_task is not None else task.base
        lists = ((query, ranking.documents) for query, ranking in runs.get("hybrid", ()))
        safeguards = {query: ids[HYBRID_DEPTH] for query, ids in lists if len(ids) > HYBRID_DEPTH}
    if "hybrid" in runs:  # a safeguard is always last
        ends = {query: len(ranking.documents) - (query in safeguards) for query, ranking in runs["hybrid"]}
        runs["hybrid"] = Run.from_lists(
            {query: (r.documents[: ends[query]], r.scores[: ends[query]]) for query, r in runs["hybrid"]}
        )
    usual = Recipe().as_dict()
    as_published = built is None or all(built.recipe.get(n) == usual[n] for n in ("policy", "documents", "queries"))
    return TaskProfile(
        task=task.name,
        split=split,
        queries=len(dataset.collection.queries),
        documents=len(dataset.collection.documents),
        positives=sum(grade > 0 for judged in dataset.gold.qrels.values() for grade in judged.values()),
        profiles={kind: figures(run, dataset.gold.qrels) for kind, run in runs.items()},
        published=published().get(split, {}) if as_published else {},
        safeguards=len(safeguards),
    )


def figures(run: Run, qrels: Qrels) -> ProfileFigures:
    """Return the three figures of a run.

    >>> run = Run.from_lists({"q1": (["a"], [1.0]), "q2": (["b"], [1.0])})
    >>> figures(run, {"q1": {"a": 1}, "q2": {"b": 1, "c": 1, "d": 1}}).recall_at_100
    0.5
    """
    means = score(run, qrels, [Measure("nDCG", 10), Measure("Hit", 10)])
    relevant = {query: {document for document, grade in judged.items() if grade > 0} for query, judged in qrels.items()}
    hits = sum(len(relevant[query].intersection(run[query].documents[:_RECALL_DEPTH])) for query in relevant)
    return ProfileFigures(
        ndcg_at_10=means.mean(Measure("nDCG", 10)),
        hit_at_10=means.mean(Measure("Hit", 10)),
        recall_at_100=hits / sum(map(len, relevant.values())),
    )

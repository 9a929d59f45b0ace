"""What systems find that others do not: the case for fusing them, and its ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np

from r2med.pipeline.loaded_runs import TOP, LoadedRun


@dataclass(frozen=True)
class Complement:
    """Two systems on one task or several: who finds which relevant documents down to the deep cutoff."""

    a: str
    b: str
    only_a: int
    only_b: int
    both: int
    neither: int
    recall_a: float
    """The mean over queries, then tasks, of the share of relevant documents found."""
    recall_b: float
    union: float
    """The same for what either finds: no fusion of the two lists can reach more."""
    overlap: float
    """The mean share of documents that the first 10 of both have in common."""
    relevant: int
    """All relevant documents."""


@dataclass(frozen=True)
class Complementarity:
    """Systems on one task: every pair of them, and what all of them find together."""

    task: str
    deep_cutoff: int
    union: float  # recall of all together
    pairs: Sequence[Complement]


def complementarity(opened: Sequence[LoadedRun]) -> Complementarity:
    """Compare the runs of several systems on one task."""
    first = opened[0]
    hits = [
        {query: set(grades).intersection(run.found(query, run.deep)) for query, grades in run.positives.items()}
        for run in opened
    ]
    pairs = [_pair(opened[a], opened[b], hits[a], hits[b]) for a, b in combinations(range(len(opened)), 2)]
    anyone = {query: set[str]().union(*(found_by[query] for found_by in hits)) for query in first.positives}
    return Complementarity(first.entry.task, first.deep, _recall(anyone, first), pairs)


def summed(tasks: Sequence[Complementarity]) -> Complementarity:
    """Merge several tasks: documents are added up, recalls and overlaps averaged over tasks."""
    pairs = []
    for several in zip(*(task.pairs for task in tasks), strict=True):
        rows = [asdict(pair) for pair in several]
        totals = {name: sum(row[name] for row in rows) for name in ("only_a", "only_b", "both", "neither", "relevant")}
        means = {
            name: float(np.mean([row[name] for row in rows])) for name in ("recall_a", "recall_b", "union", "overlap")
        }
        pairs.append(replace(several[0], **totals, **means))
    union = float(np.mean([task.union for task in tasks]))
    return Complementarity("all tasks", max(task.deep_cutoff for task in tasks), union, pairs)


def _pair(a: LoadedRun, b: LoadedRun, hits_a: Mapping[str, set[str]], hits_b: Mapping[str, set[str]]) -> Complement:
    both = sum(len(hits_a[query] & hits_b[query]) for query in a.positives)
    only_a = sum(len(hits_a[query] - hits_b[query]) for query in a.positives)
    only_b = sum(len(hits_b[query] - hits_a[query]) for query in a.positives)
    relevant = sum(map(len, a.positives.values()))
    return Complement(
        a=a.system,
        b=b.system,
        only_a=only_a,
        only_b=only_b,
        both=both,
        neither=relevant - both - only_a - only_b,
        recall_a=_recall(hits_a, a),
        recall_b=_recall(hits_b, a),
        union=_recall({query: hits_a[query] | hits_b[query] for query in a.positives}, a),
        overlap=float(np.mean([_overlap(a.found(query, TOP), b.found(query, TOP)) for query in a.positives])),
        relevant=relevant,
    )


def _recall(hits: Mapping[str, set[str]], opened: LoadedRun) -> float:
    return float(np.mean([len(hits[query]) / len(grades) for query, grades in opened.positives.items()]))


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the share of documents in common, of the longer list; two empty lists are alike."""
    longest = max(len(one), len(other))
    return len(set(one).intersection(other)) / longest if longest else 1.0

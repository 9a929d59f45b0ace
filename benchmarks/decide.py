"""How many labels decide a comparison, and how often the decision is wrong: labels of real collections, replayed.

    python benchmarks/decide.py COLLECTION... [--pairs 200] [--triples 50] [--error 0.05] [--seed 1] [--processes 2]

The systems below are run on each collection (kept in the ledger). Pairs and triples of them are drawn at random, in
equal parts from the collections. The labels of the collection, restricted to the pool of the first ten of each system,
are the truth and the reviewer: nothing is known at first, and the label that tells most is asked for, or a random one
of the pool. Both orders stop by the same rule. Looks are taken after each of the first 40 labels, then after every
further 5%. A decision is wrong if the other system is better under the truth (or, for "alike", half a point or more
apart); a pair less than half a point apart under the truth counts as no decision either way.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import r2med
from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.measure.decision import ALIKE, DEEPEST, OPEN, PoolComparison
from r2med.measure.metrics import Measure
from r2med.pipeline.system import canonical_spec
from r2med.runs.ledger import Ledger

SYSTEMS = """bm25
bm25(k1=0.5)
bm25(k1=2)
bm25(b=0.2)
bm25(b=1)
bm25(k1=3, b=0.9)
bm25-classic
bm25-classic(k1=0.3)
bm25-classic(k1=2)
bm25-classic(b=0)
bm25-classic(b=1)
bm25-classic(k1=3, b=0.2)
wordllama
wordllama(dim=128)
wordllama(dim=64)
rrf(bm25, wordllama)
rrf(bm25-classic, wordllama(dim=64))
rrf(bm25, bm25-classic)
wsum(bm25, wordllama, weights=[0.9, 0.1])
wsum(bm25, wordllama, weights=[0.7, 0.3])
wsum(bm25-classic, wordllama, weights=[0.5, 0.5])""".split("\n")
MEASURE = Measure("nDCG", 10)


class Replay(NamedTuple):
    """What came of one comparison in one order."""

    labels: int
    pool: int
    verdicts: tuple[int, ...]  # of each two systems: 1 right, -1 wrong, 0 neither
    close: int  # pairs less than half a point apart under the truth
    forecast: int  # labels in all that were foreseen after the first 30; 0 if it was over by then


def read_runs(collection: str) -> tuple[Dataset, list[Run]]:
    r2med.evaluate(SYSTEMS, collection)
    dataset = load(collection)
    with Ledger() as ledger:
        runs = {entry.system: ledger.run(entry) for entry in ledger.entries() if entry.task == dataset.name}
    specs = list(map(canonical_spec, SYSTEMS))
    return dataset, [runs[spec] for spec in specs]


def pool_of(dataset: Dataset, runs: Sequence[Run], seed: int) -> tuple[PoolComparison, np.ndarray]:
    """Return the comparison of some systems and the true labels of its pool."""
    questions, ranks, truth = [], [], []
    for number, query in enumerate(dataset.gold.qrels):
        places = [
            {document: rank for rank, document in enumerate(run[query].documents[:DEEPEST], 1)} if query in run else {}
            for run in runs
        ]
        pooled = sorted({document for place in places for document, rank in place.items() if rank <= 10})
        for document in pooled:
            questions.append(number)
            ranks.append([place.get(document, DEEPEST) for place in places])
            truth.append(int(dataset.gold.qrels[query].get(document, 0) > 0))
    given = np.zeros((len(dataset.gold.qrels), 1 + len(runs)))
    return PoolComparison(np.array(questions), np.array(ranks), MEASURE, given, seed), np.array(truth)


def replay(comparison: PoolComparison, truth: np.ndarray, error: float, order: np.ndarray | None) -> Replay:
    """Label until it is decided: in an order, or by what tells most."""
    labels = np.full(len(truth), OPEN)
    final = comparison.standing(truth)
    close = sum(abs(pair.difference) < ALIKE for pair in final.pairs)
    forecast = 0
    while True:
        standing = comparison.standing(labels)
        count = int((labels != OPEN).sum())
        if standing.error <= error or not (labels == OPEN).any() or not standing.worth.any():
            break
        if count >= 30 and not forecast:
            forecast = count + comparison.forecast(standing, error)
        step = max(1, count // 20)
        ranked = np.argsort(-standing.worth, kind="stable") if order is None else order[count:]
        best = ranked[:step]
        labels[best] = truth[best]
    verdicts = []
    for pair, true in zip(standing.pairs, final.pairs, strict=True):
        says_alike = pair.alike > pair.ahead
        apart = abs(true.difference) >= ALIKE
        right = not apart if says_alike else pair.difference * true.difference > 0
        verdicts.append(0 if not (apart or says_alike) else 1 if right else -1)
    return Replay(count, len(truth), tuple(verdicts), close, forecast)


_DATA: dict[str, tuple[Dataset, list[Run]]] = {}


def compare(job: tuple[str, tuple[int, ...], float, int]) -> tuple[Replay, Replay]:
    collection, systems, error, seed = job
    if collection not in _DATA:
        _DATA[collection] = read_runs(collection)
    dataset, runs = _DATA[collection]
    comparison, truth = pool_of(dataset, [runs[system] for system in systems], seed)
    order = np.random.default_rng(seed).permutation(len(truth))
    return replay(comparison, truth, error, None), replay(comparison, truth, error, order)


def report(name: str, results: Sequence[tuple[Replay, Replay]]) -> None:
    ours, random = (list(column) for column in zip(*results, strict=True))
    wrong = [sum(-1 in done.verdicts for done in column) for column in (ours, random)]
    medians = [np.median([done.labels for done in column]) for column in (ours, random)]
    means = [np.mean([done.labels for done in column]) for column in (ours, random)]
    ratios = [a.labels / max(1, b.labels) for a, b in results]
    foreseen = [done.forecast / done.labels for done in ours if done.forecast]
    close = sum(done.close > 0 for done in ours)
    print(
        f"| {name} | {len(results)} | {close} | {wrong[0]} | {wrong[1]} | {medians[0]:.0f} | {medians[1]:.0f}"
        f" | {means[0]:.0f} | {means[1]:.0f} | {sum(a.labels for a in ours) / sum(b.labels for b in random):.2f}"
        f" | {np.median(ratios):.2f} | {sum(done.labels <= 30 for done in ours)}"
        f" | {np.median([done.pool for done in ours]):.0f} | {np.median(foreseen) if foreseen else 0:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--triples", type=int, default=50)
    parser.add_argument("--error", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    for collection in options.collections:
        read_runs(collection)
    chance = np.random.default_rng(options.seed)
    print("| systems | comparisons | close | wrong | wrong, random | labels, median | random | labels, mean | random"
          " | ratio of sums | median ratio | within 30 | pool | foreseen / needed |")  # fmt: skip
    print("|" + "---|" * 14)
    for many, total in ((2, options.pairs), (3, options.triples)):
        every: list[tuple[Replay, Replay]] = []
        for collection in options.collections if total else ():
            groups = list(combinations(range(len(SYSTEMS)), many))
            drawn = chance.permutation(len(groups))[: total // len(options.collections)]
            jobs = [(collection, groups[n], options.error, options.seed * 1000 + int(n)) for n in drawn]
            started = time.monotonic()
            with ProcessPoolExecutor(options.processes) as pool:
                results = []
                for done in pool.map(compare, jobs):
                    results.append(done)
                    print(*map(tuple, done), file=sys.stderr, flush=True)
            every += results
            report(f"{many} on {Path(collection).name} ({time.monotonic() - started:.0f} s)", results)
        if every:
            report(f"{many}, all", every)


if __name__ == "__main__":
    main()

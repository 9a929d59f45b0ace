"""Do corrected scores hold the truth after 20 to 300 human labels, and how wrong are the scores that are not corrected?

    R2MED_HOME=/tmp/home python benchmarks/correct.py DATA [ROUNDS]

DATA holds the folders medline and scifact. Most labels are hidden. Of Medline (30 questions, 696 relevant abstracts)
the first three relevant documents of BM25's list stay published, so that the labels favour BM25, as those of a pool
do; the truth is Medline's own. SciFact has one relevant abstract for most of its 300 claims, all published; further
ones are planted among the holes, more of them at high ranks, in some questions than in others. The pool has the first
ten documents of five systems. A judge labels all holes, with errors that are drawn anew in each round: symmetric (10%
both ways), lenient (20% of the irrelevant, 5% of the relevant), or by rank (up to 30% of the irrelevant at high ranks).

Printed are, over rounds with a new sample each: the share of 95% intervals (from labels alone) that hold the true mean
of a system, as the lowest and the highest of the five systems and the mean; how wide they are, and how wide they would
have to be for the spread of the estimate itself (3.92 standard deviations); the bias of the published, filled and
corrected score (largest of the systems); and Kendall's tau with the true order.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import r2med
from r2med.audit.correction import Floats, HolePool, correct
from r2med.data.loader import load
from r2med.measure.correlation import kendall
from r2med.measure.metrics import Measure
from r2med.measure.score import positive
from r2med.pipeline.named_runs import select
from r2med.runs.ledger import Ledger

SYSTEMS = ("bm25", "bm25-classic", "wordllama", "rrf(bm25, wordllama)", "rrf(bm25, bm25-classic)")
MEASURE = Measure("nDCG", 10)
PUBLISHED = 3
HUMANS = (20, 30, 100, 300)
JUDGES = ("symmetric", "lenient", "by rank")


def hide_labels(folder: Path, seed: int = 5) -> tuple[HolePool, Floats]:
    """Return the pool of a collection with most labels hidden, and the true labels of its holes."""
    r2med.evaluate(list(SYSTEMS), str(folder), measures=["nDCG@10"])
    dataset = load(folder)
    full = positive(dataset.gold.qrels)
    with Ledger() as ledger:
        runs = {system.label: ledger.run(system.runs[dataset.name]) for system in select(ledger, SYSTEMS)}
    if folder.name == "medline":
        first = next(iter(runs.values()))
        ranked = {query: [d for d in first[query].documents if d in judged] for query, judged in full.items()}
        kept = {query: dict.fromkeys((ranked[query] or list(full[query]))[:PUBLISHED], 1) for query in full}
        pool = HolePool.of(kept, runs, MEASURE)
        pairs = [pool.pairs[place] for place in pool.holes]
        return pool, np.array([float(document in full[query]) for query, document in pairs])
    pool, chance = HolePool.of(full, runs, MEASURE), np.random.default_rng(seed)
    of_query = chance.normal(size=len(pool.queries))[pool.asked[pool.holes]]
    lean = 0.9 * pool.votes + 0.8 * of_query + 0.5 * chance.normal(size=len(pool.holes)) - 3.0
    return pool, (chance.random(len(lean)) < 1 / (1 + np.exp(-lean))).astype(float)


def judge(kind: str, pool: HolePool, truth: Floats, chance: np.random.Generator) -> Floats:
    """Return the labels of a judge with planted errors."""
    rates = {
        "symmetric": np.full(len(truth), 0.1),
        "lenient": np.where(truth > 0, 0.05, 0.2),
        "by rank": np.where(truth > 0, 0.1, 0.3 / (1 + np.exp(-pool.votes))),
    }
    return np.where(chance.random(len(truth)) < rates[kind], 1 - truth, truth)


def simulate(pool: HolePool, truth: Floats, kind: str, humans: int, rounds: int) -> list[str]:
    """Return the cells of a row."""
    target = pool.values(truth).mean(axis=1)
    published = pool.values(np.zeros(len(truth))).mean(axis=1)
    chance = np.random.default_rng(11)
    ends, means, filled = [], [], []
    for round_ in range(rounds):
        labels = judge(kind, pool, truth, chance)
        sample = chance.choice(len(truth), humans, replace=False)
        result = correct(pool, labels, sample, truth[sample], draws=16, resamples=1_000, seed=round_)
        ends.append([result.figure(system).ends for system in range(len(SYSTEMS))])
        means.append(result.means)
        filled.append(pool.values(labels).mean(axis=1))
    low, high = np.moveaxis(np.array(ends), 2, 0)
    covered = 100 * ((low <= target) & (target <= high)).mean(axis=0)
    widths = 100 * (high - low).mean(), 392 * np.std(means, axis=0).mean()
    averages = (published, np.mean(filled, axis=0), np.mean(means, axis=0))
    biases = [100 * (row - target)[np.abs(row - target).argmax()] for row in averages]
    taus = [np.mean([kendall(row, target) for row in rows]) for rows in ([published], filled, means)]
    return [
        *(f"{covered.mean():.1f}", f"{covered.min():.1f} to {covered.max():.1f}"),
        *(f"{width:.1f}" for width in widths),
        *(f"{bias:+.1f}" for bias in biases),
        *(f"{tau:.2f}" for tau in taus),
    ]


def main(data: str, rounds: str = "500") -> None:
    print(
        "| collection | judge | humans | held | of systems | width | spread | published | filled | corrected"
        " | tau | | |"
    )
    print(f"|---|---|{'---:|' * 11}")
    for name in ("medline", "scifact"):
        pool, truth = hide_labels(Path(data) / name)
        print(f"{name}: {len(truth):,} holes, {100 * truth.mean():.1f}% relevant", file=sys.stderr)
        for kind in JUDGES:
            for humans in HUMANS:
                row = simulate(pool, truth, kind, humans, int(rounds))
                print("|", " | ".join([name, kind, str(humans), *row]), "|", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

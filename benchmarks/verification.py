"""Positives that do not belong, planted into a task: how many of them `diagnose --verify` puts into the audit queue.

    python benchmarks/verification.py TASK VERIFIER [--planted 60] [--distractors 30] [--seed 7]

Each chosen query gets one positive more: an unjudged document that bm25 has in places 11 to 50 (`hard`), or
any other (`random`). The queue is what the verifier ranks last; the task's own positives in it are false alarms, as far
as the task's labels are right.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace

import r2med
from r2med.data.dataset import Dataset, Gold
from r2med.data.run import Run
from r2med.diagnosis.verification import VerificationStudy, parse_verifier, verify
from r2med.measure.score import score
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import HEADLINE, LoadedRun
from r2med.pipeline.system import System
from r2med.runs.ledger import Entry, Ledger


def plant(data: Dataset, run: Run, kind: str, count: int, seed: int) -> tuple[Dataset, set[tuple[str, str]]]:
    """The task with positives that do not belong, and these."""
    chance = random.Random(f"{kind}\t{seed}")
    qrels = {query: dict(judged) for query, judged in data.gold.qrels.items()}
    planted = set()
    for query in chance.sample(sorted(qrels), count):
        choice = run[query].documents[10:50] if kind == "hard" else data.collection.documents.ids
        document = chance.choice([name for name in choice if name not in qrels[query]])
        qrels[query][document] = 1
        planted.add((query, document))
    return replace(data, gold=Gold(qrels)), planted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("verifier")
    parser.add_argument("--planted", type=int, default=60)
    parser.add_argument("--distractors", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    result = r2med.evaluate("bm25", asked.task).results[0]
    with Ledger() as ledger:
        run = ledger.run(ledger.get(result.id))
    data, verifier = r2med.load(asked.task), parse_verifier(asked.verifier)
    print("| planted | queries | bm25 | ceiling | queue | planted in it | of the planted | own positives in it |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind in ("none", "random", "hard"):
        changed, planted = plant(data, run, kind, 0 if kind == "none" else asked.planted, asked.seed)
        scores = score(run, changed.gold.qrels, [HEADLINE])
        values = dict(zip(scores.queries, scores.values(HEADLINE).tolist(), strict=True))
        entry = Entry("planted", System.parse("bm25").spec, changed.name, "custom", tuple(values), 0.0)
        loaded = LoadedRun(entry, changed, run, values, {})
        task = verify([loaded], [verifier], asked.distractors, Executor())
        row = task.systems[0]
        pairs = {(pair.query, pair.document) for pair in task.unverified}
        caught, own = len(pairs & planted), len(pairs - planted)
        own_count = sum(len(judged) for judged in loaded.positives.values()) - len(planted)
        share = f"{caught / len(planted):.0%}" if planted else "-"
        cells = (kind, row.queries, row.score, row.ceiling, len(pairs), caught, share, f"{own} ({own / own_count:.1%})")
        print(f"| {' | '.join(map(str, cells))} |")
        print(VerificationStudy([task]).sentences[0])


if __name__ == "__main__":
    main()

"""Does any signal say which queries need the strong system? Real expansions and a real encoder on SciFact.

For every pair of systems and every signal: how far its curve lies above a random choice of queries (all queries,
corrected after Holm), and a route tuned on one half of the queries and measured on the other, over random halves.

    python benchmarks/routing.py path/to/scifact [--halves 20] [--no-minilm]

`path/to/scifact/expansions` holds the generated queries, as `id<TAB>text`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from r2med.formatting import p_text
from r2med.measure.metrics import Measure
from r2med.pipeline.evaluate import evaluate
from r2med.runs.ledger import Ledger
from r2med.tuning.routes import read_pair
from r2med.tuning.study import TuneOptions, tune

NDCG = Measure("nDCG@10")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--halves", type=int, default=20)
    parser.add_argument("--no-minilm", action="store_true")
    arguments = parser.parse_args()
    task = str(arguments.folder)
    files = sorted((arguments.folder / "expansions").glob("*.tsv"))
    strong = [f'replay("{file}") >> bm25' for file in files] + ([] if arguments.no_minilm else ["minilm"])
    report = evaluate(["bm25", "wordllama", *strong], task)
    for result in report.results:
        print(f"{100 * result.metrics['nDCG@10']:6.2f}  {result.system}")
    for spec in strong:
        _pair(spec, report.results[0].task, arguments.halves)


def _pair(strong: str, task: str, halves: int) -> None:
    with Ledger() as ledger:
        pair = read_pair(ledger, ("bm25", strong, "wordllama"), [task], NDCG)
    ends = pair.curves[0].points
    print(
        f"\nbm25 {100 * ends[0].score:.2f} to {pair.strong} {100 * ends[-1].score:.2f},"
        f" {len(pair.tasks[0].queries)} queries"
    )
    print(
        "| signal | over chance | 95% interval | p (Holm) | tuned, other half: over chance | spread | halves above 0 |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for curve in pair.curves:
        found = tune(
            f"route(bm25, {strong}, by={curve.signal})", [task], None, TuneOptions(NDCG, halves=halves, budget=0.5)
        )
        above = found.over_chance
        assert above is not None
        gain = curve.advantage
        print(
            f"| {curve.signal} | {100 * gain.mean:+.2f} | {100 * gain.low:+.2f} to {100 * gain.high:+.2f} |"
            f" {p_text(curve.corrected)} | {100 * above.mean():+.2f} | {100 * above.std(ddof=1):.2f} |"
            f" {int(np.sum(above > 0))} of {len(above)} |"
        )
    queries = pair.tasks[0]
    best = np.maximum(queries.cheap, queries.strong).mean()
    gain = 100 * (best - queries.strong.mean())
    print(f"A perfect choice of queries: {100 * best:.2f}, {gain:+.2f} to the strong system.")


if __name__ == "__main__":
    main()

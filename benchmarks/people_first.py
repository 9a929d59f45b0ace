"""How much earlier do people meet what is relevant if what all members of a committee found is dealt first?

    python benchmarks/people_first.py

SciFact and Medline, whose judgements are known. The pool of a question is what `bm25` and `wordllama` have among their
first ten; reported are the pairs and known positives that both found and that one found, and what part of the
positives in the pool is met after a quarter and half of the pairs, in this order and (in parentheses) in a random one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import needs
import r2med
from r2med.runs.ledger import Ledger

MEMBERS = ("bm25", "wordllama")
DEPTH = 10


def main() -> None:
    print("| collection | pairs | of both | positives | of both | met after 1/4 | after 1/2 |")
    print("|---|" + "---:|" * 6)
    with tempfile.TemporaryDirectory() as home:
        os.environ["R2MED_HOME"] = home
        for name in ("scifact", "medline"):
            both, one = pools(needs.collection(name))
            pairs, positives = len(both) + len(one), sum(both) + sum(one)
            met = []
            for part in (0.25, 0.5):
                first = min(part * pairs, len(both))
                seen = sum(both) * first / len(both) + sum(one) * (part * pairs - first) / len(one)
                met.append(f"{seen / positives:.0%} ({part:.0%})")
            counts = f"{pairs:,} | {len(both):,} | {positives:,} | {sum(both):,}"
            print(f"| {name} | {counts} | {' | '.join(met)} |")


def pools(folder: Path) -> tuple[list[bool], list[bool]]:
    """Whether each pair is relevant, of those that all members found and of the others."""
    report = r2med.evaluate(list(MEMBERS), str(folder))
    relevant = r2med.load(folder).gold.qrels
    both: list[bool] = []
    one: list[bool] = []
    with Ledger() as ledger:
        runs = [ledger.run(ledger.get(result.id)) for result in report.results]
    for query, judged in relevant.items():
        finds = [set(run[query].documents[:DEPTH]) for run in runs]
        for document in set.union(*finds):
            (both if document in set.intersection(*finds) else one).append(judged.get(document, 0) > 0)
    return both, one


if __name__ == "__main__":
    main()

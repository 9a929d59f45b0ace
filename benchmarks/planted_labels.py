"""Label sets with known errors: the judged pool of a task's runs, and the same with a share of its judgements flipped.

    python benchmarks/planted_labels.py TASK OUT [RATE] [SEED]

The pool holds what the task judges and the first ten documents of every run of the task in the ledger; a document that
the task does not judge is 0, as in its scores. Written are OUT/pool.tsv and OUT/planted.tsv. In the second each
judgement is flipped with the probability RATE (0.05 unless told): a relevant document becomes 0, any other becomes 1.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from r2med.data.loader import load
from r2med.runs.ledger import Ledger

DEPTH = 10


def pool(task: str) -> dict[str, dict[str, int]]:
    """What the task judges, and 0 for what its runs have among their first ten besides."""
    dataset = load(task)
    found = {query: dict(judged) for query, judged in dataset.gold.qrels.items()}
    with Ledger() as ledger:
        for entry in sorted(ledger.entries(), key=lambda entry: entry.system):
            if entry.task == dataset.name:
                for query, ranking in ledger.run(entry):
                    for document in ranking.documents[:DEPTH]:
                        found[query].setdefault(document, 0)
    return found


def plant(labels: Mapping[str, Mapping[str, int]], rate: float, seed: int) -> tuple[dict[str, dict[str, int]], int]:
    """The labels with errors, and how many there are."""
    chance = np.random.default_rng(seed)
    planted: dict[str, dict[str, int]] = {}
    for query, judged in labels.items():
        wrong = chance.random(len(judged)) < rate
        planted[query] = {
            document: int(grade < 1) if flip else grade
            for (document, grade), flip in zip(judged.items(), wrong, strict=True)
        }
    errors = sum(
        planted[query][document] != grade for query, judged in labels.items() for document, grade in judged.items()
    )
    return planted, errors


def write(path: Path, labels: Mapping[str, Mapping[str, int]]) -> None:
    rows = [f"{query}\t{document}\t{grade}\n" for query, judged in labels.items() for document, grade in judged.items()]
    path.write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), "utf-8")


def main(task: str, out: str, rate: str = "0.05", seed: str = "7") -> int:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    labels = pool(task)
    planted, errors = plant(labels, float(rate), int(seed))
    write(folder / "pool.tsv", labels)
    write(folder / "planted.tsv", planted)
    judged = sum(map(len, labels.values()))
    print(f"{errors:,} of {judged:,} judgements flipped ({100 * errors / judged:.2f}%)", file=sys.stderr)
    return errors


if __name__ == "__main__":
    main(*sys.argv[1:])

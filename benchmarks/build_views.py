"""Does mining from several views find more of what is known to be relevant?

    python benchmarks/build_views.py

The 300 claims of SciFact, whose judgements are known. As answer and reasoning stand two real texts of GPT-4.1 about
each claim (the published Query2doc and LameR expansions). A pool is what `bm25` finds to a depth; reported are the
known positives in the pool of each view alone, of one view at three times the depth, and of all three together.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "build"))

import test_build_truth
from test_build_truth import Truth, found, pools

import needs
from r2med.construction.builder import Builder

DEPTHS = (5, 10, 20)
VIEWS = ("question", "answer", "reasoning")


def main() -> None:
    test_build_truth.QUERIES = 300
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MED_HOME"] = f"{folder}/home"
        truth = Truth(needs.collection("scifact"))
        known = sum(grade > 0 for name in truth.claims.values() for grade in truth.dataset.gold.qrels[name].values())
        print(f"{len(truth.claims)} claims, {known} known positives")
        for depth in DEPTHS:
            own = mined(truth, Path(folder) / str(depth), depth)
            deep = mined(truth, Path(folder) / f"{depth}-deep", depth * len(VIEWS))
            for name, built, view in (
                *((f"{view} alone", own, view) for view in VIEWS),
                (f"question alone, depth {depth * len(VIEWS)}", deep, "question"),
                ("all three", own, ""),
            ):
                pool = pools(built, view)
                share, pairs = found(truth, pool) / known, sum(map(len, pool.values()))
                print(f"depth {depth}: {name}: {share:.1%} of the positives among {pairs:,} pairs")


def mined(truth: Truth, place: Path, depth: int) -> Builder:
    """A build until its pools are there."""
    return truth.build(place, [truth.judge("nobody", 0.0)], "mine", mine={"depth": depth})


if __name__ == "__main__":
    main()

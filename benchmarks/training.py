"""Does the bridge help at this size? MiniLM trained for minutes on bridge data, beside plain question-passage pairs.

    nice python benchmarks/training.py [--steps 30] [--data FOLDER] [--work FOLDER]

SciFact's documents are parted: all that is evidence for a claim, and some more, is searched by the claims, which people
wrote; questions are written from the others. So neither questions nor sources are shared. A function stands in for the
language model, since none that reasons runs here: it asks with the content words of two sentences of a passage, without
its three most telling terms, which are the answer; the bridge is a sentence that has them. It judges a passage to be
evidence if it has two of these terms. `r2med train data` does the rest.

Two models are trained from the same base for the same steps, rates and seeds: on those rows (positives are other
passages than the source; hard negatives), and on the same questions paired with their source, other passages of the
batch being the negatives. A third, with --no-negatives, has the bridge's positives alone. Needs the extras train,
minilm, llm and build.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import polars as pl
from scipy import stats

import r2med
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.scripted import scripted
from r2med.llm.types import Request
from r2med.measure.bootstrap import task_intervals
from r2med.pipeline.executor.local import quiet
from r2med.training import data as making
from r2med.training.data import DataMaker, GateRules
from r2med.training.rows import read_training_file, write_training_file
from r2med.training.run import TrainingPlan, train
from r2med.training.settings import (
    CheckpointSettings,
    DevSettings,
    LossSettings,
    OptimizerSettings,
    RunSettings,
    read_settings,
    with_models,
)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
MEASURE = "nDCG@10"
BARE = "bridge, no negatives"
PAIRS = (("plain", "base"), ("bridge", "base"), (BARE, "base"), ("bridge", "plain"), (BARE, "plain"), ("bridge", BARE))
WORD = re.compile(r"[a-z][a-z0-9-]+")


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_lines(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def part(data: Path, work: Path, searched: int, written: int) -> None:
    """The documents that claims search, as a task, and those that questions are written from, as a table."""
    qrels = [line.split("\t") for line in (data / "qrels/test.tsv").read_text().splitlines()[1:]]
    gold = {document for _, document, score in qrels if int(score) > 0}
    rng = np.random.default_rng(0)
    corpus = {row["_id"]: row for row in lines(data / "corpus.jsonl")}
    others = [name for name in corpus if name not in gold]
    rng.shuffle(others)
    room = searched - len(gold)
    write_lines(work / "claims/corpus.jsonl", [corpus[name] for name in (*sorted(gold), *others[:room])])
    write_lines(work / "claims/queries.jsonl", lines(data / "queries.jsonl"))
    (work / "claims/qrels").mkdir(exist_ok=True)
    (work / "claims/qrels/test.tsv").write_bytes((data / "qrels/test.tsv").read_bytes())
    rows = [
        {"id": name, "text": f"{corpus[name]['title']}. {corpus[name]['text']}"} for name in others[room:][:written]
    ]
    write_lines(work / "documents.jsonl", rows)


class StandIn:
    """A function in place of a language model that writes, judges and types by words alone."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in set(WORD.findall(text.lower())))
        self._idf = {word: math.log(len(texts) / count) for word, count in counts.items() if 3 <= count <= 40}
        self._common = {word for word, count in counts.items() if count > len(texts) / 8}

    def answer(self, request: Request) -> str:
        prompt = request.messages[-1].content
        if prompt.startswith("Read the passage"):
            return self._write(_between(prompt, "\nPassage:\n", "\n\nReply"))
        if prompt.startswith("You judge whether"):
            return self._judge(prompt)
        passage = _between(prompt, "\nPassage:\n", "\n\nChoose").lower()
        return "Class: same-topic" if any(word in passage for word in self._terms(prompt)) else "Class: shared-words"

    def _write(self, passage: str) -> str:
        counts = Counter(WORD.findall(passage.lower()))
        telling = sorted(self._idf.keys() & counts.keys(), key=lambda word: -counts[word] * self._idf[word])[:3]
        sentences = [sentence for sentence in re.split(r"(?<=[.!?])\s+", passage) if len(sentence.split()) > 6]
        if len(telling) < 3 or len(sentences) < 4:
            return json.dumps({"question": "", "answer": "", "bridge": ""})
        asked = [word for sentence in sentences[2:4] for word in self._content(sentence) if word not in telling]
        led = next((sentence for sentence in sentences if telling[0] in sentence.lower()), sentences[0])
        question = f"What explains {' '.join(asked[:30])}?"
        return json.dumps({"question": question, "answer": " and ".join(telling), "bridge": led})

    def _content(self, sentence: str) -> list[str]:
        return [word for word in WORD.findall(sentence.lower()) if word not in self._common]

    def _terms(self, prompt: str) -> list[str]:
        return _between(prompt, "Correct answer:\n", "\n").split(" and ")

    def _judge(self, prompt: str) -> str:
        words = set(WORD.findall(_between(prompt, "\nPassage:\n", "\n\nGive two").lower()))
        shared = len(words & set(self._terms(prompt)))
        grades = {0: (0, 0), 1: (0, 1)}.get(shared, (3, 3))
        return json.dumps({"answers": grades[0], "supports": grades[1], "reason": f"{shared} terms", "quote": ""})


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


def make_data(work: Path, questions: int) -> Path:
    """Bridge data by the verb's own code; the claims are what it must not leak."""
    out = work / "bridge.parquet"
    model = StandIn([row["text"] for row in lines(work / "documents.jsonl")])
    add_model(scripted(model.answer, "stand-in"))
    making.ALWAYS = (str(work / "claims"),)  # type: ignore[assignment]
    tables = {"write": {"questions": questions}, "chunk": {"tokens": 0}, "mine": {"depth": 15}, "parts": {"dev": 0.0}}
    settings = with_models(read_settings(None, tables), "stand-in", "")
    with session():
        made = DataMaker(str(work / "documents.jsonl"), out, settings, quiet()).run(GateRules(drop_leaking=True))
    print(f"bridge data: {made.record['rows']}, types {made.record['types']}, left out {made.gate.dropped}", flush=True)
    return out


def plain_data(bridge: Path, work: Path) -> Path:
    """The same questions, each with the passage that it was written from as its only positive."""
    file = read_training_file(bridge)
    texts = {row["id"]: row["text"] for row in lines(work / "documents.jsonl")}
    rows = file.rows.to_dicts()
    for row in rows:
        source = {"id": row["source"], "text": texts[row["source"]], "score": 1.0, "reason": "", "link": None}
        row["positives"], row["negatives"] = [source], []
    return _write_rows(file.rows.schema, rows, work / "plain.parquet", dict(file.record))


def positives_only(bridge: Path, work: Path) -> Path:
    """Bridge data without its negatives."""
    file = read_training_file(bridge)
    rows = [row | {"negatives": []} for row in file.rows.to_dicts()]
    return _write_rows(file.rows.schema, rows, work / "positives.parquet", dict(file.record))


def _write_rows(schema: pl.Schema, rows: list[dict[str, object]], path: Path, record: dict[str, object]) -> Path:
    record.pop("fingerprint")
    write_training_file(path, pl.DataFrame(rows, schema=schema), record)
    return path


@click.command()
@click.option("--data", default=SHARED / "scifact", type=click.Path(path_type=Path))
@click.option(
    "--work",
    required=True,
    type=click.Path(path_type=Path),
    help="For data and models; a model that is there is taken.",
)
@click.option("--steps", default=30, show_default=True)
@click.option("--batch", default=16, show_default=True)
@click.option("--questions", default=400, show_default=True)
@click.option("--searched", default=700, show_default=True, help="Documents that the claims search.")
@click.option("--written", default=1200, show_default=True, help="Documents that questions are written from.")
@click.option("--length", default=96, show_default=True, help="Tokens of a text.")
@click.option("--seeds", default="0", show_default=True, help="One training an arm for each, by commas.")
@click.option("--no-negatives", is_flag=True, help="A third model, on the bridge's positives alone.")
def main(
    data: Path, work: Path, steps: int, batch: int, length: int, seeds: str, no_negatives: bool, **given: int
) -> None:
    """Print the claims' nDCG@10 by the base and by each trained model, and differences, with intervals."""
    part(data, work, given["searched"], given["written"])
    bridge = make_data(work, given["questions"])
    arms = {"plain": plain_data(bridge, work), "bridge": bridge}
    arms |= {BARE: positives_only(bridge, work)} if no_negatives else {}
    chosen = OptimizerSettings(steps=steps, batch=batch, max_length=length, learning_rate=3e-5)
    settings = RunSettings(
        chosen, LossSettings(mini_batch=16), checkpoints=CheckpointSettings(every=steps), dev=DevSettings(every=steps)
    )
    systems = {"base": [f"minilm(max_length={length})"]}
    for name, file in arms.items():
        for seed in map(int, seeds.split(",")):
            folder = work / f"{file.stem}-{seed}"
            started = time.perf_counter()
            rows = 2 if name == "bridge" else 0
            wanted = replace(settings, train=replace(chosen, seed=seed, negatives=rows))
            if not folder.exists():
                train(TrainingPlan([read_training_file(file)], "minilm", "dense", wanted), folder)
            print(f"trained {name}, seed {seed}: {time.perf_counter() - started:.0f} s", flush=True)
            systems.setdefault(name, []).append(str(folder))
    show(systems, work / "claims")


def show(systems: dict[str, list[str]], task: Path) -> None:
    """Mean over seeds for each claim, then over claims, with the interval of claims; beside it, every seed's mean."""
    found = {name: np.array([_claims(spec, task) for spec in specs]) for name, specs in systems.items()}
    for name, rows in found.items():
        print(f"{name:22} {MEASURE} {task_intervals(rows.mean(axis=0))[0]}, seeds {_means(rows)}", flush=True)
    for one, other in PAIRS:
        if one in found and other in found:
            rows = found[one] - found[other]
            print(f"{one} - {other}: {task_intervals(rows.mean(axis=0))[0]}, seeds {_means(rows)}", flush=True)


def _claims(spec: str, task: Path) -> np.ndarray:
    report = r2med.evaluate(spec, task, measures=[MEASURE])
    if report.failures:
        raise click.ClickException(report.failures[0].message)
    return report.per_query()[MEASURE].to_numpy()


def _means(rows: np.ndarray) -> str:
    """Each seed's mean, and the interval that Student's t makes of them."""
    means = 100 * rows.mean(axis=1)
    told = " ".join(f"{mean:.2f}" for mean in means)
    if len(means) < 2:
        return told
    half = stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
    return f"{told}, mean {means.mean():.2f} [{means.mean() - half:.2f}, {means.mean() + half:.2f}]"


if __name__ == "__main__":
    main()

"""Leakage: what each method finds of planted overlaps, and what a check of many rows costs.

    python benchmarks/leakage.py planted [--shared DATA]
    python benchmarks/make_data.py FOLDER
    python benchmarks/leakage.py speed FOLDER [--rows 1000000]
    python benchmarks/leakage.py worst FOLDER [--rows 20000] [--forms 500]

*planted*: the evaluation is every other abstract of SciFact as documents and the 103 Biology posts of R2MED as
queries. The training rows are the other abstracts and Medline's, each cut into two fields, and among them rows that
hold an evaluation text: as it is, in other case and punctuation, within more text, its sentences shuffled, or with 5,
10 or 20 of a hundred words replaced by words of other texts. Recall is the share of planted pairs that a method alone
finds; precision is the share of planted ones among all pairs it finds.

*speed*: rows of a query (about 30 words) and two passages (about 100 words each) against the eight tasks of
make_data.py. Their sentences are those of the tasks with their words in another order, so that words are as frequent
as they are in life while no run of 13 words is shared by accident; one row in a hundred holds a document of a task,
every other one of these with a tenth of its words replaced. Wall time and peak memory are the operating system's
figures for the whole process, first with an empty cache, then with the index of the first run.

*worst*: training data made to have as many pairs as it can. "sentences" are rows as above whose sentences are the
tasks' own, as they stand: each stands in dozens of documents. "forms" adds a ninth task of 30,000 documents that
differ in two words of sixty, and of one such text under 10,000 ids; its rows differ from them as they do from each
other, so that each row is found with all 40,000. The index is made before the clock starts.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import orjson
from make_data import SHARED, SIZES, real_sentences

from r2med.leakage.check import check
from r2med.leakage.index import METHODS, Settings

HERE = Path(__file__).resolve().parent
Pairs = set[tuple[int, str]]
"""A line of training data, and the id of the text it holds."""


def sentences_of(text: str) -> list[str]:
    """A text cut after its full stops."""
    return [part for part in re.split(r"(?<=[.?!])\s+", text) if part]


class Planter:
    """Changes texts in the ways in which they come back in training data."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.random = random.Random(13)
        self.ways: Mapping[str, Callable[[str], str]] = {
            "exact": lambda text: text,
            "re-spelt": self.respelt,
            "embedded": lambda text: f"{self.some(40)} {text} {self.some(40)}",
            "reordered": self.reordered,
            "5% changed": lambda text: self.replaced(text, 0.05),
            "10% changed": lambda text: self.replaced(text, 0.1),
            "20% changed": lambda text: self.replaced(text, 0.2),
        }

    def some(self, count: int) -> str:
        """Words of other texts."""
        return " ".join(self.random.choices(self.words, k=count))

    def respelt(self, text: str) -> str:
        """Upper case, other marks, other spacing."""
        return re.sub(r"[^\w\s]", " - ", text.upper()).replace(" ", "  ")

    def reordered(self, text: str) -> str:
        """The sentences in another order."""
        parts = sentences_of(text)
        mixed = parts.copy()
        while len(set(parts)) > 1 and mixed == parts:
            self.random.shuffle(mixed)
        return " ".join(mixed)

    def replaced(self, text: str, share: float) -> str:
        """So many words replaced."""
        words = text.split()
        for place in self.random.sample(range(len(words)), max(1, round(share * len(words)))):
            words[place] = self.random.choice(self.words)
        return " ".join(words)


@dataclass(frozen=True)
class Texts:
    """What the planted benchmark is made of."""

    documents: dict[str, str]
    queries: dict[str, str]
    others: list[str]


def read_texts(shared: Path) -> Texts:
    """Evaluation texts, and abstracts that are none."""

    def rows(path: Path) -> Iterator[tuple[str, str]]:
        for line in path.read_bytes().splitlines():
            row = orjson.loads(line)
            yield str(row["_id"]), f"{row.get('title', '')} {row['text']}".strip()

    # Each text once: SciFact has some abstracts under two ids, which would be no false finds.
    scifact = list({text: name for name, text in rows(shared / "scifact" / "corpus.jsonl")}.items())
    medline = [text for _, text in rows(shared / "medline" / "corpus.jsonl")]
    queries = {f"q{name}": text for name, text in rows(shared / "r2med-biology" / "queries.jsonl")}
    documents = {f"d{name}": text for text, name in scifact[::2]}
    return Texts(documents, queries, [*[text for text, _ in scifact[1::2]], *medline])


def write_task(folder: Path, texts: Texts) -> None:
    """The evaluation as a folder; which documents are judged relevant does not matter."""
    folder.mkdir()
    judged = zip(texts.queries, texts.documents, strict=False)
    write(folder / "corpus.jsonl", ({"id": name, "text": text} for name, text in texts.documents.items()))
    write(folder / "query.jsonl", ({"id": name, "text": text} for name, text in texts.queries.items()))
    write(folder / "qrels.jsonl", ({"q_id": query, "p_id": document, "score": 1} for query, document in judged))


def write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write JSON lines."""
    with path.open("wb") as stream:
        stream.writelines(orjson.dumps(row) + b"\n" for row in rows)


def write_planted(path: Path, texts: Texts) -> dict[str, Pairs]:
    """Training rows; for each way of planting, which rows hold which texts."""
    planter = Planter([word for text in texts.others for word in text.split()])
    chosen = planter.random.sample(sorted(texts.documents.items()), 200) + sorted(texts.queries.items())
    rows: list[tuple[str, str, dict[str, object]]] = []
    for text in texts.others:
        words = text.split()
        parts = {"query": " ".join(words[: len(words) // 3]), "pos": [" ".join(words[len(words) // 3 :])]}
        rows.append(("", "", parts))
    for way, change in planter.ways.items():
        rows += [(way, name, {"query": planter.some(20), "pos": [change(text)]}) for name, text in chosen]
    planter.random.shuffle(rows)
    write(path, (row for *_, row in rows))
    planted: dict[str, Pairs] = {way: set() for way in planter.ways}
    for line, (way, name, _) in enumerate(rows, 1):
        if way:
            planted[way].add((line, name))
    return planted


def found_pairs(train: Path, task: Path, out: Path, settings: Settings) -> Pairs:
    """All pairs that the given methods find."""
    check([train], [task], settings, out=out)
    return {(row["line"], row["id"]) for row in map(orjson.loads, out.read_bytes().splitlines())}


@click.group()
def main() -> None:
    """Measure `r2med leakage`."""


@main.command()
@click.option("--shared", default=SHARED, type=click.Path(path_type=Path), help="Where the real collections lie.")
def planted(shared: Path) -> None:
    """Recall and precision of each method on planted overlaps."""
    entries = {method: Settings(methods=(method,)) for method in METHODS if method != "near"}
    entries |= {f"near {value}": Settings(methods=("near",), threshold=value) for value in (0.5, 0.6, 0.7, 0.8)}
    entries |= {"all methods": Settings()}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["R2MED_HOME"] = str(folder / "home")
        texts = read_texts(shared)
        write_task(folder / "task", texts)
        ways = write_planted(folder / "train.jsonl", texts)
        everything = set().union(*ways.values())
        total = len(texts.documents) + len(texts.queries)
        click.echo(f"{total:,} evaluation texts, {len(texts.others):,} other rows, {len(everything):,} planted rows")
        click.echo(f"{'recall of':14}" + "".join(f"{way:>13}" for way in ways) + f"{'precision':>13}{'false':>8}")
        for label, settings in entries.items():
            pairs = found_pairs(folder / "train.jsonl", folder / "task", folder / "pairs.jsonl", settings)
            recall = [f"{len(pairs & wanted) / len(wanted):13.3f}" for wanted in ways.values()]
            right = len(pairs & everything)
            precision = f"{right / len(pairs):13.4f}" if pairs else f"{'-':>13}"
            click.echo(f"{label:14}{''.join(recall)}{precision}{len(pairs) - right:8}")


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--rows", default=1_000_000, show_default=True, type=click.IntRange(1000), help="Training rows.")
@click.option("--shared", default=SHARED, type=click.Path(path_type=Path), help="Where scifact/ and medline/ lie.")
def speed(folder: Path, rows: int, shared: Path) -> None:
    """Wall time and peak memory of a check of many rows against the tasks in FOLDER."""
    tasks = tasks_in(folder)
    with tempfile.TemporaryDirectory() as place:
        train = Path(place) / "train.jsonl"
        wanted = write_rows(train, rows, tasks, real_sentences(shared))
        size = train.stat().st_size / 1e6
        click.echo(f"{rows:,} rows ({size:,.0f} MB), {len(tasks)} tasks, {os.cpu_count()} cores")
        for label in ("empty cache", "cached index"):
            load = os.getloadavg()[0]
            wall, megabytes, answer = run(Path(place) / "home", str(train), "--tasks", *tasks, "--json")
            held = sum(file.stat().st_size for file in (Path(place) / "home").rglob("*") if file.is_file()) / 1e6
            click.echo(
                f"{label}: {wall:.0f} s, peak {megabytes:,.0f} MB, cache {held:,.0f} MB, load before {load:.1f}; "
                f"rows affected {answer['affected_rows_with_documents']:,} of {wanted:,} planted"
            )


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--rows", default=20_000, show_default=True, type=click.IntRange(1), help="Rows of sentences.")
@click.option("--forms", default=500, show_default=True, type=click.IntRange(1), help="Rows of forms.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Where the index stays between calls.")
def worst(folder: Path, rows: int, forms: int, home: Path | None) -> None:
    """Pairs, wall time and peak memory of checks in which nearly everything is found, many times over."""
    tasks = tasks_in(folder)
    with tempfile.TemporaryDirectory() as place:
        home, task, train = home or Path(place) / "home", Path(place) / "forms", Path(place) / "train.jsonl"
        write_forms(task)
        nothing = [{"text": "none of this occurs in any of the tasks"}]
        write(train, nothing)
        run(home, str(train), "--tasks", *tasks, str(task), "--json")
        kinds: dict[str, tuple[list[str], Iterable[Mapping[str, object]]]] = {
            "nothing": (tasks, nothing),
            "sentences": (tasks, sentence_rows(tasks, rows)),
            "forms": ([*tasks, str(task)], ({"text": form(number)} for number in range(forms))),
        }
        for label, (against, training) in kinds.items():
            write(train, training)
            load = os.getloadavg()[0]
            wall, megabytes, answer = run(home, str(train), "--tasks", *against, "--json")
            click.echo(
                f"{label}: {answer['rows']:,} rows, {answer['pairs']:,} pairs, {wall:.0f} s, "
                f"peak {megabytes:,.0f} MB, load before {load:.1f}"
            )


def tasks_in(folder: Path) -> list[str]:
    """The folders of tasks that make_data.py wrote."""
    return [str(folder / name) for name in SIZES if (folder / name).is_dir()]


def sentence_rows(tasks: Sequence[str], rows: int) -> Iterator[dict[str, object]]:
    """Rows of sentences of the tasks' documents."""
    chance = random.Random(13)
    pool = []
    for task in tasks:
        for line in (Path(task) / "corpus.jsonl").read_bytes().splitlines()[:2000]:
            pool += sentences_of(orjson.loads(line)["text"])
    for _ in range(rows):
        first, *rest = chance.choices(pool, k=9)
        yield {"query": first, "pos": [" ".join(rest[:4])], "neg": [" ".join(rest[4:])]}


def form(number: int) -> str:
    """A text of sixty words, two of which depend on the number."""
    words = [f"word{place}" for place in range(60)]
    words[20], words[40] = f"name{number}", f"date{number % 365}"
    return " ".join(words)


def write_forms(folder: Path) -> None:
    """A task of documents that are nearly or entirely the same."""
    documents = {f"d{number}": form(1_000_000 + number) for number in range(30_000)}
    documents |= {f"copy{number}": form(0) for number in range(10_000)}
    write_task(folder, Texts(documents, {"q0": "what does the form of word0 and word1 say"}, []))


def write_rows(path: Path, rows: int, tasks: Sequence[str], sentences: list[list[str]]) -> int:
    """Training rows of real words; how many hold a document."""
    planter = Planter([word for sentence in sentences[:5000] for word in sentence])
    # A chemical name of many parts stays in order when words are shuffled, and would be a run of 13 words by itself.
    plain = [[word for word in sentence if len(re.findall(r"\w+", word)) < 4] for sentence in sentences]
    pool = [" ".join(planter.random.sample(words, len(words))) for words in plain if len(words) > 5]
    documents = [line for task in tasks for line in (Path(task) / "corpus.jsonl").read_bytes().splitlines()[:2000]]
    draw, planted = planter.random.choices, 0
    with path.open("wb") as stream:
        for number in range(rows):
            row = {"query": draw(pool)[0], "pos": [" ".join(draw(pool, k=4))], "neg": [" ".join(draw(pool, k=4))]}
            if number % 100 == 50:
                text = orjson.loads(planter.random.choice(documents))["text"]
                row["pos"] = [text if planted % 2 else planter.replaced(text, 0.1)]
                planted += 1
            stream.write(orjson.dumps(row) + b"\n")
    return planted


def run(home: Path, *arguments: str) -> tuple[float, float, dict[str, int]]:
    """Seconds, megabytes and answer of the command line in a process of its own."""
    environment = {**os.environ, "R2MED_HOME": str(home), "PYTHONPATH": str(HERE.parent / "src")}
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", "r2med", "leakage", *arguments]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
        output = process.stdout.read().decode() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if not output:
            errors.seek(0)
            raise click.ClickException(errors.read().decode(errors="replace"))
    return wall, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3), json.loads(output)


if __name__ == "__main__":
    main()

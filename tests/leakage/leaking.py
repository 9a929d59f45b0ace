"""Small tasks to look for, and training files that hold parts of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.tasks import Task
from r2med.leakage.check import check
from r2med.leakage.findings import LeakageReport
from r2med.leakage.index import KINDS, METHODS, IndexedTask, Settings, index_task
from r2med.leakage.match import LeakHits, Matcher
from r2med.leakage.training import Block, TrainingRow
from r2med.pipeline.executor.local import quiet
from r2med.store.cache import Cache

WORDS = [f"{first}{second}" for first in "ba ce di fo gu ha ke li mo nu".split() for second in "ra se ti vo zu".split()]
Found = dict[tuple[int, str], tuple[str, float]]
"""A row and the id of a text, to the method and the score."""


def words(count: int, seed: int) -> str:
    """So many words drawn at random; texts of different seeds share no long run."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def changed(text: str, share: float, seed: int = 0) -> str:
    """A text with a share of its words replaced."""
    generator, parts = random.Random(seed), text.split()
    for place in generator.sample(range(len(parts)), max(1, round(share * len(parts)))):
        parts[place] = f"other{generator.randrange(1000)}"
    return " ".join(parts)


def dataset(
    documents: Sequence[str],
    queries: Sequence[str] = ("what is asked here by nobody",),
    positives: Sequence[int] = (0,),
) -> Dataset:
    """A task with documents d0, d1, ... and queries q0, q1, ...; the positives are relevant to the first query."""
    column = [
        Texts([f"{letter}{n}" for n in range(len(texts))], texts)
        for letter, texts in (("d", documents), ("q", queries))
    ]
    qrels = {f"q{n}": {f"d{place}": 1 for place in positives} for n in range(len(queries))}
    return Dataset(Collection(Task("mine", "mine", "custom"), *column), Gold(qrels))


def subject_of(data: Dataset, folder: Path, settings: Settings) -> IndexedTask:
    """A task that was indexed."""
    return index_task(data, settings, quiet(), Cache(folder / "cache"))


def find(data: Dataset, rows: Sequence[Sequence[str]], folder: Path, **settings: object) -> Found:
    """What rows of texts hold of a task, numbered from 1."""
    chosen = replace(Settings(), **settings)
    subject = subject_of(data, folder, chosen)
    block = Block.of([TrainingRow(number, list(texts), 0) for number, texts in enumerate(rows, 1)])
    found: Found = {}
    for _, hits in Matcher([subject], chosen).match(block):
        found |= named(subject, hits)
    return found


def named(subject: IndexedTask, hits: LeakHits) -> Found:
    columns = zip(hits.rows.tolist(), hits.texts.tolist(), hits.methods.tolist(), hits.scores.tolist(), strict=True)
    return {(row, subject.ids[text]): (METHODS[method], score) for row, text, method, score in columns}


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def pairs(report: LeakageReport) -> set[tuple[int, str, str, str, str]]:
    """The pairs of a report, all of which it must hold."""
    assert len(report.strongest) == report.pairs
    assert all(pair.kind in KINDS for pair in report.strongest)
    return {(pair.line, pair.task, pair.kind, pair.id, pair.method) for pair in report.strongest}


def checked(file: Path, *tasks: str, **settings: object) -> LeakageReport:
    return check([file], tasks or ["sample/Biology"], replace(Settings(), **settings), limit=1000)

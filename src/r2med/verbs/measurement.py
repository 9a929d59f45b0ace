"""The verbs `load`, `search` and `evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from r2med.data import load as load_task
from r2med.data.dataset import Dataset
from r2med.data.tasks import Task
from r2med.errors import R2medError
from r2med.measure.metrics import Measure
from r2med.pipeline.engine import quiet
from r2med.pipeline.evaluate import Options
from r2med.pipeline.evaluate import evaluate as run_and_measure
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context
from r2med.runs.report import Report
from r2med.storage.cache import Cache
from r2med.verbs.arguments import AnySystem, AnyTask, check_type, listed

_BEGINNING = 70  # characters of a text in a printed list


def load(
    task: Task | Path | str, *, split: str | None = None, revision: str | None = None, strict: bool = False
) -> Dataset:
    """The data of a task: by its name, or from a folder of your own.

    Queries without text and judgements of documents that are not there are left out, with a counted warning; with
    `strict` they are an error.

    >>> import r2med
    >>> r2med.load("sample/Biology")
    Dataset('sample/Biology', 9 queries, 64 documents)
    """
    check_type(task, (Task, Path, str), "a task is its name or a folder")
    return load_task(task, split=split, revision=revision, strict=strict)


@dataclass(frozen=True)
class Hit:
    """A document of a ranked list."""

    rank: int
    document: str
    """Its id."""
    score: float
    text: str

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        shown = text if len(text) <= _BEGINNING else text[: _BEGINNING - 1] + "…"
        return f"{self.rank:3}  {self.score:8.3f}  {self.document}  {shown}"


@dataclass(frozen=True, repr=False)
class Hits(Sequence[Hit]):
    """What a search found, best first: a sequence of `Hit`, which prints as a list."""

    system: str
    query: str
    hits: tuple[Hit, ...]

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __repr__(self) -> str:
        best = f", the first {self.hits[0].document!r}" if self.hits else ""
        return f"Hits({self.system!r}, {len(self.hits)} documents{best})"

    def __str__(self) -> str:
        return "\n".join(map(str, self.hits)) or "nothing was found"


def search(system: AnySystem, data: AnyTask, query: str, *, k: int = 10) -> Hits:
    """The best documents of a task for a query of your own, with their texts.

    >>> import r2med
    >>> hits = r2med.search("bm25", "sample/MedQA-Diag", "fatigue, golden-brown corneal rings", k=3)
    >>> len(hits), "copper" in hits[0].text
    (3, True)
    """
    check_type(query, (str,), "a query is a text")
    if not query.strip():
        raise R2medError("the query is empty")
    if not isinstance(k, int) or k < 1:
        raise R2medError(f"k must be a whole number from 1 on, not {k!r}")
    chosen = build_system(system)
    chosen.check()
    dataset = data if isinstance(data, Dataset) else load(data)
    ranking = chosen.search(dataset.collection, query, Context(Cache.default(), quiet()))
    documents = dataset.collection.documents
    rows = zip(ranking.documents[:k], ranking.scores[:k].tolist(), strict=True)
    hits = tuple(Hit(rank, name, score, documents.text(name)) for rank, (name, score) in enumerate(rows, 1))
    return Hits(chosen.spec, query, hits)


def evaluate(
    systems: AnySystem | Sequence[AnySystem],
    tasks: AnyTask | Sequence[AnyTask] = "sample",
    options: Options | None = None,
    *,
    measures: str | Measure | Sequence[str | Measure] = (),
    metrics: str | Measure | Sequence[str | Measure] = (),
    fresh: bool = False,
) -> Report:
    """Measure systems on tasks; what the ledger already has is taken from there unless `fresh` is asked for.

    `measures` (or `metrics`, which is the same) are printed in place of the usual one, a table each. Rarer
    settings are in `Options`.

    >>> import r2med
    >>> report = r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology", measures="Recall@10")
    >>> report
    Report(2 systems on 1 task)
    >>> report.measures[0], report.per_query().height
    ('Recall@10', 18)
    """
    if options is not None:
        check_type(options, (Options,), "settings are written Options(...), measures measures=[...]")
    chosen_systems = listed(systems)
    if not chosen_systems:
        raise R2medError("name at least one system, such as 'bm25'")
    if not listed(tasks):
        raise R2medError("name at least one task, such as 'sample/Biology'")
    for task in listed(tasks):
        check_type(task, (Dataset, Task, Path, str), "a task is its name, a folder or a Dataset")
    chosen = replace(options or Options(), fresh=True) if fresh else options
    asked = [Measure(each) if isinstance(each, str) else each for each in (*listed(measures), *listed(metrics))]
    for measure in asked:
        check_type(measure, (Measure,), "a measure is a text such as 'nDCG@10'")
    report = run_and_measure(chosen_systems, tasks, chosen, measures=asked)
    return replace(report, headline=tuple(map(str, asked)))

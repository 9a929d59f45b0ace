"""Pools that a review draws from: the judged pairs of tasks, the finds of runs, and all candidates of a build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from r2med.construction.plan import read_plan
from r2med.construction.pool import TASK as BUILT
from r2med.data.dataset import Dataset
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.errors import DataError, R2medError
from r2med.pipeline.named_runs import select
from r2med.reviews.scale import omit_grades
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import check_data

DEPTH = 10
"""A document is found when it is among so many: what nDCG@10 looks at."""
_BEYOND = DEPTH + 5
"""Lists are read as far as this, since what stands just below the cut lies near it."""


@dataclass
class Candidate:
    """A passage that could be reviewed for a question, with all facts on the pair."""

    query: str
    document: str
    label: int | None = None
    """The task's own grade; None if the pair is not judged."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Its place in the list of each run that has it."""
    margin: float | None = None
    """Of a build: by how much the judges' scores lie above the cuts."""
    spread: float | None = None
    """Of a build: how far its judges are apart."""
    facts: dict[str, Any] = field(default_factory=dict)
    """More that is known of where it came from."""

    @property
    def found(self) -> bool:
        """Return whether a run has it within the depth that is measured."""
        return any(rank <= DEPTH for rank in self.ranks.values())


@dataclass(frozen=True)
class TaskPool:
    """The candidates of one task."""

    dataset: Dataset
    candidates: Sequence[Candidate]
    runs: int
    """How many runs were looked at."""
    built: bool = False
    guideline: str = ""
    """Of a build."""

    @property
    def frame(self) -> list[Candidate]:
        """Return the candidates of a random draw: all judged pairs, and all finds of runs."""
        return [pair for pair in self.candidates if pair.label is not None or pair.found or self.built]


def read_pools(ledger: Ledger, names: Sequence[str]) -> list[TaskPool]:
    """Read the pools of tasks, folders of builds, and runs; runs are taken on the named tasks, or on all."""
    builds = [Path(name) for name in names if (Path(name) / "plan.toml").is_file()]
    tasks = [name for name in names if Path(name) not in builds and _is_task(name)]
    systems = [name for name in names if Path(name) not in builds and name not in tasks]
    for folder in builds:
        if not (folder / BUILT).is_dir():
            raise R2medError(f"{folder}: the task is not built yet; run: r2med build run {folder}")
    folders = {(folder / BUILT).resolve(): folder for folder in builds}
    task_names = [task.name for task in resolve([*tasks, *(folder / BUILT for folder in builds)])]
    runs: dict[str, list[Entry]] = {}
    for system in select(ledger, systems, task_names) if systems else ():
        if system.missing:
            raise R2medError(system.advice)
        for task, entry in system.runs.items():
            runs.setdefault(task, []).append(entry)
    return [_pool(ledger, task, runs.get(task, []), folders.get(Path(task))) for task in task_names or runs]


def _is_task(name: str) -> bool:
    try:
        return bool(resolve([name]))
    except R2medError:
        if Path(name).is_dir():
            raise
        return False


def _pool(ledger: Ledger, task: str, entries: Sequence[Entry], folder: Path | None) -> TaskPool:
    dataset = load(task)
    pairs: dict[tuple[str, str], Candidate] = {}

    def pair(query: str, document: str) -> Candidate:
        return pairs.setdefault((query, document), Candidate(query, document))

    for query, judged in dataset.gold.qrels.items():
        for document, grade in judged.items():
            pair(query, document).label = grade
    for entry in entries:
        check_data(entry, dataset)
        run = ledger.run(entry)
        for query in run.queries:
            for rank, document in enumerate(run[query].documents[:_BEYOND], 1):
                pair(query, document).ranks[entry.name] = rank
    for row in _judged(folder) if folder else ():
        if row["passage_id"] in dataset.collection.documents.position:
            candidate = pair(row["query_id"], row["passage_id"])
            candidate.margin, candidate.spread = row["margin"], row["spread"]
            candidate.facts = {name: row[name] for name in ("verdict", "answers", "supports")}
    queries = dataset.collection.queries.position
    candidates = [candidate for candidate in pairs.values() if candidate.query in queries]
    guideline = omit_grades(read_plan(folder).guideline) if folder else ""
    return TaskPool(dataset, candidates, len(entries), folder is not None, guideline)


def _judged(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each pair judged in a build, with its margin to the cuts and the spread of the judges."""
    settings = read_plan(folder).select
    file = folder / BUILT / "judgements.parquet"
    try:
        table = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{file}: cannot be read; run: r2med build run {folder}") from error
    spreads = [pl.col(f"judge_{axis}").max() - pl.col(f"judge_{axis}").min() for axis in _AXES]
    grouped = table.group_by("query_id", "passage_id", maintain_order=True).agg(
        pl.col("verdict", *_AXES).first(), spread=pl.max_horizontal(*spreads)
    )
    margins = [pl.col(axis) - getattr(settings, axis) for axis in _AXES]
    yield from grouped.with_columns(margin=pl.min_horizontal(*margins)).iter_rows(named=True)


_AXES = ("answers", "supports")

"""Run files made by any tool, measured like our own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.data import load
from r2med.data.dataset import Qrels
from r2med.data.qrels import read_qrels
from r2med.data.run import Run
from r2med.data.run_files import read_run
from r2med.errors import DataError, counted
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.runs.report import Report, Result


@dataclass(frozen=True)
class JudgedFile:
    """Judgements and what they belong to."""

    name: str
    group: str
    qrels: Qrels
    documents: int
    """How many documents the task has; for a lone judgements file, how many are judged."""
    warnings: tuple[str, ...] = ()


def judgements(source: str | Path, split: str | None = None) -> JudgedFile:
    """The judgements of a task by name, or of a file by path."""
    if isinstance(source, Path):
        found = read_qrels(source, split=split) if split else read_qrels(source)
        documents = len({document for judged in found.qrels.values() for document in judged})
        return JudgedFile(str(source), "custom", found.qrels, documents, tuple(found.warnings))
    dataset = load(source, split=split)
    count = len(dataset.collection.documents)
    return JudgedFile(dataset.name, dataset.task.group, dataset.gold.qrels, count, dataset.warnings)


def score_files(files: Sequence[Path], judged: JudgedFile, measures: Sequence[Measure], *, drop_self: bool) -> Report:
    """Measure each file; a file is a system in the report."""
    return Report([_score(file, judged, measures, drop_self) for file in files])


def _score(file: Path, judged: JudgedFile, measures: Sequence[Measure], drop_self: bool) -> Result:
    started = time.perf_counter()
    run, warnings = read_run(file)
    warnings = [*judged.warnings, *warnings, *_mismatch(file, run, judged)]
    if drop_self:
        run = run.without_self()
    scores = score(run, judged.qrels, measures)
    return Result(
        system=str(file),
        task=judged.name,
        group=judged.group,
        query_ids=scores.queries,
        documents=judged.documents,
        scores={str(measure): scores.values(measure) for measure in measures},
        seconds=time.perf_counter() - started,
        warnings=tuple(warnings),
    )


def _mismatch(file: Path, run: Run, judged: JudgedFile) -> list[str]:
    """What a run and its judgements do not share: a mean over the wrong queries looks like any other."""
    unknown = [query for query in run.queries if query not in judged.qrels]
    missing = [query for query in judged.qrels if query not in run]
    if len(unknown) == len(run.queries):
        shown = f"{run.queries[0]!r} in the run, {next(iter(judged.qrels))!r} in the judgements"
        raise DataError(f"{file}: shares no query with the judgements of {judged.name} ({shown})")
    found = []
    if unknown:
        queries = counted(len(unknown), "query", "queries")
        found.append(f"{file.name}: {queries} without judgements ignored, the first {unknown[0]!r}")
    if missing:
        queries = counted(len(missing), "judged query", "judged queries")
        found.append(f"{file.name}: {queries} missing, counted as 0, the first {missing[0]!r}")
    return found + _strangers(file, run, judged)


def _strangers(file: Path, run: Run, judged: JudgedFile) -> list[str]:
    """What to say of a run without any judged document: nothing found, or the documents of another collection."""
    known = {document for row in judged.qrels.values() for document in row}
    if known.isdisjoint(run.documents) and run.documents:
        shown = f"{run.documents[0]!r} in the run, {next(iter(known))!r} in the judgements"
        return [f"{file.name}: none of its documents is judged; are the ids those of {judged.name}? ({shown})"]
    return []

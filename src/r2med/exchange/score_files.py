"""Scoring and import of run files made by any tool."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

from r2med.data.dataset import Aspects, Qrels
from r2med.data.layout import choose, listing
from r2med.data.loader import load
from r2med.data.qrels import read_qrels
from r2med.data.run import Run
from r2med.data.run_files import read_run
from r2med.data.tasks import Task, resolve
from r2med.errors import DataError, R2medError
from r2med.formatting import counted, one_line
from r2med.measure.metrics import DEFAULT, Measure
from r2med.measure.score import score
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.registry import check_free
from r2med.pipeline.stage import own_documents
from r2med.pipeline.system import System
from r2med.retrieve.given_lists import ImportedLists
from r2med.runs.ledger import Entry
from r2med.runs.record import RunRecord
from r2med.runs.report import Failure, Report
from r2med.store.files import expanded, file_name

PLACE = "{task}"  # where the name of a task stands in the names of several run files


@dataclass(frozen=True)
class JudgedFile:
    """Judgements, and the task or file that they come from."""

    name: str
    group: str
    qrels: Qrels
    documents: int  # how many documents the task has; for a lone judgements file, how many are judged
    warnings: tuple[str, ...] = ()
    drop_self: str = "none"  # which systems leave out the document with the query's own id, by the rule of the task
    aspects: Aspects = field(default_factory=dict)


def judgements(source: str | Path | Task, split: str | None = None, *, strict: bool = False) -> JudgedFile:
    """Read the judgements of a task, or of a file by path; `strict` is as in `load`."""
    if isinstance(source, Path):
        read = read_qrels(source, split=split) if split else read_qrels(source)
        documents = len({document for judged in read.qrels.values() for document in judged})
        return JudgedFile(str(source), "custom", read.qrels, documents, tuple(read.warnings), aspects=read.aspects)
    (task, *others) = resolve([source], split=split)
    if not others and task.folder is not None and not choose(listing(task.folder), task.split).documents:
        # Scores need judgements only.
        return replace(judgements(task.folder, task.split), name=task.name, group=task.group, drop_self=task.drop_self)
    data = load(source, split=split, strict=strict)
    count = len(data.collection.documents)
    facts = (data.name, data.task.group, data.gold.qrels, count, data.warnings, data.task.drop_self)
    return JudgedFile(*facts, data.gold.aspects)


def score_files(
    files: Sequence[Path], judged: JudgedFile, measures: Sequence[Measure], *, drop_self: bool | None
) -> Report:
    """Measure each file; a file is a system in the report. `drop_self` of None leaves that to the task."""
    return Report([_score(file, judged, measures, drop_self) for file in files])


def score_patterns(
    patterns: Sequence[Path],
    tasks: Sequence[Task],
    measures: Sequence[Measure],
    *,
    drop_self: bool | None,
    strict: bool = False,
) -> Report:
    """Measure a file for each task; a pattern with `{task}` for the task's name is a system in the report."""
    for pattern in patterns:
        if PLACE not in str(pattern):
            advice = f"with {PLACE} for the task's name, as in runs/{PLACE}.trec"
            raise DataError(f"{pattern}: several tasks need a file each; write it {advice}")
    results: list[Entry] = []
    failures: list[Failure] = []
    unread = 0
    for task in tasks:
        try:
            judged = judgements(task, strict=strict)
        except (DataError, OSError) as error:
            unread += 1
            if unread == len(tasks):
                raise
            failures.append(Failure("", task.name, one_line(error), task.group))
            continue
        for pattern in patterns:
            try:
                result = _score(file_of_task(pattern, task), judged, measures, drop_self)
                results.append(replace(result, system=str(pattern)))
            except DataError as error:
                failures.append(Failure(str(pattern), task.name, str(error), task.group))
    return Report(results, failures, [(task.name, task.group) for task in tasks])


def file_of_task(pattern: Path, task: Task) -> Path:
    """Return the file of a task, named by the task in full (`sample-Biology`), or without its group (`Biology`)."""
    tried = []
    for name in dict.fromkeys((file_name(task.name), task.name.rpartition("/")[2])):
        place = expanded(str(pattern.parent).replace(PLACE, name))
        files = sorted(place.glob(pattern.name.replace(PLACE, escape(name))))
        if len(files) > 1:
            raise DataError(f"{pattern}: is {len(files)} files, {files[0]} and {files[1]} among them; say which")
        if files:
            return files[0]
        tried.append(str(place / pattern.name.replace(PLACE, name)))
    raise DataError(f"there is no {' nor '.join(tried)}")


def _score(file: Path, judged: JudgedFile, measures: Sequence[Measure], drop_self: bool | None) -> Entry:
    started = time.perf_counter()
    run, warnings = read_run(file)
    warnings = [*judged.warnings, *warnings, *_mismatch(file, run, judged)]
    if drop_self or (drop_self is None and judged.drop_self == "all"):
        # What is relevant to a query is an answer, and so never a copy of the query.
        listed = [query for query, ranking in run if query in ranking.documents]
        copies = {query for query in listed if judged.qrels.get(query, {}).get(query, 0) < 1}
        run = run.without_self(copies)
        if copies:
            warnings.append(f"{own_documents(len(copies))} left out of its list")
    scores = score(run, judged.qrels, measures, judged.aspects)
    by_measure = {str(measure): scores.values(measure) for measure in measures}
    record = RunRecord(documents=judged.documents, warnings=tuple(warnings))
    seconds = time.perf_counter() - started
    return Entry("", str(file), judged.name, judged.group, scores.queries, seconds, record, scores=by_measure)


def _mismatch(file: Path, run: Run, judged: JudgedFile) -> list[str]:
    """Return notes on queries that a run and its judgements do not share; a mean over wrong queries looks normal."""
    unknown = [query for query in run.queries if query not in judged.qrels]
    missing = [query for query in judged.qrels if query not in run]
    if len(unknown) == len(run.queries):
        examples = f"{run.queries[0]!r} in the run, {next(iter(judged.qrels))!r} in the judgements"
        raise DataError(f"{file}: shares no query with the judgements of {judged.name} ({examples})")
    notes = []
    if unknown:
        queries = counted(len(unknown), "query", "queries")
        notes.append(f"{file.name}: {queries} without judgements ignored, the first {unknown[0]!r}")
    if missing:
        queries = counted(len(missing), "judged query", "judged queries")
        notes.append(f"{file.name}: {queries} missing, counted as 0, the first {missing[0]!r}")
    judged_documents = {document for row in judged.qrels.values() for document in row}
    if judged_documents.isdisjoint(run.documents) and run.documents:
        examples = f"{run.documents[0]!r} in the run, {next(iter(judged_documents))!r} in the judgements"
        question = f"are the ids those of {judged.name}? ({examples})"
        notes.append(f"{file.name}: none of its documents is judged; {question}")
    return notes


def import_run(
    file: Path | str,
    task: str | Path | Task,
    name: str,
    measures: Sequence[Measure] = (),
    *,
    split: str | None = None,
    strict: bool = False,
) -> Report:
    """Measure a run file like a system of that name, and store it in the ledger.

    A name that stands for a stage, a model or an alias is refused. The same file again is the same run.
    """
    check_free(name)
    every = tuple(dict.fromkeys([*measures, *DEFAULT]))
    options = Options(measures=every, shown=measures or DEFAULT[:1], split=split, strict=strict)
    dataset = load(task, split=split, strict=strict)
    report = evaluate(System((ImportedLists(name, source=Path(file)),)), dataset, options)
    if report.failures:
        raise R2medError(report.failures[0].message)
    return report


def import_runs(
    pattern: Path,
    tasks: Sequence[Task],
    name: str,
    measures: Sequence[Measure] = (),
    *,
    split: str | None = None,
    strict: bool = False,
) -> Report:
    """Import the runs of several tasks; the pattern has `{task}` in place of a task's name."""
    if PLACE not in str(pattern):
        raise DataError(f"{pattern}: several tasks need a file each; write it with {PLACE}, as in runs/{PLACE}.trec")
    results: list[Entry] = []
    failures: list[Failure] = []
    for task in tasks:
        try:
            report = import_run(file_of_task(pattern, task), task, name, measures, split=split, strict=strict)
            results += report.results
        except R2medError as error:
            failures.append(Failure(name, task.name, str(error), task.group))
    return Report(results, failures, [(task.name, task.group) for task in tasks])

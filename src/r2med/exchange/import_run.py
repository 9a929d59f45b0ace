"""Run files of other tools, as runs of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r2med.data import load
from r2med.data.tasks import Task
from r2med.errors import DataError, R2medError
from r2med.exchange.score_run_files import PLACE, file_of_task
from r2med.measure.metrics import DEFAULT, Measure
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.registry import check_free
from r2med.pipeline.system import System
from r2med.retrieve.imported_lists import ImportedLists
from r2med.runs.report import Failure, Report, Result


def import_run(
    file: Path | str,
    task: str | Path | Task,
    name: str,
    measures: Sequence[Measure] = (),
    *,
    split: str | None = None,
    strict: bool = False,
) -> Report:
    """Measure a run file like a system of that name, and keep it in the ledger.

    A name that stands for a stage, a model or an alias is refused. The same file again is the same run.
    """
    check_free(name)
    wanted = tuple(dict.fromkeys([*measures, *DEFAULT]))
    options = Options(measures=wanted, shown=measures or DEFAULT[:1], split=split, strict=strict)
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
    """Do the same for several tasks; the pattern has `{task}` in place of a task's name."""
    if PLACE not in str(pattern):
        raise DataError(f"{pattern}: several tasks need a file each; write it with {PLACE}, as in runs/{PLACE}.trec")
    results: list[Result] = []
    failures: list[Failure] = []
    for task in tasks:
        try:
            report = import_run(file_of_task(pattern, task), task, name, measures, split=split, strict=strict)
            results += report.results
        except R2medError as error:
            failures.append(Failure(name, task.name, str(error), task.group))
    return Report(results, failures, [(task.name, task.group) for task in tasks])

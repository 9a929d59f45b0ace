"""Run files of other tools, as runs of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r2med.data import load
from r2med.errors import R2medError
from r2med.measure.metrics import DEFAULT, Measure
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.registry import check_free
from r2med.pipeline.system import System
from r2med.retrieve.imported_lists import ImportedLists
from r2med.runs.report import Report


def import_run(
    file: Path | str,
    task: str | Path,
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
    report = evaluate(System((ImportedLists(name, source=Path(file)),)), load(task, split=split), options)
    if report.failures:
        raise R2medError(report.failures[0].message)
    return report

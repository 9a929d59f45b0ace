"""How well a nano set stands for its source: the same systems run on both, and compared.

A nano score and a full score are never put into one column or average: they meet only as a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from r2med.build.agreement import Agreement, PairedScores, agreement
from r2med.data.tasks import Task, resolve
from r2med.errors import R2medError
from r2med.evaluation import Options, evaluate
from r2med.measure.correlation import Floats
from r2med.results import Failure, Report, Result
from r2med.stage import Stage
from r2med.system import System


@dataclass(frozen=True)
class Comparison:
    """All that `agree` found: a task at a time, their average when there are several, and what failed."""

    tasks: Sequence[Agreement]
    average: Agreement | None
    failures: Sequence[Failure]

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        found: dict[str, Any] = {
            "tasks": [task.as_dict() for task in self.tasks],
            "average": self.average.as_dict() if self.average else None,
        }
        return found | ({"failures": [each.as_dict() for each in self.failures]} if self.failures else {})


def agree(
    nano: str | Path, full: str | Path, systems: Sequence[System | Stage | str], options: Options | None = None
) -> Comparison:
    """Run systems on a nano set and on its source, from the ledger where they were run before, and compare."""
    chosen = replace(options or Options(), split=None)
    measure = str(chosen.measures[0])
    runs = [_run(pair, systems, chosen) for pair in _paired(resolve([nano]), resolve([full]))]
    failures = [failure for run in runs for report in (run.small, run.large) for failure in report.failures]
    usable = _usable(runs, failures)
    scores = [_scores(run, usable, measure) for run in runs]
    each = [agreement([paired], paired.task, measure) for paired in scores]
    average = agreement(scores, "average", measure) if len(scores) > 1 else None
    return Comparison(each, average, failures)


class _Runs(NamedTuple):
    """A nano task and its source, and what the systems did on each."""

    nano: Task
    full: Task
    small: Report
    large: Report


def _run(tasks: tuple[Task, Task], systems: Sequence[System | Stage | str], options: Options) -> _Runs:
    return _Runs(*tasks, *(evaluate(list(systems), task, options) for task in tasks))


def _paired(nano: Sequence[Task], full: Sequence[Task]) -> list[tuple[Task, Task]]:
    """Each nano task with its source: the only one, or the one of the same name."""
    if len(nano) == len(full) == 1:
        return [(nano[0], full[0])]
    sources = {task.base.casefold(): task for task in full}
    alone = [task.name for task in nano if task.base.casefold() not in sources]
    if alone:
        raise R2medError(f"no source for {', '.join(alone)} among {', '.join(task.name for task in full)}")
    return [(task, sources[task.base.casefold()]) for task in nano]


def _usable(runs: Sequence[_Runs], failures: Sequence[Failure]) -> list[str]:
    """The systems that could be measured everywhere; two at least, or there is nothing to compare."""
    failed = {failure.system for failure in failures}
    usable = [system for system in runs[0].small.systems if system not in failed]
    if len(usable) < 2:
        reasons = [f"{failure.system} on {failure.task}: {failure.message}" for failure in failures]
        why = "; ".join(reasons[:2]) or "give more with --systems"
        raise R2medError(f"an order needs two systems at least, {len(usable)} could be run ({why})")
    return usable


def _scores(run: _Runs, systems: Sequence[str], measure: str) -> PairedScores:
    # A report of one task is searched by system alone: the ledger may know the same data by another name.
    small, large = ([_result(report, system) for system in systems] for report in (run.small, run.large))
    if _content(small[0]) == _content(large[0]):
        raise R2medError(f"{run.nano.name} and {run.full.name} hold the same data; give a nano set and its source")
    if not {*small[0].query_ids} & {*large[0].query_ids}:
        raise R2medError(f"{run.nano.name} and {run.full.name} have no query in common; is the second its source?")
    queries = list(dict.fromkeys([*small[0].query_ids, *large[0].query_ids]))
    return PairedScores(run.full.base, systems, _matrix(small, queries, measure), _matrix(large, queries, measure))


def _result(report: Report, system: str) -> Result:
    return next(result for result in report.results if result.system == system)


def _content(result: Result) -> object:
    return result.record["data"]["fingerprint"]


def _matrix(results: Sequence[Result], queries: Sequence[str], measure: str) -> Floats:
    place = {query: column for column, query in enumerate(queries)}
    matrix = np.full((len(results), len(queries)), np.nan)
    for row, result in enumerate(results):
        matrix[row, [place[query] for query in result.query_ids]] = result.scores[measure]
    return matrix

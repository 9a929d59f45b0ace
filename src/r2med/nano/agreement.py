"""Agreement of a nano set with its source: the same systems run on both, and their order and scores compared.

A nano score and a full score are never put into one column or average: they meet only as a difference. Both sides are
compared over the queries that both have, so that a shift is due to the documents alone. Intervals come from drawing
these queries with replacement, the same draws for every system and for both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from r2med.data.tasks import Task, resolve
from r2med.errors import R2medError
from r2med.measure.bootstrap import percentile_ends, resampled_means
from r2med.measure.correlation import Floats, flipped, kendall, kendalls, spearman
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.executor.distributed import every_share
from r2med.pipeline.stage import Stage
from r2med.pipeline.system import System
from r2med.runs.ledger import Entry
from r2med.runs.report import Failure, Report


@dataclass(frozen=True)
class NanoComparison:
    """Results of `agree`: one per task, their average if there are several, and failures."""

    tasks: Sequence[Agreement]
    average: Agreement | None
    failures: Sequence[Failure]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison in the shape of `--json`."""
        found: dict[str, Any] = {
            "tasks": [task.as_dict() for task in self.tasks],
            "average": self.average.as_dict() if self.average else None,
        }
        return found | ({"failures": [each.as_dict() for each in self.failures]} if self.failures else {})


def agree(
    nano: str | Path, full: str | Path, systems: Sequence[System | Stage | str], options: Options | None = None
) -> NanoComparison:
    """Run systems on a nano set and on its source, reusing runs of the ledger, and compare."""
    chosen = replace(options or Options(), split=None)
    measure = str(chosen.measures[0])
    runs = [_run(pair, systems, chosen) for pair in _paired(resolve([nano]), resolve([full]))]
    failures = [failure for run in runs for report in (run.small, run.large) for failure in report.failures]
    usable = _usable(runs, failures)
    scores = [_scores(run, usable, measure) for run in runs]
    each = [agreement([paired], paired.task, measure) for paired in scores]
    average = agreement(scores, "average", measure) if len(scores) > 1 else None
    return NanoComparison(each, average, failures)


class _Runs(NamedTuple):
    """A nano task and its source, and the results of the systems on each."""

    nano: Task
    full: Task
    small: Report
    large: Report


def _run(tasks: tuple[Task, Task], systems: Sequence[System | Stage | str], options: Options) -> _Runs:
    def run(task: Task) -> Report:
        return evaluate(list(systems), task, options).whole()

    return _Runs(*tasks, *every_share(partial(run, task) for task in tasks))


def _paired(nano: Sequence[Task], full: Sequence[Task]) -> list[tuple[Task, Task]]:
    """Pair each nano task with its source: the only one, or the one of the same name."""
    if len(nano) == len(full) == 1:
        return [(nano[0], full[0])]
    sources = {task.base.casefold(): task for task in full}
    alone = [task.name for task in nano if task.base.casefold() not in sources]
    if alone:
        raise R2medError(f"no source for {', '.join(alone)} among {', '.join(task.name for task in full)}")
    return [(task, sources[task.base.casefold()]) for task in nano]


def _usable(runs: Sequence[_Runs], failures: Sequence[Failure]) -> list[str]:
    """Return the systems measured on all tasks; fewer than two is an error."""
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
    if small[0].record.data.fingerprint == large[0].record.data.fingerprint:
        raise R2medError(f"{run.nano.name} and {run.full.name} hold the same data; give a nano set and its source")
    if not {*small[0].queries} & {*large[0].queries}:
        raise R2medError(f"{run.nano.name} and {run.full.name} have no query in common; is the second its source?")
    queries = list(dict.fromkeys([*small[0].queries, *large[0].queries]))
    return PairedScores(run.full.base, systems, _matrix(small, queries, measure), _matrix(large, queries, measure))


def _result(report: Report, system: str) -> Entry:
    return next(result for result in report.results if result.system == system)


def _matrix(results: Sequence[Entry], queries: Sequence[str], measure: str) -> Floats:
    place = {query: column for column, query in enumerate(queries)}
    matrix = np.full((len(results), len(queries)), np.nan)
    for row, result in enumerate(results):
        matrix[row, [place[query] for query in result.queries]] = result.scores[measure]
    return matrix


Interval = tuple[float, float] | None


@dataclass(frozen=True)
class PairedScores:
    """Per-query scores of the same systems on a nano task and on its source: a row a system, a column a query.

    Columns are the queries of either; where a set lacks a query its value is not a number.
    """

    task: str
    systems: Sequence[str]
    nano: Floats
    full: Floats

    @property
    def shared(self) -> tuple[Floats, Floats]:
        """Return the scores on both sides of the queries that both have."""
        there = ~(np.isnan(self.nano[0]) | np.isnan(self.full[0]))
        return self.nano[:, there], self.full[:, there]

    def means(self) -> tuple[Floats, Floats, Floats]:
        """Return each system's mean on nano task and source over shared queries, and over all of the source."""
        nano, full = self.shared
        return nano.mean(axis=1), full.mean(axis=1), np.nanmean(self.full, axis=1)

    def draws(self, stratum: int) -> tuple[Floats, Floats]:
        """Return the first two means for drawn queries: a row per system, a column per draw."""
        nano, full = self.shared
        return resampled_means(nano, stratum), resampled_means(full, stratum)


@dataclass(frozen=True)
class Shift:
    """One system: its score on the nano set, on the source, and the difference."""

    system: str
    nano: float
    full: float
    """Over the queries that the nano set has too."""
    full_all: float
    """Over all queries of the source."""
    shift: float
    interval: Interval


@dataclass(frozen=True)
class Flip:
    """Two systems that the nano set ranks in the opposite order."""

    first: str
    second: str
    nano: float
    """By how much the first leads on the nano set."""
    nano_interval: Interval
    full: float
    """By how much it leads on the source."""
    full_interval: Interval

    @property
    def clear(self) -> bool:
        """Return whether both differences are beyond what the choice of queries explains."""
        return all(found is not None and found[0] * found[1] > 0 for found in (self.nano_interval, self.full_interval))

    def as_dict(self) -> dict[str, Any]:
        """Return the flip in the shape of `--json`."""
        return {**asdict(self), "clear": self.clear}


@dataclass(frozen=True)
class Agreement:
    """Agreement on one task, or the average over tasks."""

    task: str
    measure: str
    queries: int
    """Those that both have, over which they are compared."""
    queries_nano: int
    queries_full: int
    shifts: Sequence[Shift]
    shift: float
    """The mean shift of all systems."""
    shift_interval: Interval
    spearman: float | None
    spearman_interval: Interval
    kendall: float | None
    kendall_interval: Interval
    pairs: int
    flips: Sequence[Flip]

    def as_dict(self) -> dict[str, Any]:
        """Return the agreement in the shape of `--json`."""
        return {**asdict(self), "flips": [flip.as_dict() for flip in self.flips]}


def agreement(scores: Sequence[PairedScores], name: str, measure: str) -> Agreement:
    """Compute the agreement over some tasks: means over a task's queries, then over the tasks.

    >>> nano = np.array([[0.9, 0.8], [0.5, 0.6]])
    >>> found = agreement([PairedScores("t", ["a", "b"], nano, nano / 2)], "t", "nDCG@10")
    >>> found.kendall, round(found.shift, 2), found.flips
    (1.0, 0.35, [])
    """
    systems = scores[0].systems
    nano, full, whole = (np.mean(side, axis=0) for side in zip(*(each.means() for each in scores), strict=True))
    drawn = [each.draws(stratum) for stratum, each in enumerate(scores)]
    many_nano, many_full = (np.mean(side, axis=0) for side in zip(*drawn, strict=True))
    shared = [each.shared[0].shape[1] for each in scores]
    shifts = [
        Shift(
            system,
            float(nano[row]),
            float(full[row]),
            float(whole[row]),
            float(nano[row] - full[row]),
            percentile_ends(many_nano[row] - many_full[row], shared),
        )
        for row, system in enumerate(systems)
    ]
    return Agreement(
        task=name,
        measure=measure,
        queries=sum(shared),
        queries_nano=sum(int((~np.isnan(each.nano[0])).sum()) for each in scores),
        queries_full=sum(int((~np.isnan(each.full[0])).sum()) for each in scores),
        shifts=shifts,
        shift=float((nano - full).mean()),
        shift_interval=percentile_ends((many_nano - many_full).mean(axis=0), shared),
        spearman=_number(spearman(nano, full)),
        spearman_interval=percentile_ends(spearman(many_nano, many_full), shared),
        kendall=_number(kendall(nano, full)),
        kendall_interval=percentile_ends(kendalls(many_nano, many_full), shared),
        pairs=len(systems) * (len(systems) - 1) // 2,
        flips=_flips(systems, {"nano": (nano, many_nano), "full": (full, many_full)}, shared),
    )


def _number(value: Floats) -> float | None:
    return None if np.isnan(value) else float(value)


def _flips(systems: Sequence[str], sides: Mapping[str, tuple[Floats, Floats]], queries: Sequence[int]) -> list[Flip]:
    """Return the pairs in one order on the nano set and in the other on the source."""
    found = []
    for first, second in flipped(sides["nano"][0], sides["full"][0]):
        lead = {
            name: (float(means[first] - means[second]), percentile_ends(drawn[first] - drawn[second], queries))
            for name, (means, drawn) in sides.items()
        }
        found.append(Flip(systems[first], systems[second], *lead["nano"], *lead["full"]))
    return found

"""Agreement of a nano set with its source: the same systems run on both, and their order and scores compared.

Both sides are compared over the queries that both have, so that a shift is due to the documents alone. Intervals come
from drawing these queries with replacement, the same draws for every system and for both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from r2med.data.tasks import Task, resolve
from r2med.errors import R2medError
from r2med.measure.bootstrap import percentile_ends, resampled_means
from r2med.measure.correlation import Floats, flipped_pairs, kendall, kendall_columns, spearman
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.executor.local import every_share
from r2med.pipeline.stage import Stage
from r2med.pipeline.system import System
from r2med.runs.report import Failure, Report


class NanoComparison(NamedTuple):
    """Results of `agree`: one per task, their average if there are several, and failures."""

    tasks: Sequence[Agreement]
    average: Agreement | None
    failures: Sequence[Failure]


def agree(
    nano: str | Path, full: str | Path, systems: Sequence[System | Stage | str], options: Options | None = None
) -> NanoComparison:
    """Run systems on a nano set and on its source, reusing runs of the ledger, and compare."""
    options = replace(options or Options(), split=None)
    measure = str(options.measures[0])

    def run(task: Task) -> Report:
        return evaluate(list(systems), task, options).whole()

    small, large = resolve([nano]), resolve([full])
    sources = {task.base.casefold(): task for task in large}
    alone = [task.name for task in small if task.base.casefold() not in sources]
    if len(small) == len(large) == 1:
        pairs = [(small[0], large[0])]
    elif alone:
        raise R2medError(f"no source for {', '.join(alone)} among {', '.join(task.name for task in large)}")
    else:
        pairs = [(task, sources[task.base.casefold()]) for task in small]
    reports = [every_share(partial(run, task) for task in pair) for pair in pairs]
    failures = [failure for sides in reports for report in sides for failure in report.failures]
    failed = {failure.system for failure in failures}
    usable = [system for system in reports[0][0].systems if system not in failed]
    if len(usable) < 2:
        reasons = [f"{failure.system} on {failure.task}: {failure.message}" for failure in failures]
        why = "; ".join(reasons[:2]) or "give more with --systems"
        raise R2medError(f"an order needs two systems at least, {len(usable)} could be run ({why})")
    scores = [_scores(pair, sides, usable, measure) for pair, sides in zip(pairs, reports, strict=True)]
    tasks = [agreement([paired], paired.task, measure) for paired in scores]
    return NanoComparison(tasks, agreement(scores, "average", measure) if len(scores) > 1 else None, failures)


def _scores(tasks: tuple[Task, Task], reports: Sequence[Report], systems: Sequence[str], measure: str) -> PairedScores:
    nano, full = tasks
    # A report of one task is searched by system alone: the ledger may know the same data by another name.
    sides = [{result.system: result for result in reversed(report.results)} for report in reports]
    one, other = (results[systems[0]] for results in sides)
    if one.record.data.fingerprint == other.record.data.fingerprint:
        raise R2medError(f"{nano.name} and {full.name} hold the same data; give a nano set and its source")
    if not {*one.queries} & {*other.queries}:
        raise R2medError(f"{nano.name} and {full.name} have no query in common; is the second its source?")
    place = {query: number for number, query in enumerate(dict.fromkeys([*one.queries, *other.queries]))}
    matrices = np.full((2, len(systems), len(place)), np.nan)
    for matrix, results in zip(matrices, sides, strict=True):
        for row, system in enumerate(systems):
            result = results[system]
            matrix[row, [place[query] for query in result.queries]] = result.scores[measure]
    return PairedScores(full.base, systems, *matrices)


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


@dataclass(frozen=True)
class Shift:
    """One system: its score on the nano set, on the source, and the difference."""

    system: str
    nano: float
    full: float
    full_all: float
    shift: float
    interval: Interval


@dataclass(frozen=True)
class Flip:
    """Two systems that the nano set ranks in the opposite order."""

    first: str
    second: str
    nano: float  # by how much the first leads on the nano set
    nano_interval: Interval
    full: float
    full_interval: Interval
    clear: bool  # whether both differences are beyond what the choice of queries explains


@dataclass(frozen=True)
class Agreement:
    """Agreement on one task, or the average over tasks."""

    task: str
    measure: str
    queries: int
    queries_nano: int
    queries_full: int
    shifts: Sequence[Shift]
    shift: float
    shift_interval: Interval
    spearman: float | None
    spearman_interval: Interval
    kendall: float | None
    kendall_interval: Interval
    pairs: int
    flips: Sequence[Flip]


def agreement(scores: Sequence[PairedScores], name: str, measure: str) -> Agreement:
    """Compute the agreement over some tasks: means over a task's queries, then over the tasks.

    >>> nano = np.array([[0.9, 0.8], [0.5, 0.6]])
    >>> halved = agreement([PairedScores("t", ["a", "b"], nano, nano / 2)], "t", "nDCG@10")
    >>> halved.kendall, round(halved.shift, 2), halved.flips
    (1.0, 0.35, [])
    """
    systems, shared = scores[0].systems, [paired.shared for paired in scores]
    # Rows are systems; the drawn means have a column per draw.
    nano, full = (np.mean([pair[side].mean(axis=1) for pair in shared], axis=0) for side in (0, 1))
    whole = np.mean([np.nanmean(paired.full, axis=1) for paired in scores], axis=0)
    many_nano, many_full = (
        np.mean([resampled_means(pair[side], stratum) for stratum, pair in enumerate(shared)], axis=0)
        for side in (0, 1)
    )
    queries = [pair[0].shape[1] for pair in shared]

    def interval(drawn: Floats) -> Interval:
        return percentile_ends(drawn, queries)

    def number(value: Floats) -> float | None:
        return None if np.isnan(value) else float(value)

    means = zip(systems, nano.tolist(), full.tolist(), whole.tolist(), strict=True)
    shifts = [
        Shift(name, small, large, larger, small - large, interval(many_nano[row] - many_full[row]))
        for row, (name, small, large, larger) in enumerate(means)
    ]
    flips = []
    for one, other in flipped_pairs(nano, full):
        (lead, ends), (lead_full, ends_full) = (
            (float(side[one] - side[other]), interval(drawn[one] - drawn[other]))
            for side, drawn in ((nano, many_nano), (full, many_full))
        )
        clear = all(around is not None and around[0] * around[1] > 0 for around in (ends, ends_full))
        flips.append(Flip(systems[one], systems[other], lead, ends, lead_full, ends_full, clear))
    return Agreement(
        task=name,
        measure=measure,
        queries=sum(queries),
        queries_nano=sum(int((~np.isnan(paired.nano[0])).sum()) for paired in scores),
        queries_full=sum(int((~np.isnan(paired.full[0])).sum()) for paired in scores),
        shifts=shifts,
        shift=float((nano - full).mean()),
        shift_interval=interval((many_nano - many_full).mean(axis=0)),
        spearman=number(spearman(nano, full)),
        spearman_interval=interval(spearman(many_nano, many_full)),
        kendall=number(kendall(nano, full)),
        kendall_interval=interval(kendall_columns(many_nano, many_full)),
        pairs=len(systems) * (len(systems) - 1) // 2,
        flips=flips,
    )

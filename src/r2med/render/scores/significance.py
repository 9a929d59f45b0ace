"""Intervals of local systems, and marks of significance against a baseline."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.data.tasks import AVERAGE
from r2med.errors import R2medError, suggest
from r2med.measure.bootstrap import board_intervals
from r2med.measure.figure import Figure
from r2med.measure.significance import ALPHA, holm, randomisation_tests
from r2med.pipeline.system import canonical_spec
from r2med.runs.selection import same_data

Floats = NDArray[np.float64]
BETTER, WORSE = "†", "‡"
"""The marks of a system that is significantly better or worse than the baseline."""


class Sample(NamedTuple):
    """One system on one task by one measure, query by query."""

    queries: tuple[str, ...]
    values: Floats
    data: str = ""
    """The fingerprint of the data it was measured on."""


Samples = Mapping[str, Mapping[str, Sample]]
"""System to task to its sample; every system has all tasks."""


def intervals(samples: Samples) -> dict[str, dict[str, Figure]]:
    """Return the 95% intervals of systems, by task and of the average.

    >>> found = intervals({"a": {"T": Sample(("q1", "q2"), np.array([0.0, 1.0]))}})
    >>> found["a"][""].value
    0.5
    """
    batches: dict[tuple[int, ...], dict[str, Mapping[str, Sample]]] = {}
    for name, row in samples.items():
        batches.setdefault(tuple(len(sample.queries) for sample in row.values()), {})[name] = row
    return {name: found for systems in batches.values() for name, found in _batch(systems).items()}


def _batch(systems: Samples) -> dict[str, dict[str, Figure]]:
    """Resample systems with equally many queries together, which costs hardly more than one."""
    tasks = list(next(iter(systems.values())))
    tables = {task: np.array([row[task].values for row in systems.values()]) for task in tasks}
    by_task, average = board_intervals(tables)
    return {
        name: {**{task: by_task[task][place] for task in tasks}, AVERAGE: average[place]}
        for place, name in enumerate(systems)
    }


def significance(samples: Samples, baseline: str) -> dict[str, dict[str, str]]:
    """Mark systems that differ from the baseline: paired by query, corrected after Holm in each column.

    A system that was measured on other queries or data than the baseline has no marks.
    """
    against = samples[find_baseline(samples, baseline)]
    differences = _differences(samples, against)
    marks: dict[str, dict[str, str]] = {name: {} for name in differences}
    for column in (*against, AVERAGE):
        tasks = list(against) if column == AVERAGE else [column]
        chosen = {name: [row[task] for task in tasks] for name, row in differences.items()}
        corrected = holm(randomisation_tests(list(chosen.values())))
        for (name, found), p in zip(chosen.items(), corrected, strict=True):
            if p < ALPHA:
                gain = np.mean([values.mean() for values in found])
                marks[name][column] = BETTER if gain > 0 else WORSE
    return marks


def unbeaten(samples: Samples, best: str) -> set[str]:
    """Return the systems that the best one does not beat on average, itself among them: paired by query, after Holm.

    Systems that were measured on other queries or data cannot be tested and are left out.
    """
    against = samples[best]
    chosen = {name: list(row.values()) for name, row in _differences(samples, against).items()}
    corrected = holm(randomisation_tests(list(chosen.values())))
    return {best, *(name for name, p in zip(chosen, corrected, strict=True) if p >= ALPHA)}


def _differences(samples: Samples, against: Mapping[str, Sample]) -> dict[str, dict[str, Floats]]:
    """Return, by query, what each system has more than a reference one, if they can be paired."""
    return {
        name: {task: _difference(against[task], row[task]) for task in against}
        for name, row in samples.items()
        if row is not against and _alike(row, against)
    }


def find_baseline(samples: Collection[str], name: str) -> str:
    """Return the system of a name in any spelling of its spec."""
    chosen = name if name in samples else canonical_spec(name)
    if chosen not in samples:
        near = suggest(name, samples) if samples else ""
        raise R2medError(f"the baseline {name!r} is not an own system with all tasks of this table{near}")
    return chosen


def _difference(one: Sample, other: Sample) -> Floats:
    values = dict(zip(other.queries, other.values.tolist(), strict=True))
    return np.array([values[query] for query in one.queries]) - one.values


def _alike(one: Mapping[str, Sample], other: Mapping[str, Sample]) -> bool:
    """Return whether both were measured on the same data, so that they can be paired."""
    return one.keys() == other.keys() and all(same_data(sample, other[task]) for task, sample in one.items())


def about_marks(baseline: str) -> str:
    """Return the sentence that explains marks of significance."""
    return f"{BETTER} better, {WORSE} worse than {baseline}: paired randomisation test at 5%, after Holm"

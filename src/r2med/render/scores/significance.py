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
    data: str = ""  # the fingerprint of the data it was measured on


Samples = Mapping[str, Mapping[str, Sample]]
"""System to task to its sample; every system has all tasks."""


def intervals(samples: Samples) -> dict[str, dict[str, Figure]]:
    """Return the 95% intervals of systems, by task and of the average.

    >>> ranges = intervals({"a": {"T": Sample(("q1", "q2"), np.array([0.0, 1.0]))}})
    >>> ranges["a"][""].value
    0.5
    """
    # Systems with equally many queries are resampled together, which costs hardly more than one.
    batches: dict[tuple[int, ...], dict[str, Mapping[str, Sample]]] = {}
    for name, row in samples.items():
        batches.setdefault(tuple(len(sample.queries) for sample in row.values()), {})[name] = row
    ranges: dict[str, dict[str, Figure]] = {}
    for rows in batches.values():
        tasks = list(next(iter(rows.values())))
        by_task, average = board_intervals(
            {task: np.array([row[task].values for row in rows.values()]) for task in tasks}
        )
        for place, name in enumerate(rows):
            ranges[name] = {**{task: by_task[task][place] for task in tasks}, AVERAGE: average[place]}
    return ranges


def significance(samples: Samples, baseline: str) -> dict[str, dict[str, str]]:
    """Mark systems that differ from the baseline: paired by query, corrected after Holm in each column.

    A system that was measured on other queries or data than the baseline has no marks.
    """
    against = samples[find_baseline(samples, baseline)]
    differences = _differences(samples, against)
    marks: dict[str, dict[str, str]] = {name: {} for name in differences}
    for column in (*against, AVERAGE):
        tasks = list(against) if column == AVERAGE else [column]
        columns = {name: [row[task] for task in tasks] for name, row in differences.items()}
        corrected = holm(randomisation_tests(list(columns.values())))
        for (name, gains), p in zip(columns.items(), corrected, strict=True):
            if p < ALPHA:
                marks[name][column] = BETTER if np.mean([values.mean() for values in gains]) > 0 else WORSE
    return marks


def unbeaten(samples: Samples, best: str) -> set[str]:
    """Return the systems that the best one does not beat on average, itself among them: paired by query, after Holm.

    Systems that were measured on other queries or data cannot be tested and are left out.
    """
    differences = {name: list(row.values()) for name, row in _differences(samples, samples[best]).items()}
    corrected = holm(randomisation_tests(list(differences.values())))
    return {best, *(name for name, p in zip(differences, corrected, strict=True) if p >= ALPHA)}


def _differences(samples: Samples, against: Mapping[str, Sample]) -> dict[str, dict[str, Floats]]:
    """Return, by query, what each system has more than a reference one, if both were measured on the same data."""
    differences: dict[str, dict[str, Floats]] = {}
    for name, row in samples.items():
        if row is against or row.keys() != against.keys():
            continue
        if all(same_data(sample, against[task]) for task, sample in row.items()):
            differences[name] = {}
            for task, one in against.items():
                values = dict(zip(row[task].queries, row[task].values.tolist(), strict=True))
                differences[name][task] = np.array([values[query] for query in one.queries]) - one.values
    return differences


def find_baseline(samples: Collection[str], name: str) -> str:
    """Return the system of a name in any spelling of its spec."""
    system = name if name in samples else canonical_spec(name)
    if system not in samples:
        near = suggest(name, samples) if samples else ""
        raise R2medError(f"the baseline {name!r} is not an own system with all tasks of this table{near}")
    return system


def about_marks(baseline: str) -> str:
    """Return the sentence that explains marks of significance."""
    return f"{BETTER} better, {WORSE} worse than {baseline}: paired randomisation test at 5%, after Holm"

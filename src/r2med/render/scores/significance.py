"""Intervals of local systems, marks of significance against a baseline, and the ranks that figures leave possible."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.data.tasks import AVERAGE
from r2med.errors import R2medError, suggest
from r2med.formatting import counted
from r2med.measure.bootstrap import board_intervals
from r2med.measure.figure import Figure
from r2med.measure.ranks import rank_intervals
from r2med.measure.significance import ALPHA, holm, randomisation_tests
from r2med.pipeline.system import canonical_spec
from r2med.render.scores.model import BY_TASKS, QUERIES, TASKS, Board, BoardRow, Ranks, line_labels
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
                differences[name][task] = _aligned(row[task], one) - one.values
    return differences


def with_ranks(rows: Sequence[BoardRow], samples: Samples) -> list[BoardRow]:
    """Add the ranks that the figures leave possible: among local systems by their queries, of others by their tasks.

    A published figure comes without the scores of its queries. The spread of the figures over tasks says how far its
    rank depends on the choice of the tasks, and nothing of the queries.
    """
    ranked = [row for row in rows if row.rank is not None]
    if not ranked:
        return list(rows)
    labels = dict(zip(map(id, ranked), line_labels(Board("", "", (), ranked)), strict=True))
    by_query = [row for row in ranked if row.own and row.name in samples]
    first = samples[by_query[0].name] if by_query else {}
    by_query = [row for row in by_query if all(map(same_data, samples[row.name].values(), first.values()))]
    tables = [np.array([_aligned(samples[row.name][task], one) for row in by_query]) for task, one in first.items()]
    ranks: dict[int, Ranks] = {}
    columns = list(ranked[0].values)
    if any(not row.own for row in ranked) and len(ranked) > 1 and len(columns) > 1:
        ranks = _ranks(ranked, [np.array([[row.values[task] for task in columns] for row in ranked])], TASKS, labels)
    if len(by_query) > 1:
        ranks |= _ranks(by_query, tables, QUERIES, labels)
    return [replace(row, ranks=ranks.get(id(row))) for row in rows]


def _ranks(rows: Sequence[BoardRow], tables: Sequence[Floats], by: str, labels: Mapping[int, str]) -> dict[int, Ranks]:
    """Return the ranks of rows, which are in the order of the board, by their identity."""
    low, high, above = rank_intervals(tables)
    names = [labels[id(row)] for row in rows]
    ranks = {}
    for place, row in enumerate(rows):
        others = {name: round(p, 4) for name, p in zip(names, above[place].tolist(), strict=True)}
        del others[names[place]]
        below = names[place + 1] if place + 1 < len(names) else ""
        ranks[id(row)] = Ranks(int(low[place]), int(high[place]), len(rows), by, others, below)
    return ranks


def about_ranks(rows: Sequence[BoardRow]) -> list[str]:
    """Return the sentences that explain the ranks of a board."""
    sizes = {row.ranks.by: counted(row.ranks.of, "system") for row in rows if row.ranks is not None}
    notes = []
    if QUERIES in sizes:
        notes.append(
            f"ranks, P above next: 95% interval of the rank among the {sizes[QUERIES]} with scores of every query, and"
            " the probability of being above the next of them (bootstrap over queries, the same for all)"
        )
    if TASKS in sizes:
        notes.append(
            f"{BY_TASKS}: among all {sizes[TASKS]} with a rank, from the spread over tasks (bootstrap over tasks):"
            " published figures come without their queries"
        )
    return notes or ["ranks: none can be given: two systems with scores of every query, or several tasks, are needed"]


def _aligned(sample: Sample, reference: Sample) -> Floats:
    """Return the values in the order of another sample's queries."""
    values = dict(zip(sample.queries, sample.values.tolist(), strict=True))
    return np.array([values[query] for query in reference.queries])


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

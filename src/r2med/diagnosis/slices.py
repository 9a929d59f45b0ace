"""Where a system is good and where it is not: means over slices of the queries, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from r2med.data.labels import Labels
from r2med.diagnosis.gap import Rarity
from r2med.measure.bootstrap import average_intervals
from r2med.measure.figure import Figure, figure_dict
from r2med.measure.score import tertiles
from r2med.measure.significance import difference_interval
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import LoadedRun

NO_LABEL = "(no label)"


@dataclass(frozen=True)
class SliceRow:
    """A query with all that it can be sliced by, and its score in each run."""

    task: str
    query: str
    family: str
    words: int
    positives: int
    overlap: float  # the mean share of its words, by weight, that its relevant documents hold
    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Slice:
    """Group of queries with each run's mean and, for two runs, the difference."""

    name: str
    queries: int
    means: tuple[Figure, ...]
    difference: Figure | None = None  # the second run minus the first, paired by query
    sure: bool = True  # whether an interval is informative: with one query of a task, its spread is unknown

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        facts: dict[str, Any] = {"slice": self.name, "queries": self.queries, "means": [*map(self._facts, self.means)]}
        return facts | ({"difference": self._facts(self.difference)} if self.difference else {})

    def _facts(self, mean: Figure) -> dict[str, float | None]:
        return figure_dict(mean if self.sure else Figure(mean.value), "mean")


def rows(opened: Sequence[LoadedRun], labels: Labels | None = None, executor: Executor | None = None) -> list[SliceRow]:
    """Return the queries of one task, with their scores in some runs."""
    first = opened[0]
    task, collection = first.dataset.task, first.dataset.collection
    rarity = Rarity.of(collection.documents, executor)
    sliced = []
    for query, grades in first.positives.items():
        text = collection.queries.text(query)
        shares = [rarity.coverage(text, collection.documents.text(document)) for document in grades]
        sliced.append(
            SliceRow(
                task.name,
                query,
                task.family_title,
                len(text.split()),
                len(grades),
                float(np.mean([share or 0.0 for share in shares])),
                labels.of(task.name, query) or NO_LABEL if labels else NO_LABEL,
                tuple(run.values[query] for run in opened),
            )
        )
    return sliced


Namer = Callable[[SliceRow], tuple[int, str]]
"""The slice of a query, after its place among the slices; those with the same place stay in the order they are met."""


def cut(queries: Sequence[SliceRow], *, labelled: bool = False) -> dict[str, list[Slice]]:
    """Slice the queries in every way, with slices in order."""
    words = tertiles([row.words for row in queries], "{:.0f} words")
    overlaps = tertiles([100 * row.overlap for row in queries], "{:.1f}%")
    ways: dict[str, Namer] = {
        "family": lambda row: (0, row.family),
        "task": lambda row: (0, row.task),
        "query length": lambda row: words(row.words),
        "relevant documents": lambda row: _count(row.positives),
        "query words in relevant documents": lambda row: overlaps(100 * row.overlap),
    }
    if labelled:
        ways["label"] = lambda row: (row.label == NO_LABEL, row.label)
    # A family is averaged over its tasks, as everywhere; other slices go across tasks and are averaged over queries.
    return {way: _slices(queries, namer, by_task=way == "family") for way, namer in ways.items()}


def _slices(queries: Sequence[SliceRow], namer: Namer, *, by_task: bool) -> list[Slice]:
    groups: dict[tuple[int, str], list[SliceRow]] = {}
    for row in queries:
        groups.setdefault(namer(row), []).append(row)
    slices = []
    for (_, name), members in sorted(groups.items(), key=lambda group: group[0][0]):
        tasks: dict[str, list[tuple[float, ...]]] = {}
        for row in members:
            tasks.setdefault(row.task if by_task else "", []).append(row.values)
        tables = [np.array(values).T for values in tasks.values()]
        means = average_intervals(tables)
        gain = difference_interval([table[1] - table[0] for table in tables]) if len(means) == 2 else None
        sure = all(table.shape[1] > 1 for table in tables)
        slices.append(Slice(name, len(members), tuple(means), gain, sure))
    return slices


def _count(positives: int) -> tuple[int, str]:
    for limit, name in ((1, "1"), (2, "2"), (4, "3 to 4")):
        if positives <= limit:
            return limit, name
    return 5, "5 and more"

"""The scores of several systems side by side, with intervals: what a figure of a board is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from r2med.diagnose.loaded_runs import HEADLINE, load_runs
from r2med.errors import R2medError
from r2med.measure.bootstrap import Interval, board_intervals
from r2med.measure.metrics import Measure
from r2med.runs.ledger import Ledger, RecordedName
from r2med.runs.selection import comparable_runs


@dataclass(frozen=True)
class ScoreSeries:
    """Systems by their scores on the same tasks."""

    measure: str
    group: str
    systems: Sequence[str]
    oracles: frozenset[str]
    """Those that were shown gold answers."""
    tasks: Mapping[str, Sequence[Interval]]
    """Each task's scores, in the order of the systems."""
    average: Sequence[Interval]


def complete_systems(ledger: Ledger, tasks: Sequence[str]) -> list[str]:
    """The systems that the ledger has on all of these tasks, the best first; oracles are no systems."""
    means = ledger.means()
    whole: dict[str, float] = {}
    for system, runs in comparable_runs(ledger.entries()).items():
        row = [runs[task] for task in tasks if task in runs]
        if len(row) == len(tasks) and not any(entry.oracle for entry in row):
            whole[system] = float(np.mean([means[entry.id].get(str(HEADLINE), 0.0) for entry in row]))
    if not whole:
        raise R2medError("no system of the ledger was run on all of these tasks; r2med run makes runs")
    return [RecordedName(system) for system in sorted(whole, key=lambda system: -whole[system])]


def board(ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = (), measure: Measure = HEADLINE) -> ScoreSeries:
    """The scores of named systems on the tasks that all of them were run on."""
    tables: dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]] = {}
    systems: list[str] = []
    oracles: set[str] = set()
    group = ""
    for opened in load_runs(ledger, names, tasks, measure):
        order = list(opened[0].positives)
        tables[opened[0].entry.task] = np.array([[each.values[query] for query in order] for each in opened])
        systems, group = [each.system for each in opened], opened[0].entry.group
        oracles |= {each.system for each in opened if each.entry.oracle}
    by_task, average = board_intervals(tables)
    return ScoreSeries(str(measure), group, systems, frozenset(oracles), by_task, average)

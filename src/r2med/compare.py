"""Runs of the ledger side by side: which system is better, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.tasks import registry
from r2med.errors import R2medError, suggest
from r2med.measure.paired import Difference, difference, holm
from r2med.store.ledger import Entry, Ledger
from r2med.system import System


@dataclass(frozen=True)
class Comparison:
    """B against A: overall, by family and by task."""

    a: str
    b: str
    overall: Difference
    families: Mapping[str, Difference]
    tasks: Mapping[str, Difference]
    corrected: float
    """The overall randomisation p-value, corrected for the number of comparisons made together (Holm)."""

    def as_dict(self) -> dict[str, Any]:
        """The comparison for JSON."""
        return {
            "a": self.a,
            "b": self.b,
            "overall": self.overall.as_dict() | {"holm": self.corrected},
            "families": {name: found.as_dict() for name, found in self.families.items()},
            "tasks": {name: found.as_dict() for name, found in self.tasks.items()},
        }


def find_runs(ledger: Ledger, name: str, group: str = "", tasks: Sequence[str] = ()) -> dict[str, Entry]:
    """The newest run on each task of a system, by its spec or by the id of one of its runs."""
    known = {entry.system for entry in ledger.entries()}
    if name in known:
        system = name
    elif any(entry.id.startswith(name) for entry in ledger.entries()) and name:
        entry = ledger.get(name)
        return {entry.task: entry}
    else:
        system = _normalised(name)
        if system not in known:
            raise R2medError(
                f"no run of {name!r} in the ledger{suggest(name, known)}; run it first: r2med run {name!r}"
            )
    found: dict[str, Entry] = {}
    for entry in ledger.entries(system=system, group=group):
        if not tasks or entry.task in tasks:
            found.setdefault(entry.task, entry)
    if not found:
        raise R2medError(f"{system} has no run on {', '.join(tasks) or group} in the ledger")
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _normalised(name: str) -> str:
    try:
        return System.parse(name).spec
    except R2medError:
        return name


def _order(task: str) -> tuple[int, str]:
    names = list(registry())
    return (names.index(task) if task in names else len(names), task)


def compare(
    ledger: Ledger, names: Sequence[str], measure: str = "nDCG@10", tasks: Sequence[str] = ()
) -> list[Comparison]:
    """Every pair of the named systems, over the tasks that all of them have been run on."""
    runs = {name: find_runs(ledger, name, tasks=tasks) for name in names}
    shared = [task for task in runs[names[0]] if all(task in found for found in runs.values())]
    if not shared:
        raise R2medError(f"{' and '.join(names)} have no task in common in the ledger")
    groups = {runs[names[0]][task].group for task in shared}
    if len(groups) > 1:
        raise R2medError(f"these runs are of several groups ({', '.join(sorted(groups))}); choose with --tasks")
    for task in shared:
        _check_alike(task, [found[task] for found in runs.values()])
    values = {name: {task: _values(ledger, found[task], measure) for task in shared} for name, found in runs.items()}
    made = [_pair(a, b, values, shared) for a, b in combinations(names, 2)]
    corrected = holm([each.overall.randomisation for each in made])
    return [
        Comparison(each.a, each.b, each.overall, each.families, each.tasks, p)
        for each, p in zip(made, corrected, strict=True)
    ]


def _check_alike(task: str, entries: Sequence[Entry]) -> None:
    """Refuse runs that were not made on the same data, with the reason."""
    first = entries[0]
    for other in entries[1:]:
        if other.record["data"]["fingerprint"] != first.record["data"]["fingerprint"]:
            reason = "its data has changed between the two; run both again"
            raise R2medError(f"{first.system} and {other.system} cannot be compared on {task}: {reason}")
        if set(other.queries) != set(first.queries):
            reason = f"{len(first.queries)} queries against {len(other.queries)}"
            raise R2medError(f"{first.system} and {other.system} cannot be compared on {task}: {reason}")


def _values(ledger: Ledger, entry: Entry, measure: str) -> dict[str, float]:
    scores = ledger.scores(entry)
    if measure not in scores:
        advice = f"r2med run {entry.system!r} --tasks {entry.task} --metrics {measure}"
        raise R2medError(f"{entry.system} on {entry.task} was not measured by {measure}; {advice}")
    return dict(zip(entry.queries, scores[measure].tolist(), strict=True))


def _pair(a: str, b: str, values: Mapping[str, Mapping[str, Mapping[str, float]]], tasks: Sequence[str]) -> Comparison:
    by_task: dict[str, NDArray[np.float64]] = {}
    for task in tasks:
        left, right = values[a][task], values[b][task]
        by_task[task] = np.array([right[query] - left[query] for query in left])
    families: dict[str, list[NDArray[np.float64]]] = {}
    for task, found in by_task.items():
        family = registry()[task].family if task in registry() else "own data"
        families.setdefault(family, []).append(found)
    return Comparison(
        a,
        b,
        difference(list(by_task.values())),
        {family: difference(found) for family, found in families.items()} if len(families) > 1 else {},
        {task: difference([found]) for task, found in by_task.items()},
        1.0,
    )

"""Cost against score: money, tokens and seconds per query of every system, and the systems worth their price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from r2med.errors import R2medError
from r2med.pipeline.named_runs import select
from r2med.runs.cost import Cost
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.selection import Current, check_same_data, comparable_runs, several_groups

COSTS: Mapping[str, str] = {
    "money": "US dollars a query",
    "tokens": "tokens read and written a query",
    "seconds": "seconds a query, searching",
}
"""By what a price can be counted."""
_ROUTES = ("route", "cascade")


@dataclass(frozen=True)
class Bill:
    """Cost of a query with a system; None if the records do not state it."""

    money: float | None
    tokens: float | None
    seconds: float | None
    """To search, models loaded and documents indexed, with each request counted as when it was first answered."""
    machine: str = ""
    """Where the runs were made; seconds of different machines do not compare."""


@dataclass(frozen=True)
class Priced:
    """A system with its score and its bill, averaged over the same tasks."""

    system: str
    score: float
    bill: Bill
    oracle: bool = False
    routes: bool = False  # whether it sends each query to one of several systems

    def cost(self, by: str) -> float | None:
        """Return the cost of a query, counted one way."""
        value: float | None = getattr(self.bill, by)
        return value

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `--json`."""
        return {"system": self.system, "score": self.score, **asdict(self.bill), "oracle": self.oracle}


def comparable(systems: Sequence[Priced], by: str) -> list[tuple[float, Priced]]:
    """Return the systems whose costs are known and comparable, with these costs; oracles are left out.

    Seconds compare on one machine only: the one that has the most of the systems.
    """
    priced = [(cost, system) for system in systems if not system.oracle and (cost := system.cost(by)) is not None]
    if by != "seconds" or not priced:
        return priced
    machines = Counter(system.bill.machine for _, system in priced)
    return [(cost, system) for cost, system in priced if system.bill.machine == machines.most_common(1)[0][0]]


def left_out(systems: Sequence[Priced], by: str) -> str:
    """Explain in a sentence why some systems are not on a frontier; empty if all are."""
    compared = {system.system for _, system in comparable(systems, by)}
    missing = [system for system in systems if not system.oracle and system.system not in compared]
    if not missing:
        return ""
    names = ", ".join(system.system for system in missing[:3]) + (", ..." if len(missing) > 3 else "")
    if by != "seconds":
        return f"Left out, cost not recorded: {names}."
    reason = "its search was not timed apart, was partly taken from the cache, or ran on another machine"
    return f"Left out, seconds not comparable ({reason}): {names}."


def frontier(systems: Sequence[Priced], by: str) -> list[Priced]:
    """Return the systems that no other beats in score at the same cost or less, cheapest first.

    Oracles are never on it, nor is a system of unknown cost.

    >>> cheap, expensive = Priced("a", 0.2, Bill(0.0, 0, 1)), Priced("b", 0.1, Bill(1.0, 9, 1))
    >>> [system.system for system in frontier([expensive, cheap], "money")]
    ['a']
    """
    best, best_systems = -np.inf, []
    for _, system in sorted(comparable(systems, by), key=lambda pair: (pair[0], -pair[1].score)):
        if system.score > best:
            best = system.score
            best_systems.append(system)
    return best_systems


def price(
    ledger: Ledger, names: Sequence[str] = (), tasks: Sequence[str] = (), measure: str = "nDCG@10"
) -> list[Priced]:
    """Price every system of the ledger, or those named, that was run on all of the tasks; the best first."""
    runs = _select_runs(ledger, names, tasks)
    needed = set(tasks) or {task for by_task in runs.values() for task in by_task}
    group_of = {entry.task: entry.group for by_task in runs.values() for entry in by_task.values()}
    groups = {group: [task for task in group_of if group_of[task] == group] for group in group_of.values()}
    if len(groups) > 1:
        raise R2medError(several_groups(groups))
    means = ledger.means()
    complete = [list(by_task.values()) for by_task in runs.values() if set(by_task) == needed]
    if not complete:
        raise R2medError("no system of the ledger was run on all of these tasks; r2med run makes runs")
    return sorted((_priced(entries, means, measure) for entries in complete), key=lambda system: -system.score)


def _select_runs(ledger: Ledger, names: Sequence[str], tasks: Sequence[str]) -> Current:
    """Return the runs of named systems, which must share their data; or those of every system on the current data."""
    if names:
        runs = {selection.label: selection.runs for selection in select(ledger, names, tasks)}
        for task in {task for by_task in runs.values() for task in by_task}:
            check_same_data([by_task[task] for by_task in runs.values() if task in by_task])
        return runs
    every = {
        system: {task: run for task, run in by_task.items() if not tasks or task in tasks}
        for system, by_task in comparable_runs(ledger.entries()).items()
    }
    return {system: by_task for system, by_task in every.items() if by_task}


def _priced(entries: Sequence[Entry], means: Mapping[str, Mapping[str, float]], measure: str) -> Priced:
    lacking = [entry for entry in entries if measure not in means[entry.id]]
    if lacking:
        advice = f"r2med run {lacking[0].system!r} --tasks {lacking[0].task} --measures {measure}"
        raise R2medError(f"{lacking[0].system} on {lacking[0].task} was not measured by {measure}; {advice}")
    score = float(np.mean([means[entry.id][measure] for entry in entries]))
    routes = any(stage.name in _ROUTES for stage in entries[0].record.stages or ())
    return Priced(entries[0].name, score, bill(entries), any(entry.oracle for entry in entries), routes)


def bill(entries: Sequence[Entry]) -> Bill:
    """Compute the cost of a query, over all queries of some runs."""
    cost = Cost.of_runs(entries)
    machines = {machine.name if (machine := entry.record.provenance.machine) else "" for entry in entries}

    def per_query(value: float | None) -> float | None:
        return None if value is None or not cost.queries else value / cost.queries

    seconds = per_query(cost.searching) if len(machines) == 1 else None
    return Bill(per_query(cost.dollars), per_query(cost.tokens), seconds, ", ".join(sorted(machines)))

"""Runs of the ledger side by side: which system is better, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.data.tasks import registry
from r2med.errors import R2medError
from r2med.formatting import p_words
from r2med.measure.metrics import Measure
from r2med.measure.significance import ALPHA, Difference, describe_detectable, difference, holm
from r2med.pipeline.evaluate import shallow_run
from r2med.pipeline.loaded_runs import query_values
from r2med.pipeline.named_runs import select
from r2med.runs.ledger import Ledger
from r2med.runs.selection import Shared, by_group
from r2med.store.typed import Typed


@dataclass(frozen=True, repr=False)
class Comparison:
    """B against A: overall, by family and by task."""

    a: str
    b: str
    overall: Difference
    families: Mapping[str, Difference]
    tasks: Mapping[str, Difference]
    corrected: float
    """The overall randomisation p-value, corrected for the number of comparisons made together (Holm)."""
    incomplete: tuple[int, int] = (0, 0)  # how many queries of A and of B were incomplete
    notes: tuple[str, ...] = ()
    """Tasks that were asked for by name and are left out, and lists that are too short, a sentence a system."""
    pairs: int = 1  # how many comparisons that are
    measure: str = "nDCG@10"
    oracles: frozenset[str] = frozenset()  # which of the two were shown gold answers
    group: str = ""  # the group of the tasks

    @property
    def differs(self) -> bool:
        """Return whether the two differ overall at the 5% level: by the randomisation test, after Holm."""
        return self.corrected < ALPHA

    @cached_property
    def corrected_tasks(self) -> dict[str, float]:
        """Return the tasks' randomisation p-values, corrected for the number of tasks (Holm)."""
        return dict(zip(self.tasks, holm([change.randomisation for change in self.tasks.values()]), strict=True))

    @property
    def differing_tasks(self) -> list[str]:
        """Return the tasks on which the two differ at the 5% level, after Holm."""
        return [task for task, p in self.corrected_tasks.items() if p < ALPHA]

    @property
    def differing_families(self) -> list[str]:
        """Return the families of tasks on which the two differ at the 5% level, after Holm."""
        corrected = holm([change.randomisation for change in self.families.values()])
        return [family for family, p in zip(self.families, corrected, strict=True) if p < ALPHA]

    @property
    def verdict(self) -> str:
        """Return the conclusion in a sentence that a reader may quote."""
        p = p_words(self.corrected, at_floor=self.overall.at_floor)
        p += f" after Holm over {self.pairs} pairs" if self.pairs > 1 else ""
        if not self.differs:
            return f"No difference is shown ({p}){describe_detectable(self.overall, 'one of about ')}."
        higher, lower = (self.b, self.a) if self.overall.mean > 0 else (self.a, self.b)
        if not self.oracles:
            return f"{higher} is better than {lower} ({p})."
        higher, lower = (f"{name} (oracle)" if name in self.oracles else name for name in (higher, lower))
        return f"{higher} scores higher than {lower} ({p}); an oracle is shown the answers and is not a system."

    def __repr__(self) -> str:
        return f"Comparison({self.b!r} minus {self.a!r}: {100 * self.overall.mean:+.2f} points. {self.verdict})"

    def __str__(self) -> str:
        from r2med.comparison.tables import show_pair
        from r2med.render.table import print_plainly

        return print_plainly(show_pair, self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        tasks = {name: change.as_dict() | {"holm": self.corrected_tasks[name]} for name, change in self.tasks.items()}
        return {
            "a": self.a,
            "b": self.b,
            "group": self.group,
            "oracles": sorted(self.oracles),
            "verdict": self.verdict,
            "overall": self.overall.as_dict() | {"holm": self.corrected},
            "families": {name: change.as_dict() for name, change in self.families.items()},
            "tasks": tasks,
            "incomplete": dict(zip("ab", self.incomplete, strict=True)),
            "notes": list(self.notes),
        }


class PlannedQueries(Typed, frozen=True):
    """Queries that a difference needs."""

    queries: int
    """Queries there are now."""
    detectable: float | None
    """The smallest difference that these would show with 80% power at the 5% level."""
    needed: int | None
    """Queries that the planned difference needs, of the same kind and in the same proportions of tasks; None if all
    differences are equal, whose spread tells nothing about other queries."""


class PowerPlan(Typed, frozen=True):
    """Queries that a difference of two systems needs to be shown with 80% power at the 5% level."""

    a: str
    b: str
    measure: str
    group: str
    difference: float
    """The difference that is planned for, as a share of 1."""
    overall: PlannedQueries
    tasks: dict[str, PlannedQueries]
    """Each task by itself."""


def plan_queries(pair: Comparison, change: float) -> PowerPlan:
    """Return how many queries the two systems of a comparison need to show a difference of their means."""

    def planned(one: Difference) -> PlannedQueries:
        return PlannedQueries(one.queries, one.detectable, one.queries_for(change))

    tasks = {task: planned(one) for task, one in pair.tasks.items()}
    return PowerPlan(pair.a, pair.b, pair.measure, pair.group, change, planned(pair.overall), tasks)


def p_after_holm(change: Difference, corrected: float) -> str:
    """Format a corrected p-value for a column, as a bound if it is the smallest that the test can give."""
    return p_words(corrected, at_floor=change.at_floor).removeprefix("p ").removeprefix("= ")


def compare(
    ledger: Ledger, names: Sequence[str], measure: str = "nDCG@10", tasks: Sequence[str] = ()
) -> list[Comparison]:
    """Compare every pair of the named systems over the tasks that all of them were run on; each group by itself."""
    groups = by_group(select(ledger, names, tasks))
    return [pair for shared in groups for pair in compare_shared(ledger, shared, measure)]


def compare_shared(ledger: Ledger, shared: Shared, measure: str = "nDCG@10") -> list[Comparison]:
    """Compare every pair of systems that were selected already."""
    labels = [system.label for system in shared.systems]
    if len(set(labels)) < 2:
        raise R2medError(f"two different systems are needed to compare; {labels[0]} is one")
    values = {
        system.label: {task: query_values(ledger, system.runs[task], measure) for task in shared.tasks}
        for system in shared.systems
    }
    lost = {system.label: sum(len(system.runs[task].incomplete) for task in shared.tasks) for system in shared.systems}
    pairs = [_pair(a, b, values, shared.tasks) for a, b in combinations(values, 2)]
    corrected = holm([pair.overall.randomisation for pair in pairs])
    # Systems whose lists are not as deep as the measure looks.
    shallow = dict.fromkeys(
        f"{system.label}: {sentence}"
        for system in shared.systems
        for task in shared.tasks
        for sentence in shallow_run(Measure.parse(measure), system.runs[task])
    )
    oracles = {system.label for system in shared.systems if any(system.runs[task].oracle for task in shared.tasks)}
    return [
        replace(
            pair,
            corrected=p,
            pairs=len(pairs),
            measure=measure,
            group=shared.group,
            oracles=frozenset({pair.a, pair.b} & oracles),
            incomplete=(lost[pair.a], lost[pair.b]),
            notes=(*shared.notes, *shallow),
        )
        for pair, p in zip(pairs, corrected, strict=True)
    ]


def _pair(a: str, b: str, values: Mapping[str, Mapping[str, Mapping[str, float]]], tasks: Sequence[str]) -> Comparison:
    by_task = {
        task: np.array([values[b][task][query] - value for query, value in values[a][task].items()]) for task in tasks
    }
    families: dict[str, list[NDArray[np.float64]]] = {}
    for task, changes in by_task.items():
        families.setdefault(registry()[task].family if task in registry() else "own data", []).append(changes)
    return Comparison(
        a,
        b,
        difference(list(by_task.values())),
        {family: difference(several) for family, several in families.items()} if len(families) > 1 else {},
        {task: difference([changes]) for task, changes in by_task.items()},
        1.0,
    )

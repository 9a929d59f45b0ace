"""The effect of another query language on a system: same questions, documents and judgements, paired by question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from r2med.data.task_names import task_names
from r2med.data.tasks import Task, resolve
from r2med.errors import R2medError
from r2med.formatting import counted, p_text
from r2med.measure.significance import ALPHA, Difference, difference, holm
from r2med.pipeline.loaded_runs import query_values
from r2med.pipeline.named_runs import select
from r2med.render.table import Column, Table, column, key, percent, signed_interval, signed_percent
from r2med.runs.ledger import Ledger, RecordedName
from r2med.runs.selection import Chosen

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class LanguageDrop:
    """A system on a task and on the same questions in another language."""

    system: str
    source: str
    task: str
    language: str
    before: float
    after: float
    change: Difference
    left_out: int
    corrected: float = 1.0
    """The p-value of the randomisation test, after Holm over all drops that are looked at together."""

    @property
    def sure(self) -> bool:
        """Return whether there is a difference at the 5% level, after Holm."""
        return self.corrected < ALPHA

    def as_dict(self) -> dict[str, Any]:
        """Return the drop in the shape of `--json`."""
        facts = {name: getattr(self, name) for name in ("system", "source", "task", "language", "before", "after")}
        return facts | {"left_out": self.left_out, "difference": self.change.as_dict() | {"holm": self.corrected}}


def translated_tasks(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks whose questions are a translation."""
    return [task for task in tasks if task.translates]


def language_drops(
    ledger: Ledger, names: Sequence[str], tasks: Sequence[Task], measure: str = "nDCG@10"
) -> tuple[list[LanguageDrop], list[str]]:
    """Return each system's loss on each translated task, and why some are missing.

    Without names, every system that was run on one of the tasks is looked at.
    """
    translated = translated_tasks(tasks)
    if not translated:
        raise R2medError("none of these tasks is a translation; make one with: r2med build translate")
    if not names:
        there = {task.name for task in translated}
        systems = dict.fromkeys(entry.name for entry in ledger.entries() if entry.task in there and not entry.oracle)
        if not systems:
            raise R2medError(f"no run on {', '.join(sorted(there))} in the ledger; first: r2med run bm25 --tasks ...")
        names = [RecordedName(name) for name in systems]
    outcomes = [_drop(ledger, system, task, measure) for system in select(ledger, names) for task in translated]
    drops = [outcome for outcome in outcomes if isinstance(outcome, LanguageDrop)]
    notes = [outcome for outcome in outcomes if isinstance(outcome, str)]
    corrected = holm([drop.change.randomisation for drop in drops])
    return [replace(drop, corrected=p) for drop, p in zip(drops, corrected, strict=True)], notes


def _drop(ledger: Ledger, system: Chosen, task: Task, measure: str) -> LanguageDrop | str:
    here, there = system.runs.get(task.name), system.runs.get(task.translates)
    for name, entry in ((task.name, here), (task.translates, there)):
        if entry is None:
            return f"{system.label} has no run on {name}; first: r2med run {system.system!r} --tasks {name}"
    if here is None or there is None or here.record.data.documents != there.record.data.documents:
        return f"{task.name} and {task.translates} have different documents and cannot be compared"
    after, before = (query_values(ledger, entry, measure) for entry in (here, there))
    shared = [query for query in before if query in after]
    if not shared:
        return f"{task.name} and {task.translates} have no question in common"
    pairs = np.array([[before[query], after[query]] for query in shared])
    change, means = difference([pairs[:, 1] - pairs[:, 0]]), pairs.mean(axis=0).tolist()
    lost = len(before) + len(after) - 2 * len(shared)
    return LanguageDrop(system.label, task.translates, task.name, task.language, means[0], means[1], change, lost)


def tasks_of(names: Sequence[str]) -> list[Task]:
    """Return tasks by name; unknown names are left out."""
    tasks = []
    for name in names:
        with suppress(R2medError):
            tasks += resolve([name])
    return tasks


def show_drops(drops: Sequence[LanguageDrop], measure: str, console: Console) -> None:
    """Print the loss of each system in each language."""
    names = task_names([drop.source for drop in drops])
    console.print(f"{measure} x 100 in other languages, paired by question", style="bold")
    columns = [
        key("system"),
        Column("task", folds=True, get=lambda drop: names[drop.source]),
        Column("language", name="language"),
        column("before", "source", percent),
        column("after", "there", percent),
        column("mean", "change", signed_percent, lambda drop: drop.change.mean),
        column("change", "95% interval", signed_interval),
        column("corrected", "p (Holm)", p_text),
        column("queries", "questions", get=lambda drop: drop.change.queries),
    ]
    Table.of(columns, drops).show(console)
    lost = {(names[drop.source], drop.language): drop.left_out for drop in drops if drop.left_out}
    for (task, spoken), number in lost.items():
        console.print(f"{task}, {spoken}: left out are {counted(number, 'question')} that only one of the two has.")

"""Which runs count: the current one of every system on every task, and whether runs saw the same data.

A task's current data is that of the run on it that was made or used last. The current run of a system on a task is its
last one on that data; where it has none, its last one at all, which then cannot be compared with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from r2med.data.dataset import Dataset
from r2med.data.tasks import registry
from r2med.errors import DataError, R2medError
from r2med.runs.ledger import Entry

Current = Mapping[str, Mapping[str, Entry]]
"""System to task to its current run."""
_PARTS = {"documents": "documents", "queries": "queries", "gold": "judgements or answers"}


@dataclass(frozen=True)
class Chosen:
    """The runs that one name stands for, by task."""

    label: str
    """What it is shown as: the spec, or the name that an experiment gives it."""
    system: str
    """The spec."""
    runs: Mapping[str, Entry]
    missing: tuple[str, ...] = ()
    """Tasks that were asked for by name and have no run."""

    @property
    def lack(self) -> str:
        """A sentence about the tasks without a run; empty when there is none."""
        return f"{self.label} has no run on {', '.join(self.missing)}" if self.missing else ""

    @property
    def advice(self) -> str:
        """The same, and how to have them."""
        return f"{self.lack} in the ledger; r2med run {self.system!r} --tasks {' '.join(self.missing)}"


@dataclass(frozen=True)
class Shared:
    """Several systems on the tasks that all of them were run on, which are of one group."""

    systems: tuple[Chosen, ...]
    tasks: tuple[str, ...]

    @property
    def group(self) -> str:
        """The group of the tasks."""
        return self.systems[0].runs[self.tasks[0]].group

    @property
    def notes(self) -> tuple[str, ...]:
        """What was asked for by name and is left out."""
        return tuple(chosen.lack for chosen in self.systems if chosen.lack)

    def on(self, task: str) -> tuple[Entry, ...]:
        """The runs on a task, in the order of the systems."""
        return tuple(chosen.runs[task] for chosen in self.systems)


def current_data(entries: Iterable[Entry]) -> dict[str, str]:
    """The fingerprint of each task's current data, from runs with the last one used first."""
    found: dict[str, str] = {}
    for entry in entries:
        found.setdefault(entry.task, entry.data)
    return found


def current_runs(entries: Sequence[Entry]) -> dict[str, dict[str, Entry]]:
    """The current run of every system on every task, from all runs with the last one used first."""
    data = current_data(entries)
    found: dict[str, dict[str, Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.data != data[entry.task]):
        found.setdefault(entry.system, {}).setdefault(entry.task, entry)
    return {system: _in_order(runs) for system, runs in found.items()}


def _in_order(runs: Mapping[str, Entry]) -> dict[str, Entry]:
    """By task, those of the benchmark first."""
    places = {name: place for place, name in enumerate(registry())}
    return {task: runs[task] for task in sorted(runs, key=lambda task: (places.get(task, len(places)), task))}


def comparable_runs(entries: Sequence[Entry]) -> dict[str, dict[str, Entry]]:
    """Those of the current runs that were made on their tasks' current data."""
    data = current_data(entries)
    runs = {
        system: {task: entry for task, entry in row.items() if entry.data == data[task]}
        for system, row in current_runs(entries).items()
    }
    return {system: row for system, row in runs.items() if row}


def with_words(entries: Sequence[Entry], text: str) -> list[Entry]:
    """The runs in whose id, system or task every word of a text occurs."""
    words = text.casefold().split()
    return [e for e in entries if all(word in f"{e.id}\n{e.system}\n{e.task}".casefold() for word in words)]


def each_once(chosen: Sequence[Chosen]) -> list[Entry]:
    """The runs behind names, each once, in the order given."""
    return list({entry.id: entry for each in chosen for entry in each.runs.values()}.values())


def require_all(chosen: Sequence[Chosen]) -> None:
    """Refuse to go on without a run that was asked for by name: what is packed must be whole."""
    for each in chosen:
        if each.missing:
            raise R2medError(each.advice)


def on_shared_tasks(chosen: Sequence[Chosen]) -> Shared:
    """Systems on the tasks that all of them were run on; runs that saw different data are refused."""
    systems = tuple(chosen)
    common = [task for task in systems[0].runs if all(task in each.runs for each in systems)]
    if not common:
        labels = " and ".join(dict.fromkeys(each.label for each in systems))
        raise R2medError("; ".join([f"{labels} have no task in common in the ledger", *Shared(systems, ()).notes]))
    groups = {systems[0].runs[task].group for task in common}
    if len(groups) > 1:
        raise R2medError(f"these runs are of several groups ({', '.join(sorted(groups))}); choose with --tasks")
    shared = Shared(systems, tuple(common))
    for task in common:
        check_same_data(shared.on(task))
    return shared


class Seen(Protocol):
    """Something that was measured: what it saw."""

    @property
    def data(self) -> str:
        """The fingerprint of the data."""

    @property
    def queries(self) -> Sequence[str]:
        """The queries that were measured."""


def same_data(one: Seen, other: Seen) -> bool:
    """Whether two saw the same data, so that they can be compared query by query."""
    return one.data == other.data and set(one.queries) == set(other.queries)


def differing_data(one: Entry, other: Entry) -> str:
    """What two runs on a task did not see alike, in words; empty when they saw the same data."""
    if same_data(one, other):
        return ""
    left, right = one.record.data, other.record.data
    parts = [words for part, words in _PARTS.items() if getattr(left, part) != getattr(right, part)]
    return " and ".join(parts) or "data"


def check_same_data(entries: Sequence[Entry]) -> None:
    """Refuse runs on a task that did not all see the same data."""
    for other in entries[1:]:
        first = entries[0]
        if parts := differing_data(first, other):
            again = f"run both again: r2med run {first.system!r} {other.system!r} --tasks {first.task}"
            raise R2medError(
                f"{first.system} and {other.system} cannot be compared on {first.task}:"
                f" they did not see the same {parts}; {again}"
            )


def made_on(entry: Entry, dataset: Dataset) -> bool:
    """Whether a run was made on the data that the task has now."""
    return entry.data == dataset.fingerprint


def check_data(entry: Entry, dataset: Dataset) -> None:
    """Refuse a run that was made on other data than the task has now."""
    if not made_on(entry, dataset):
        raise DataError(
            f"the data of {entry.task} has changed since run {entry.id} of {entry.system};"
            f" run it again: r2med run {entry.system!r} --tasks {entry.task}"
        )

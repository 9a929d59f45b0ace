"""Selection of runs: the current one of every system on every task, and whether runs saw the same data.

A task's current data is that of the run on it that was made or used last. The current run of a system on a task is its
last one on that data; if it has none, its last one at all, which then cannot be compared with the others.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from r2med.data.dataset import Dataset
from r2med.data.tasks import groups as task_groups
from r2med.data.tasks import registry
from r2med.errors import DataError, R2medError
from r2med.runs.ledger import Entry

Current = Mapping[str, Mapping[str, Entry]]  # current runs by the name of the system, then by task
_PARTS = {"documents": "documents", "queries": "queries", "gold": "judgements or answers"}


@dataclass(frozen=True)
class Chosen:
    """Runs that one name stands for, by task."""

    label: str  # the label in tables: the spec, or the name that an experiment gives it
    system: str  # the spec
    runs: Mapping[str, Entry]
    missing: tuple[str, ...] = ()  # tasks that were asked for by name and have no run

    @property
    def lack(self) -> str:
        """Return a sentence about the tasks without a run; empty if there are none."""
        return f"{self.label} has no run on {', '.join(self.missing)}" if self.missing else ""

    @property
    def advice(self) -> str:
        """Return the same sentence, with the command that makes the runs."""
        return f"{self.lack} in the ledger; r2med run {self.system!r} --tasks {' '.join(self.missing)}"


@dataclass(frozen=True)
class Shared:
    """Systems on the tasks that all of them were run on, of one group unless tasks are shown one by one."""

    systems: tuple[Chosen, ...]
    tasks: tuple[str, ...]
    remarks: tuple[str, ...] = ()  # sentences about what is left out though it was not asked for by name

    @property
    def group(self) -> str:
        """Return the group of the tasks."""
        return self.systems[0].runs[self.tasks[0]].group

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences about what was asked for by name and is left out."""
        return (*(chosen.lack for chosen in self.systems if chosen.lack), *self.remarks)

    def on(self, task: str) -> tuple[Entry, ...]:
        """Return the runs on a task, in the order of the systems."""
        return tuple(chosen.runs[task] for chosen in self.systems)


def current_data(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the fingerprint of each task's current data, from runs with the last one used first."""
    fingerprints: dict[str, str] = {}
    for entry in entries:
        fingerprints.setdefault(entry.task, entry.data)
    return fingerprints


def current_runs(entries: Sequence[Entry], present: Mapping[str, str] | None = None) -> dict[str, dict[str, Entry]]:
    """Return the current run of every system on every task, from all runs with the last one used first.

    A spec that was run with different files stands for several systems, each under its own name. `present` are
    fingerprints of the data that tasks have now, if they were looked up.
    """
    data = current_data(entries) | dict(present or {})
    by_name: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_name[entry.name].append(entry)
    return {system: current_of(runs, data) for system, runs in by_name.items()}


def current_of(runs: Sequence[Entry], data: Mapping[str, str]) -> dict[str, Entry]:
    """Return the current run of one system on each task, given the current data of the tasks."""
    current: dict[str, Entry] = {}
    for entry in sorted(runs, key=lambda entry: entry.data != data[entry.task]):
        current.setdefault(entry.task, entry)
    places = {name: place for place, name in enumerate(registry())}
    return {task: current[task] for task in sorted(current, key=lambda task: (places.get(task, len(places)), task))}


class OtherContentError(R2medError):
    """Error about a spec that names files: no run, or no single one, was made with their content."""


def name_content(entry: Entry) -> str:
    """Return when and with which files a run was made, in words."""
    places = " and ".join(entry.record.local) or "no files"
    return f"{entry.created[:16].replace('T', ' ')} UTC, {places}, run {entry.id}"


def comparable_runs(entries: Sequence[Entry]) -> dict[str, dict[str, Entry]]:
    """Return those of the current runs that were made on their tasks' current data."""
    data = current_data(entries)
    runs = {
        system: {task: entry for task, entry in row.items() if entry.data == data[task]}
        for system, row in current_runs(entries).items()
    }
    return {system: row for system, row in runs.items() if row}


def with_words(entries: Sequence[Entry], text: str) -> list[Entry]:
    """Return the runs in whose id, system or task every word of a text occurs."""
    words = text.casefold().split()
    return [e for e in entries if all(word in f"{e.id}\n{e.name}\n{e.task}".casefold() for word in words)]


def with_query(chosen: Sequence[Chosen], query: str) -> list[Chosen]:
    """Return the runs on the tasks that have a query; all of them if it is empty or no task has it."""
    runs = [{task: entry for task, entry in selection.runs.items() if query in entry.queries} for selection in chosen]
    if not all(runs):
        return list(chosen)
    return [replace(selection, runs=some) for selection, some in zip(chosen, runs, strict=True)]


def each_once(chosen: Sequence[Chosen]) -> list[Entry]:
    """Return the runs behind names, each once, in the order given."""
    return list({entry.id: entry for selection in chosen for entry in selection.runs.values()}.values())


def require_all(chosen: Sequence[Chosen]) -> None:
    """Raise an error if a run that was asked for by name is missing: a package must be complete."""
    for selection in chosen:
        if selection.missing:
            raise R2medError(selection.advice)


def on_shared_tasks(chosen: Sequence[Chosen]) -> Shared:
    """Return the systems on the tasks that all of them were run on; refuse runs that saw different data."""
    if len(groups := _task_groups(_common(chosen))) > 1:
        raise R2medError(several_groups(groups))
    return in_any_group(chosen)


def by_group(chosen: Sequence[Chosen]) -> list[Shared]:
    """Return the shared tasks by group: scores of different groups are never combined.

    Runs that saw different data are refused, or left out with a remark if other groups remain.
    """
    shared = _common(chosen)
    groups: list[Shared] = []
    errors: list[R2medError] = []
    for tasks in _task_groups(shared).values():
        group = replace(shared, tasks=tasks)
        try:
            for task in tasks:
                check_same_data(group.on(task))
            groups.append(group)
        except R2medError as error:
            errors.append(error)
    if not groups:
        raise errors[0]
    return [replace(group, remarks=tuple(map(str, errors))) for group in groups]


def in_any_group(chosen: Sequence[Chosen]) -> Shared:
    """Return the systems on all tasks that they share, of any group: nothing is averaged over these."""
    shared = _common(chosen)
    for task in shared.tasks:
        check_same_data(shared.on(task))
    return shared


def _common(chosen: Sequence[Chosen]) -> Shared:
    systems = tuple(chosen)
    common = [task for task in systems[0].runs if all(task in selection.runs for selection in systems)]
    if not common:
        labels = " and ".join(dict.fromkeys(selection.label for selection in systems))
        raise R2medError("; ".join([f"{labels} have no task in common in the ledger", *Shared(systems, ()).notes]))
    return Shared(systems, tuple(common))


def _task_groups(shared: Shared) -> dict[str, tuple[str, ...]]:
    """Return the tasks by their groups."""
    runs = shared.systems[0].runs
    names = dict.fromkeys(runs[task].group for task in shared.tasks)
    return {name: tuple(task for task in shared.tasks if runs[task].group == name) for name in names}


def several_groups(groups: Mapping[str, Sequence[str]]) -> str:
    """Return the sentence about tasks of several groups, with what to type to choose one of them.

    >>> several_groups({"sample": ["sample/Biology"], "custom": ["/data/my ward"]})
    "these runs are of several groups; choose with --tasks sample/Biology or --tasks '/data/my ward'"
    """
    members = {name: {task.name for task in tasks} for name, tasks in task_groups().items()}
    choices = [name if set(tasks) == members.get(name) else shlex.join(tasks) for name, tasks in groups.items()]
    return f"these runs are of several groups; choose with {' or '.join(f'--tasks {choice}' for choice in choices)}"


class Seen(Protocol):
    """Protocol of results: the data that they saw."""

    @property
    def data(self) -> str:
        """Return the fingerprint of the data."""

    @property
    def queries(self) -> Sequence[str]:
        """Return the queries that were measured."""


def same_data(one: Seen, other: Seen) -> bool:
    """Return whether two saw the same data, so that they can be compared query by query."""
    return one.data == other.data and set(one.queries) == set(other.queries)


def check_same_data(entries: Sequence[Entry]) -> None:
    """Refuse runs on a task that did not all see the same data."""
    for other in entries[1:]:
        first = entries[0]
        if not same_data(first, other):
            left, right = first.record.data, other.record.data
            differing = [words for part, words in _PARTS.items() if getattr(left, part) != getattr(right, part)]
            parts = " and ".join(differing) or "data"
            again = f"run both again: r2med run {first.system!r} {other.system!r} --tasks {first.task}"
            pair = f"{first.system} and {other.system} cannot be compared on {first.task}"
            raise R2medError(f"{pair}: they did not see the same {parts}; {again}")


def made_on(entry: Entry, dataset: Dataset) -> bool:
    """Return whether a run was made on the data that the task has now."""
    return entry.data == dataset.fingerprint


def check_data(entry: Entry, dataset: Dataset) -> None:
    """Refuse a run that was made on other data than the task has now."""
    if not made_on(entry, dataset):
        again = f"run it again: r2med run {entry.system!r} --tasks {entry.task}"
        raise DataError(f"the data of {entry.task} has changed since run {entry.id} of {entry.system}; {again}")

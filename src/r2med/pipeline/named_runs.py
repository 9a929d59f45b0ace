"""Names as users type them, resolved to runs of the ledger: specs in any spelling, ids, experiment files, tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from r2med.data.tasks import place_of_folder, resolve
from r2med.errors import R2medError, suggest
from r2med.pipeline.system import System, canonical_spec
from r2med.runs.ledger import Entry, Ledger, RecordedName
from r2med.runs.selection import (
    Chosen,
    OtherContentError,
    Shared,
    current_data,
    current_of,
    name_content,
    on_shared_tasks,
)
from r2med.store.typed import Typed, read_toml


@dataclass(frozen=True)
class Experiment:
    """Named set of systems over tasks, such as those of a paper."""

    systems: Mapping[str, str]
    """The name of each row with its system."""
    tasks: tuple[str, ...] = ()
    """Names of tasks; empty if the file has none."""
    measures: tuple[str, ...] = ()


class _NamedSystem(Typed, frozen=True):
    spec: str
    name: str = ""


class _ExperimentFile(Typed, frozen=True):
    system: Annotated[tuple[_NamedSystem, ...], Meta(min_length=1)]
    tasks: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file.

    tasks = ["sample"]
    measures = ["nDCG@10", "Recall@100"]

    [[system]]
    name = "baseline"
    spec = "bm25"
    """
    file = read_toml(path, _ExperimentFile, error=R2medError)
    systems: dict[str, str] = {}
    for row in file.system:
        name = row.name or row.spec
        if name in systems:
            raise R2medError(f"{path}: two systems are called {name!r}")
        systems[name] = row.spec
    return Experiment(systems, file.tasks, file.measures)


_LONG_ENOUGH = 4
"""Characters from which on a name is tried as an id before a spec: `e5` is a model."""


def select(ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = ()) -> list[Chosen]:
    """Select the current runs that names stand for, all of them or those on some tasks.

    A name is the spec of a system in any spelling, an alias, the id of a run or the start of one, an experiment file
    (all its systems) or one system of it, `FILE.toml:NAME`.
    """
    entries = ledger.entries()
    selected = [_narrowed(selection, tasks) for name in names for selection in _named(name, entries, tasks)]
    labels = [selection.label for selection in selected]
    # Two runs of one system that were named by their ids are shown with these.
    return [
        replace(selection, label=f"{selection.label} [{next(iter(selection.runs.values())).id}]")
        if labels.count(selection.label) > 1 and len(selection.runs) == 1
        else selection
        for selection in selected
    ]


def _named(name: str, entries: Sequence[Entry], tasks: Sequence[str]) -> list[Chosen]:
    """Return the runs of a name on all tasks; of an experiment on its tasks, unless others are asked for."""
    systems = {entry.system for entry in entries}
    recorded = [entry for entry in entries if entry.name == name]
    if recorded and (isinstance(name, RecordedName) or name not in systems):
        return [Chosen(name, recorded[0].system, current_of(recorded, current_data(entries)))]
    if name in systems:
        return [_with_content(name, entries)]
    file, _, inner = name.partition(".toml:")
    if name.endswith(".toml") or inner:
        return _of_experiment(Path(f"{file}.toml" if inner else name), inner, entries, own_tasks=not tasks)
    system = ""
    if len(name) < _LONG_ENOUGH or not (entry := _by_id(name, entries)):
        system = canonical_spec(name)
        if system in systems:
            return [_with_content(system, entries)]
        entry = _by_id(name, entries)
    if entry:
        return [Chosen(entry.name, entry.system, {entry.task: entry})]
    if Path(name).is_file():
        measuring = f"`r2med eval {name} --tasks TASK` measures it"
        raise R2medError(f"{name} is a run file, which is not in the ledger: {measuring}")
    near = suggest(name, systems) if systems else ""
    advice = f"; run it first: r2med run {system!r}" if system else ""
    raise R2medError(f"no run of {name!r} in the ledger{near}{advice}")


def _with_content(system: str, entries: Sequence[Entry], label: str = "") -> Chosen:
    """Return the runs of a spec that were made with the files that it names, in their state here.

    A spec whose files are missing here stands for its runs if they were all made with the same files.
    """
    runs = [entry for entry in entries if entry.system == system]
    here: set[str] | None = None
    if any(entry.record.local for entry in runs):
        with suppress(R2medError):
            here = set(System.parse(system).local_content().values())
    if not here:
        variants = [[entry for entry in runs if entry.name == name] for name in dict.fromkeys(e.name for e in runs)]
        if len(variants) > 1:
            choices = "; ".join(f"{variant[0].name!r} ({name_content(variant[0])})" for variant in variants)
            several = f"was run with {len(variants)} contents; name one: {choices}"
            raise OtherContentError(f"{system} is not here and {several}")
        same = runs
    else:
        same = [entry for entry in runs if set(entry.record.local.values()) == here]
        if not same:
            last = f"the last run was of other content ({name_content(runs[0])})"
            advice = f"run it: r2med run {system!r} --tasks {runs[0].task}"
            raise OtherContentError(f"{label or system} as it is here was not run; {last}; {advice}")
    return Chosen(label or same[0].name, system, current_of(same, current_data(entries)))


def _of_experiment(path: Path, inner: str, entries: Sequence[Entry], *, own_tasks: bool) -> list[Chosen]:
    """Return the systems of an experiment file, or one of them, on the file's own tasks if they have runs there."""
    experiment = read_experiment(path)
    if inner and inner not in experiment.systems:
        raise R2medError(f"{path}: no system {inner!r}{suggest(inner, experiment.systems)}")
    specs = {name: canonical_spec(text) for name, text in experiment.systems.items() if inner in ("", name)}
    recorded = {entry.system for entry in entries}
    for name, system in specs.items():
        if system not in recorded:
            raise R2medError(f"{name} of {path} has no run in the ledger; run it first: r2med run {path}")
    selected = [_with_content(system, entries, name) for name, system in specs.items()]
    tasks = [task.name for task in resolve(experiment.tasks)] if own_tasks else []
    shared = any(task in selection.runs for selection in selected for task in tasks)
    return [_narrowed(selection, tasks) for selection in selected] if shared else selected


def _by_id(name: str, entries: Sequence[Entry]) -> Entry | None:
    """Return the run whose id starts with a name, or None."""
    matches = [entry for entry in entries if name and entry.id.startswith(name)]
    if len(matches) > 1:
        raise R2medError(f"several runs start with {name!r}; give more of the id")
    return matches[0] if matches else None


def _narrowed(chosen: Chosen, tasks: Sequence[str]) -> Chosen:
    """Return the runs on the tasks that were asked for; raise an error if there are none."""
    if not tasks:
        return chosen
    runs = {task: entry for task, entry in chosen.runs.items() if task in tasks}
    narrowed = replace(chosen, runs=runs, missing=tuple(task for task in tasks if task not in runs))
    if not runs:
        raise R2medError(narrowed.advice)
    return narrowed


@dataclass(frozen=True)
class Filter:
    """Filter of runs of the ledger, current or not; an empty one selects all."""

    systems: Sequence[str] = ()
    """Specs in any spelling."""
    tasks: Sequence[str] = ()
    """Names, groups and folders."""
    group: str | None = None


def filtered(ledger: Ledger, condition: Filter) -> list[Entry]:
    """Return the runs that match a filter, the last one used first."""
    entries = ledger.entries(group=condition.group or "")
    names = {name for entry in entries for name in (entry.system, entry.name)}
    systems = {name: name if name in names else canonical_spec(name) for name in condition.systems}
    for name, system in systems.items():
        if system not in names:
            raise R2medError(f"no run of the system {name!r} in the ledger{suggest(name, names) if names else ''}")
    recorded = {entry.task for entry in entries}
    tasks: set[str] = set()
    for name in condition.tasks:
        place = str(place_of_folder(Path(name)))  # of a folder that may no longer exist
        tasks.update([name, place] if {name, place} & recorded else [task.name for task in resolve([name])])
    if systems:
        entries = [entry for entry in entries if {entry.system, entry.name} & set(systems.values())]
    return [entry for entry in entries if not tasks or entry.task in tasks]


def name_here(ledger: Ledger, name: str) -> str:
    """Return the name under which the ledger has a system with its files as they are here; unknown names stay."""
    try:
        selected = select(ledger, [name])
    except OtherContentError:
        raise
    except R2medError:
        return name
    return selected[0].label if len(selected) == 1 else name


def lacks(ledger: Ledger, names: Sequence[str], tasks: Sequence[str]) -> list[str]:
    """Return a sentence per system that was asked for by name and has no run."""
    return [selection.lack for selection in select(ledger, names, tasks) if selection.lack] if names else []


def share(ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = ()) -> Shared:
    """Return the named systems on the tasks that all of them were run on; refuse runs that saw different data."""
    return on_shared_tasks(select(ledger, names, tasks))

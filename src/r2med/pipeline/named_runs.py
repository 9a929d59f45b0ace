"""Names as users type them, resolved to runs of the ledger: specs in any spelling, ids, experiment files, tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    on_shared_tasks,
    refuse_choice,
    refuse_content,
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
    chosen = [each for name in names for each in _named(name, entries, tasks)]
    return _told_apart([_narrowed(each, tasks) for each in chosen])


def _named(name: str, entries: Sequence[Entry], tasks: Sequence[str] = ()) -> list[Chosen]:
    """Return the runs of a name on all tasks; of an experiment on its tasks, unless others are asked for."""
    systems = {entry.system for entry in entries}
    recorded = [entry for entry in entries if entry.name == name]
    if recorded and (isinstance(name, RecordedName) or name not in systems):
        return [Chosen(name, recorded[0].system, current_of(recorded, current_data(entries)))]
    if name in systems:
        return [_with_content(name, entries)]
    file, _, inner = name.partition(".toml:")
    if name.endswith(".toml") or inner:
        found = _of_experiment(Path(name if not inner else f"{file}.toml"), inner, entries)
        return found if tasks else _on_own_tasks(Path(name if not inner else f"{file}.toml"), found)
    if len(name) >= _LONG_ENOUGH and (entry := _by_id(name, entries)):
        return [Chosen(entry.name, entry.system, {entry.task: entry})]
    system = canonical_spec(name)
    if system in systems:
        return [_with_content(system, entries)]
    if entry := _by_id(name, entries):
        return [Chosen(entry.name, entry.system, {entry.task: entry})]
    raise R2medError(_unknown(name, system, systems))


def _with_content(system: str, entries: Sequence[Entry], label: str = "") -> Chosen:
    """Return the runs of a spec that were made with the files that it names, in their state here.

    A spec whose files are missing here stands for its runs if they were all made with the same files.
    """
    runs = [entry for entry in entries if entry.system == system]
    here = _read_here(system) if any(entry.record.local for entry in runs) else None
    if here is None:
        variants = [[entry for entry in runs if entry.name == name] for name in dict.fromkeys(e.name for e in runs)]
        if len(variants) > 1:
            raise refuse_choice(system, variants)
        same = runs
    else:
        same = [entry for entry in runs if (set(entry.record.local.values()) == set(here.local_content().values()))]
        if not same:
            raise refuse_content(system, runs, label or system)
    return Chosen(label or same[0].name, system, current_of(same, current_data(entries)))


def _read_here(system: str) -> System | None:
    """Return the system of a spec that names files, folders or code that can be read here, otherwise None."""
    try:
        built = System.parse(system)
        return built if built.local_content() else None
    except R2medError:
        return None


def _of_experiment(path: Path, inner: str, entries: Sequence[Entry]) -> list[Chosen]:
    """Return the systems of an experiment file, or one of them."""
    specs = read_experiment(path).systems
    if inner and inner not in specs:
        raise R2medError(f"{path}: no system {inner!r}{suggest(inner, specs)}")
    wanted = {name: canonical_spec(text) for name, text in specs.items() if inner in ("", name)}
    known = {entry.system for entry in entries}
    for name, system in wanted.items():
        if system not in known:
            raise R2medError(f"{name} of {path} has no run in the ledger; run it first: r2med run {path}")
    return [_with_content(system, entries, name) for name, system in wanted.items()]


def _on_own_tasks(path: Path, chosen: Sequence[Chosen]) -> list[Chosen]:
    """Return the systems of an experiment on the tasks that its file names, if there is a run on one of these."""
    tasks = [task.name for task in resolve(read_experiment(path).tasks)]
    known = {task for each in chosen for task in each.runs}
    return [_narrowed(each, tasks) for each in chosen] if known & set(tasks) else list(chosen)


def _by_id(name: str, entries: Sequence[Entry]) -> Entry | None:
    """Return the run whose id starts with a name, or None."""
    matches = [entry for entry in entries if name and entry.id.startswith(name)]
    if len(matches) > 1:
        raise R2medError(f"several runs start with {name!r}; give more of the id")
    return matches[0] if matches else None


def _unknown(name: str, system: str, known: Collection[str]) -> str:
    """Return why a name stands for no run, and advice that can work."""
    if Path(name).is_file():
        return f"{name} is a run file, which is not in the ledger: `r2med eval {name} --tasks TASK` measures it"
    near = suggest(name, known) if known else ""
    advice = f"; run it first: r2med run {system!r}" if system else ""
    return f"no run of {name!r} in the ledger{near}{advice}"


def _narrowed(chosen: Chosen, tasks: Sequence[str]) -> Chosen:
    """Return the runs on the tasks that were asked for; raise an error if there are none."""
    if not tasks:
        return chosen
    runs = {task: entry for task, entry in chosen.runs.items() if task in tasks}
    narrowed = replace(chosen, runs=runs, missing=tuple(task for task in tasks if task not in runs))
    if not runs:
        raise R2medError(narrowed.advice)
    return narrowed


def _told_apart(chosen: Sequence[Chosen]) -> list[Chosen]:
    """Make labels distinct: two runs of one system that were named by their ids are shown with these."""
    labels = [each.label for each in chosen]
    return [
        replace(each, label=f"{each.label} [{next(iter(each.runs.values())).id}]")
        if labels.count(each.label) > 1 and len(each.runs) == 1
        else each
        for each in chosen
    ]


@dataclass(frozen=True)
class Filter:
    """Filter of runs of the ledger, current or not; an empty one selects all."""

    systems: Sequence[str] = ()
    """Specs in any spelling."""
    tasks: Sequence[str] = ()
    """Names, groups and folders."""
    group: str | None = None


def filtered(ledger: Ledger, wanted: Filter) -> list[Entry]:
    """Return the runs that match a filter, the last one used first."""
    entries = ledger.entries(group=wanted.group or "")
    names = {name for entry in entries for name in (entry.system, entry.name)}
    systems = {_known(name, canonical_spec(name), names, "system") for name in wanted.systems}
    tasks = {task for name in wanted.tasks for task in _known_tasks(name, {entry.task for entry in entries})}
    return [
        entry
        for entry in entries
        if (not systems or {entry.system, entry.name} & systems) and (not tasks or entry.task in tasks)
    ]


def _known(name: str, spec: str, known: Iterable[str], what: str) -> str:
    """Return a name or its spec, whichever is in the ledger."""
    there = set(known)
    if name not in there and spec not in there:
        raise R2medError(f"no run of the {what} {name!r} in the ledger{suggest(name, there) if there else ''}")
    return name if name in there else spec


def _known_tasks(name: str, known: set[str]) -> list[str]:
    """Return the tasks of a name, a group or a folder, which may no longer exist."""
    place = str(place_of_folder(Path(name)))
    if name in known or place in known:
        return [name, place]
    return [task.name for task in resolve([name])]


def name_here(ledger: Ledger, name: str) -> str:
    """Return the name under which the ledger has a system with its files as they are here; unknown names stay."""
    try:
        chosen = select(ledger, [name])
    except OtherContentError:
        raise
    except R2medError:
        return name
    return chosen[0].label if len(chosen) == 1 else name


def lacks(ledger: Ledger, names: Sequence[str], tasks: Sequence[str]) -> list[str]:
    """Return a sentence per system that was asked for by name and has no run."""
    return [each.lack for each in select(ledger, names, tasks) if each.lack] if names else []


def share(ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = ()) -> Shared:
    """Return the named systems on the tasks that all of them were run on; refuse runs that saw different data."""
    return on_shared_tasks(select(ledger, names, tasks))

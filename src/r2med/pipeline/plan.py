"""The plan of a command, resolved before anything is computed, which `--dry-run` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from r2med.data.dataset import Dataset
from r2med.data.loader import cached_task, load
from r2med.data.tasks import Task, resolve
from r2med.errors import HubUnreachable, R2medError
from r2med.formatting import one_line
from r2med.pipeline.evaluate import run_key
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context, Requirements, Stage
from r2med.pipeline.system import System
from r2med.runs.ledger import Ledger
from r2med.store.cache import Cache


@dataclass(frozen=True)
class PlannedStage:
    """Stage of a system, with its settings resolved."""

    spec: str
    kind: str
    settings: Mapping[str, Any]
    needs: Mapping[str, Any]
    """Requirements: an extra, a key, hub repositories, a GPU."""


@dataclass(frozen=True)
class PlannedTask:
    """System on a task."""

    task: str
    state: str
    """`in the ledger`, `to compute`, or the reason why that is not known yet."""
    forecast: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Work that each stage would do, and results that it has already."""


@dataclass(frozen=True)
class Plan:
    """Plan of one system: its stages, and what is left to do on each task."""

    system: str
    stages: Sequence[PlannedStage]
    tasks: Sequence[PlannedTask]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return asdict(self)


def plan(
    systems: Sequence[System],
    tasks: Sequence[str],
    *,
    split: str | None = None,
    fresh: bool = False,
    strict: bool = False,
) -> list[Plan]:
    """Resolve systems and tasks; read data that is on this machine, download and compute nothing.

    With `fresh`, runs of the ledger are to be computed again; `strict` is as in `load`.
    """
    found = [(task, _at_hand(task, strict=strict)) for task in resolve(tasks, split=split)]
    errors = [data for _, data in found if isinstance(data, Exception)]
    if errors and len(errors) == len(found):
        raise errors[0]
    with Ledger() as ledger:
        return [
            Plan(
                system.spec,
                [_stage(stage) for stage in system.walk()],
                [_task(system, task, dataset, None if fresh else ledger) for task, dataset in found],
            )
            for system in systems
        ]


def _at_hand(task: Task, *, strict: bool) -> Dataset | Exception | None:
    """Return the data of a task if it needs no download, or why it cannot be read."""
    if task.folder is None and cached_task(task) is None:
        return None
    try:
        return load(task, strict=strict)
    except (R2medError, OSError) as error:
        return error


def _stage(stage: Stage) -> PlannedStage:
    needs = {name: value for name, value in asdict(stage.requirements).items() if value != _NOTHING[name]}
    try:
        settings = dict(stage.describe())
    except HubUnreachable as error:
        settings = {"settings": f"not known yet: {error}"}
    return PlannedStage(str(stage), stage.kind, settings, needs)


_NOTHING = asdict(Requirements())


def _task(system: System, task: Task, dataset: Dataset | Exception | None, ledger: Ledger | None) -> PlannedTask:
    if dataset is None:
        return PlannedTask(task.name, f"to compute, after a download from {task.hub}")
    if isinstance(dataset, Exception):
        return PlannedTask(task.name, f"cannot be read: {one_line(dataset)}")
    try:
        entry = ledger.find(run_key(system, dataset)) if ledger is not None else None
        if entry is not None and not entry.incomplete:
            return PlannedTask(task.name, "in the ledger")
        state = "to compute" if entry is None else "to try again, because it is not complete"
        context = Context(Cache.default(), quiet())
        forecast = {
            str(stage): dict(stage.forecast(handed, context)) for stage, handed in system.handed(dataset.collection)
        }
        return PlannedTask(task.name, state, {name: facts for name, facts in forecast.items() if facts})
    except HubUnreachable:
        return PlannedTask(task.name, "to compute; without the hub it is not known what is here already")

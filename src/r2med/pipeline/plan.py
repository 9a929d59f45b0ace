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
from r2med.pipeline.stage import Context, Stage
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
    tasks_data: list[tuple[Task, Dataset | Exception | None]] = []
    for task in resolve(tasks, split=split):
        data: Dataset | Exception | None = None
        if task.folder is not None or cached_task(task) is not None:  # it needs no download
            try:
                data = load(task, strict=strict)
            except (R2medError, OSError) as error:
                data = error
        tasks_data.append((task, data))
    errors = [data for _, data in tasks_data if isinstance(data, Exception)]
    if errors and len(errors) == len(tasks_data):
        raise errors[0]
    with Ledger() as ledger:
        return [
            Plan(
                system.spec,
                [plan_stage(stage) for stage in system.walk()],
                [_task(system, task, dataset, None if fresh else ledger) for task, dataset in tasks_data],
            )
            for system in systems
        ]


def plan_stage(stage: Stage) -> PlannedStage:
    """Resolve the settings and requirements of a stage."""
    needs = {name: value for name, value in asdict(stage.requirements).items() if value}
    try:
        settings = dict(stage.describe())
    except HubUnreachable as error:
        settings = {"settings": f"not known yet: {error}"}
    return PlannedStage(str(stage), stage.kind, settings, needs)


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
        context, handed = Context(Cache.default(), quiet()), system.handed(dataset.collection)
        forecast = {str(stage): dict(stage.forecast(collection, context)) for stage, collection in handed}
        return PlannedTask(task.name, state, {name: facts for name, facts in forecast.items() if facts})
    except HubUnreachable:
        return PlannedTask(task.name, "to compute; without the hub it is not known what is here already")

"""What a person may give to a verb: systems, tasks and measures in any form, checked at the door."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from r2med.data.dataset import Dataset
from r2med.data.tasks import Task, resolve
from r2med.encode.user_encoder import TwoMethods
from r2med.errors import R2medError
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Stage
from r2med.pipeline.system import System

AnySystem = System | Stage | TwoMethods | Callable[..., Any] | str
"""A system, a lone stage, or a spec. An object that encodes or searches is taken, too: see docs/own-models.md."""
AnyTask = Dataset | Task | Path | str
"""Data that was loaded, or what it is loaded by: the name of a task or a group, or a folder."""


def listed(value: Any) -> list[Any]:
    """One or several, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def check_type(value: object, kinds: tuple[type, ...], what: str) -> None:
    """Refuse what is of another type than a person would be expected to give."""
    if not isinstance(value, kinds):
        shown = " ".join(repr(value).split())
        raise R2medError(f"{what}, not {shown[:80]} ({type(value).__name__})")


def run_name(value: AnySystem) -> str:
    """What a run is known by in the ledger: a spec or an id as it is typed, or the spec of a system."""
    return value if isinstance(value, str) else build_system(value).spec


def task_names_of(tasks: AnyTask | Iterable[AnyTask]) -> list[str]:
    """What names, folders and loaded data stand for in the ledger."""
    names = []
    for task in listed(tasks) if not isinstance(tasks, Dataset) else [tasks]:
        check_type(task, (Dataset, Task, Path, str), "a task is its name, a folder or a Dataset")
        names += [task.name] if isinstance(task, Dataset | Task) else [each.name for each in resolve([task])]
    return names

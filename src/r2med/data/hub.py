"""Data from the hub: only the files that are needed, by pinned revision, and from then on without any request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r2med.data.layout import PATTERNS, choose, config_files, listing, missing
from r2med.data.tasks import Task
from r2med.errors import DataError
from r2med.hub import Hub, Snapshot

_HUB = Hub("dataset", DataError)


def fetch_task(task: Task) -> Snapshot:
    """The files of a task, downloaded unless they are on this machine already."""
    cached = cached_task(task)
    if cached is not None:
        return cached
    revision = commit_of(task)
    names = remote_names(task.hub, revision)
    parts = choose(names, task.split)
    for part in PATTERNS:
        if not getattr(parts, part):
            raise DataError(f"{task.hub} at {revision}: {missing(part, names, task.split)}")
    return download(task.hub, revision, parts.files)


def commit_of(task: Task) -> str:
    """The revision to ask for. A branch is the commit it led to when this machine first fetched something of it, so
    that tasks of one repository never come from different states of it."""
    cached = cached_snapshot(task.hub, task.revision)
    return task.revision if cached is None else cached.commit


def cached_task(task: Task) -> Snapshot | None:
    """The files of a task if all of them are on this machine already; no request is made."""
    cached = cached_snapshot(task.hub, task.revision)
    if cached is None:
        return None
    parts = choose(listing(cached.folder), task.split)
    return cached if parts.complete and all((cached.folder / name).is_file() for name in parts.files) else None


def fetch_config(task: Task, config: str) -> list[Path]:
    """The files of a further config of a task's repository, downloaded unless they are on this machine already."""
    cached = cached_snapshot(task.hub, task.revision)
    if cached is not None:
        names = config_files(config, listing(cached.folder, config), task.split)
        if names and all((cached.folder / name).is_file() for name in names):
            return [cached.folder / name for name in names]
    revision = commit_of(task)
    names = config_files(config, sorted(remote_names(task.hub, revision)), task.split)
    if not names:
        raise DataError(f"{task.hub} at {revision} has no config {config!r} for {task.split}")
    folder = download(task.hub, revision, names).folder
    return [folder / name for name in names]


def cached_snapshot(repo: str, revision: str) -> Snapshot | None:
    """What the hub's cache on this machine holds of a revision, complete or not; no request is made."""
    return _HUB.cached(repo, revision)


def remote_names(repo: str, revision: str) -> list[str]:
    """The names of all files of a revision, asked from the hub."""
    return _HUB.names(repo, revision)


def download(repo: str, revision: str, names: Sequence[str]) -> Snapshot:
    """Fetch these files, with a progress bar on standard error."""
    return _HUB.download(repo, revision, names)

"""The data of a task, wherever it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from r2med.data.dataset import Dataset
from r2med.data.reader import read_dataset
from r2med.data.tasks import Task, resolve
from r2med.errors import DataError


def load(
    task: str | Path | Task, *, split: str | None = None, revision: str | None = None, strict: bool = False
) -> Dataset:
    """The data of a task: from the hub by its pinned revision, from the bundled sample, or from a folder.

    `split` chooses among the splits of a folder (`test` unless it has only one), `revision` overrides a hub task's own.
    Queries without text and judgements of documents that are not there are left out, with a counted warning; with
    `strict` they are an error.

    >>> dataset = load("sample/Biology")
    >>> dataset.name, dataset.task.family, len(dataset.collection.queries) == len(dataset.gold.qrels)
    ('sample/Biology', 'qa-reference', True)
    """
    found = resolve([task], split=split)
    if len(found) != 1:
        raise DataError(f"{task} stands for {len(found)} tasks; load one of {', '.join(each.name for each in found)}")
    chosen = found[0]
    if chosen.folder is not None:
        if revision is not None:
            raise DataError(f"{chosen.name} is a folder and has no revision {revision}")
        return read_dataset(chosen, chosen.folder, strict=strict)
    from r2med.data.hub_tasks import fetch_task  # folders do without the hub

    chosen = replace(chosen, revision=revision or chosen.revision)
    snapshot = fetch_task(chosen)
    return read_dataset(chosen, snapshot.folder, snapshot.commit, strict=strict)

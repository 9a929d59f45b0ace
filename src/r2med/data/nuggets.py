"""Nuggets in files: the facts that a good answer to a question holds, one JSON object per line.

A vital nugget must be in a good answer, an okay one adds to it. Ids of nuggets are local to a question, and ids of
questions to a task, which is named unless the file is of any task that has the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from r2med.data.dataset import Dataset
from r2med.errors import DataError, suggest
from r2med.formatting import shorten
from r2med.store.files import expanded, write_file
from r2med.store.hashes import cache_key
from r2med.store.typed import Typed, convert, json_lines, read_text, require


class Nugget(Typed, frozen=True):
    """One fact of a question's good answer."""

    id: str
    text: str
    vital: bool


class NuggetRow(Typed, frozen=True):
    """Line of a file: a nugget with its question."""

    query_id: str
    nugget_id: str
    text: str
    vital: bool
    task: str = ""

    def __post_init__(self) -> None:
        for name in ("query_id", "nugget_id", "text"):
            require(bool(getattr(self, name).strip()), name, "is empty")


@dataclass(frozen=True)
class NuggetFile:
    """Nuggets of a file, with the lines on which they stand."""

    path: Path
    rows: Mapping[int, NuggetRow]

    @property
    def hash(self) -> str:
        """Return a hash of all nuggets."""
        return cache_key(nuggets=[msgspec.structs.astuple(row) for row in self.rows.values()])[:16]

    def of(self, dataset: Dataset) -> dict[str, tuple[Nugget, ...]]:
        """Return the nuggets of a task by question; a question that the task does not have is an error."""
        nuggets: dict[str, tuple[Nugget, ...]] = {}
        for line, row in self.rows.items():
            if row.task not in ("", task_label(dataset.name)):
                continue
            if row.query_id not in dataset.collection.queries.position:
                why = suggest(row.query_id, dataset.collection.queries.ids)
                raise DataError(f"{self.path}:{line}: {dataset.name} has no question {shorten(row.query_id)!r}{why}")
            before = nuggets.setdefault(row.query_id, ())
            if row.nugget_id in [nugget.id for nugget in before]:
                raise DataError(f"{self.path}:{line}: {_place(row)} above already, with or without the task's name")
            nuggets[row.query_id] = (*before, Nugget(row.nugget_id, row.text, row.vital))
        return nuggets

    def check_tasks(self, names: Iterable[str]) -> None:
        """Refuse a file without a nugget for any of some tasks."""
        labels, tasks = list(map(task_label, names)), list(dict.fromkeys(row.task for row in self.rows.values()))
        if not {"", *labels} & set(tasks):
            raise DataError(f"{self.path}: has no nugget of {', '.join(labels)}; its tasks are {', '.join(tasks)}")


def task_label(name: str) -> str:
    """Return the name of a task as files of nuggets have it: of a folder the last part, so that it may be moved.

    >>> task_label("sample/Biology"), task_label("/data/ours")
    ('sample/Biology', 'ours')
    """
    return Path(name).name if Path(name).is_absolute() else name


def _place(row: NuggetRow) -> str:
    return f"question {shorten(row.query_id)!r} has the nugget {shorten(row.nugget_id)!r}"


def read_nuggets(path: str | Path) -> NuggetFile:
    """Read a file of nuggets."""
    path = expanded(path)
    rows: dict[int, NuggetRow] = {}
    lines: dict[tuple[str, str, str], int] = {}
    for line, text in enumerate(read_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DataError(f"{path}:{line}: not readable as JSON: {error}") from error
        row = rows[line] = convert(value, NuggetRow, f"{path}:{line}")
        first = lines.setdefault((row.task, row.query_id, row.nugget_id), line)
        if first != line:
            raise DataError(f"{path}:{line}: {_place(row)} on line {first} already")
    if not rows:
        raise DataError(f"{path}: holds no nuggets")
    return NuggetFile(path, rows)


def write_nuggets(path: Path, rows: Sequence[NuggetRow]) -> None:
    """Write a file of nuggets, as `read_nuggets` reads it."""
    write_file(path, json_lines(rows), parents=True)

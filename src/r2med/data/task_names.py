"""Names of tasks and groups in tables, charts and sentences, and the notes that a reader of a group's scores needs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from r2med.data.tasks import TASK_FILE, registry
from r2med.store.hashes import Stamp, stamp

GROUP_TITLES = {  # names of the groups above a table
    "sample": "bundled sample",
    "nano": "NanoR2MED",
    "full": "R2MED",
    "custom": "own data",
    "custom-nano": "own nano sets",
}
GROUP_NOTES = {  # notes that a reader of a group's scores needs
    "sample": "The sample is a small demonstration: its scores compare with nothing but each other.",
    "nano": "Nano tasks are easier than the full ones: never compare the two.",
    "custom-nano": "A nano set is easier than its source: never compare the two (r2med nano agree shows by how much).",
}
SHORT_NAMES = {  # task names as table headings, so that eight columns fit a terminal
    "Biology": "Bio",
    "Bioinformatics": "Bioinf",
    "Medical-Sciences": "MedSci",
    "MedXpertQA-Exam": "MedXp",
    "MedQA-Diag": "MedQA",
    "PMC-Treatment": "PMC-T",
    "PMC-Clinical": "PMC-C",
    "IIYi-Clinical": "IIYi",
}
# The splits of nano sets that were built from the tasks.
_NANO_SPLITS = {f"NanoR2MED{name.replace('-', '')}": short for name, short in SHORT_NAMES.items()}


def _task_heading(task: str) -> str:
    """Return a task's name as the heading of a column; only a task of the benchmark has a short name of it."""
    base = task.rstrip("/").rpartition("/")[2] or task
    if not Path(task).is_absolute():
        return SHORT_NAMES.get(base) or _NANO_SPLITS.get(base, base)
    folder, split = (Path(task), "") if Path(task).is_dir() else (Path(task).parent, f"/{Path(task).name}")
    file = folder / TASK_FILE
    name = _read_name(file, stamp(file)) if file.is_file() else ""
    return f"{name}{split}" if name else _NANO_SPLITS.get(base, base)


@lru_cache(maxsize=256)
def _read_name(file: Path, _stamp: Stamp) -> str:
    try:
        name = tomllib.loads(file.read_text("utf-8")).get("name", "")
    except (ValueError, OSError, RecursionError):
        return ""
    return " ".join(name.split()) if isinstance(name, str) else ""


def task_names(tasks: Iterable[str]) -> dict[str, str]:
    """Name tasks for running text: those of the benchmark in full, folders by as much of their path as is needed.

    >>> task_names(["sample/Biology", "/data/notes", "/data/Biology"])
    {'sample/Biology': 'sample/Biology', '/data/notes': 'notes', '/data/Biology': 'data/Biology'}
    """
    known, distinct = registry(), list(dict.fromkeys(tasks))
    names = task_headings([task for task in distinct if task not in known])
    for task in names:
        for parts in range(2, task.count("/") + 2):
            if names[task] in known:
                names[task] = "/".join(task.rsplit("/", parts)[-parts:])
    return {task: names.get(task, task) for task in distinct}


def task_headings(tasks: Sequence[str]) -> dict[str, str]:
    """Return headings of adjacent columns; tasks that would share one get as much of their path as distinguishes them.

    >>> task_headings(["nfcorpus/dev", "scifact/dev", "sample/Biology"])
    {'nfcorpus/dev': 'nfcorpus/dev', 'scifact/dev': 'scifact/dev', 'sample/Biology': 'Bio'}
    """
    headings = {task: _task_heading(task) for task in tasks}
    for parts in range(2, max((task.count("/") for task in headings), default=0) + 2):
        names = list(headings.values())
        for task, name in headings.items():
            if names.count(name) > 1:
                headings[task] = "/".join(task.rsplit("/", parts)[-parts:])
    return headings


def called(task: str, tasks: Sequence[str] = ()) -> str:
    """Return the name of a task in text: of a folder its last part, or as much of its path as distinguishes it.

    >>> called("/home/me/guidelines"), called("sample/Biology"), called("/a/x/task", ["/a/x/task", "/a/y/task"])
    ('guidelines', 'sample/Biology', 'x/task')
    """
    return task_headings([*tasks, task])[task] if task.startswith("/") else task

"""How tasks and their groups are called in tables, charts and sentences, and what a reader must know about a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from r2med.data.tasks import registry

GROUP_TITLES = {
    "sample": "bundled sample",
    "nano": "NanoR2MED",
    "full": "R2MED",
    "custom": "own data",
    "custom-nano": "own nano sets",
}
"""What the groups are called above a table."""
GROUP_NOTES = {
    "sample": "The sample is a small demonstration: its scores compare with nothing but each other.",
    "nano": "Nano tasks are easier than the full ones: never compare the two.",
    "custom-nano": "A nano set is easier than its source: never compare the two (r2med nano agree shows by how much).",
}
"""What a reader must know about a group's scores."""
SHORT_NAMES = {
    "Biology": "Bio",
    "Bioinformatics": "Bioinf",
    "Medical-Sciences": "MedSci",
    "MedXpertQA-Exam": "MedXp",
    "MedQA-Diag": "MedQA",
    "PMC-Treatment": "PMC-T",
    "PMC-Clinical": "PMC-C",
    "IIYi-Clinical": "IIYi",
}
"""Task names as table headings, where eight columns must fit a terminal."""
_NANO_SPLITS = {f"NanoR2MED{name.replace('-', '')}": short for name, short in SHORT_NAMES.items()}
"""The splits of nano sets that were built from the tasks."""


def task_heading(task: str) -> str:
    """A task's name as the heading of a column.

    >>> task_heading("nano/MedQA-Diag")
    'MedQA'
    """
    base = task.rstrip("/").rpartition("/")[2] or task
    return SHORT_NAMES.get(base) or _NANO_SPLITS.get(base, base)


def task_names(tasks: Iterable[str]) -> dict[str, str]:
    """Tasks as they are named in text: those of the benchmark whole, folders by as much of their path as is needed.

    >>> task_names(["sample/Biology", "/data/notes"])
    {'sample/Biology': 'sample/Biology', '/data/notes': 'notes'}
    """
    known, distinct = registry(), list(dict.fromkeys(tasks))
    headings = task_headings([task for task in distinct if task not in known])
    return {task: headings.get(task, task) for task in distinct}


def task_headings(tasks: Sequence[str]) -> dict[str, str]:
    """The headings of columns side by side; tasks that would share one have as much of their path as tells them apart.

    >>> task_headings(["nfcorpus/dev", "scifact/dev", "sample/Biology"])
    {'nfcorpus/dev': 'nfcorpus/dev', 'scifact/dev': 'scifact/dev', 'sample/Biology': 'Bio'}
    """
    headings = {task: task_heading(task) for task in tasks}
    for parts in range(2, max((task.count("/") for task in headings), default=0) + 2):
        shown = list(headings.values())
        headings |= {
            task: "/".join(task.rsplit("/", parts)[-parts:]) for task, name in headings.items() if shown.count(name) > 1
        }
    return headings

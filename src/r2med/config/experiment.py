"""Experiments: named systems over tasks, in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from r2med.config.settings_files import names_under, read_toml
from r2med.errors import R2medError


@dataclass(frozen=True)
class Experiment:
    """A named set of systems over tasks, as a researcher keeps one for a paper."""

    systems: Mapping[str, str]
    """The name of each row and its system."""
    tasks: tuple[str, ...] = ()
    """Empty where the file has none."""
    metrics: tuple[str, ...] = ()
    path: Path = field(default_factory=Path)


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file.

    tasks = ["sample"]
    metrics = ["nDCG@10", "Recall@100"]

    [[system]]
    name = "baseline"
    spec = "bm25"
    """
    found = read_toml(path, ("tasks", "metrics", "system"))
    systems: dict[str, str] = {}
    entries = found.get("system")
    if not isinstance(entries, list) or not entries:
        raise R2medError(f"{path}: no [[system]] in it")
    for place, entry in enumerate(entries, 1):
        spec = entry.get("spec")
        if not isinstance(spec, str) or set(entry) - {"name", "spec"}:
            raise R2medError(f'{path}: [[system]] number {place} must have spec = "..." and may have name = "..."')
        name = str(entry.get("name", spec))
        if name in systems:
            raise R2medError(f"{path}: two systems are called {name!r}")
        systems[name] = spec
    return Experiment(systems, names_under(path, found, "tasks", ()), names_under(path, found, "metrics", ()), path)

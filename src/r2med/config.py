"""A user's own names: aliases of systems, from `r2med.toml` here or `config.toml` in `R2MED_HOME`, and experiments.

    [aliases]
    best = "rrf(bm25, minilm) >> bge-reranker(depth=100)"

An alias may use other aliases and may stand wherever a stage or a system may. It never enters a result: the ledger
knows the system that it stands for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2med.errors import R2medError, suggest
from r2med.store.home import home

PROJECT_FILE = "r2med.toml"
USER_FILE = "config.toml"


def read_toml(path: Path, known: tuple[str, ...]) -> dict[str, Any]:
    """A TOML file whose top-level keys must be among the known ones."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise R2medError(f"{path}: cannot be read: {reason}") from error
    for key in found:
        if key not in known:
            raise R2medError(f"{path}: unknown key {key!r}{suggest(key, known)}")
    return found


def aliases() -> Mapping[str, str]:
    """Every alias by name; those of the current folder win over those of the user."""
    found: dict[str, str] = {}
    for path in (home() / USER_FILE, Path(PROJECT_FILE)):
        if path.is_file():
            found |= _texts(path, "aliases", read_toml(path, ("aliases",)).get("aliases", {}))
    return found


def _texts(path: Path, key: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise R2medError(f'{path}: [{key}] must hold lines such as name = "bm25"')
    return value


@dataclass(frozen=True)
class Experiment:
    """A named set of systems over tasks, as a researcher keeps one for a paper."""

    systems: Mapping[str, str]
    """The name of each row and its system."""
    tasks: tuple[str, ...] = ("sample",)
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
    return Experiment(systems, _names(path, found, "tasks", ("sample",)), _names(path, found, "metrics", ()), path)


def _names(path: Path, found: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = found.get(key, list(default))
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise R2medError(f'{path}: {key} must be a list such as ["sample"]')
    return tuple(value)

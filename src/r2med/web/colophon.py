"""What a file must say about itself so that it can be cited and made again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from r2med.runs.ledger import Entry
from r2med.runs.record import provenance


@dataclass(frozen=True)
class Colophon:
    """When, by which command, from which data and with what a file was made."""

    made: str
    command: str
    versions: str
    machine: str
    data: Mapping[str, str]
    """Task to the fingerprints of the data that its runs saw."""
    runs: Mapping[str, str]
    """The versions and machines of the runs themselves, with how many they are."""


def colophon(entries: Iterable[Entry], command: str = "") -> Colophon:
    """The facts of a file that is made now from some runs."""
    here = provenance()
    data: dict[str, dict[str, None]] = {}
    runs: dict[str, int] = {}
    for entry in entries:
        facts = entry.record.get("data", {})
        data.setdefault(entry.task, {})[str(facts.get("fingerprint", "?"))[:16]] = None
        where = f"r2med {entry.record.get('r2med', '?')} on {_machine(entry.record.get('machine'))}"
        runs[where] = runs.get(where, 0) + 1
    return Colophon(
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command,
        _versions(here),
        _machine(here["machine"]),
        {task: ", ".join(found) for task, found in data.items()},
        {where: f"{count} {'run' if count == 1 else 'runs'}" for where, count in runs.items()},
    )


def _versions(facts: Mapping[str, Any]) -> str:
    packages = [f"{name} {version}" for name, version in facts["packages"].items()]
    return ", ".join([f"r2med {facts['r2med']}", f"Python {facts['python']}", *packages])


def _machine(facts: Any) -> str:
    """A machine in words.

    >>> _machine({"platform": "linux", "architecture": "x86_64", "cores": 2})
    'linux, x86_64, 2 cores'
    """
    if not isinstance(facts, dict):
        return "a machine that was not recorded"
    words = [str(facts.get(name, "?")) for name in ("platform", "architecture")]
    return ", ".join([*words, f"{facts.get('cores', '?')} cores"])

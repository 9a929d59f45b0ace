"""What a file must say about itself so that it can be cited and made again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from r2med.runs.ledger import Entry
from r2med.runs.provenance import provenance
from r2med.runs.record import Machine, Provenance


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
        data.setdefault(entry.task, {})[(entry.record.data.fingerprint or "?")[:16]] = None
        where = f"r2med {entry.record.provenance.r2med or '?'} on {_machine(entry.record.provenance.machine)}"
        runs[where] = runs.get(where, 0) + 1
    return Colophon(
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command,
        _versions(here),
        _machine(here.machine),
        {task: ", ".join(found) for task, found in data.items()},
        {where: f"{count} {'run' if count == 1 else 'runs'}" for where, count in runs.items()},
    )


def _versions(facts: Provenance) -> str:
    packages = [f"{name} {version}" for name, version in (facts.packages or {}).items()]
    return ", ".join([f"r2med {facts.r2med}", f"Python {facts.python}", *packages])


def _machine(machine: Machine | None) -> str:
    """A machine in words.

    >>> _machine(Machine("linux", "x86_64", 2))
    'linux, x86_64, 2 cores'
    """
    if machine is None:
        return "a machine that was not recorded"
    return f"{machine.platform or '?'}, {machine.architecture or '?'}, {machine.cores or '?'} cores"

"""Why systems fail, as pages show it: shares of causes by system or by task, and the cause of each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.diagnose.causes import Cause, Diagnosis, overall
from r2med.diagnose.decide import diagnose
from r2med.errors import R2medError
from r2med.web.boards import Panel
from r2med.web.charts import cause_chart
from r2med.web.pages import drawn

if TYPE_CHECKING:
    from r2med.store.ledger import Entry
    from r2med.web.library import Library

_TITLE, _ANCHOR = "Causes of failure", "causes"


def panels(found: Mapping[str, Sequence[Diagnosis]]) -> list[Panel]:
    """The causes of several systems, each over the same tasks."""
    shares = {
        system: {cause: each.mean for cause, each in overall(diagnoses, "documents").items()}
        for system, diagnoses in found.items()
    }
    return _panels(shares, "averaged over queries and tasks")


def task_panels(found: Sequence[Diagnosis]) -> list[Panel]:
    """The causes of one system, task by task."""
    shares = {each.task: each.shares("documents") for each in found}
    return _panels(shares, "averaged over queries")


def _panels(shares: Mapping[str, Mapping[Cause, float]], averaged: str) -> list[Panel]:
    if not shares:
        return []
    used = [cause for cause in Cause if any(row.get(cause) for row in shares.values())]
    meanings = " ".join(f"{cause.value.capitalize()}: {cause.meaning}." for cause in used)
    note = f"What became of the relevant documents, % {averaged}. {meanings}"
    return [Panel(_TITLE, note, drawn(cause_chart(shares)), _ANCHOR)]


def known(library: Library, runs: Mapping[str, Mapping[str, Entry]]) -> dict[str, list[Diagnosis]]:
    """The systems whose causes are known on every task."""
    made = {system: [library.causes(entry) for entry in by_task.values()] for system, by_task in runs.items()}
    whole = {system: [each for each in found if each is not None] for system, found in made.items()}
    return {system: found for system, found in whole.items() if found and len(found) == len(made[system])}


def find_out(library: Library, system: str, group: str) -> None:
    """Diagnose a system's newest runs. Searches with gold answers, whose runs go to the ledger as oracles."""
    opened = [library.opened(entry) for entry in library.newest(system, group).values()]
    there = [each for each in opened if each is not None]
    if not there:
        raise R2medError(f"the data on which {system!r} was run is not on this machine, or has changed since")
    for each in there:
        diagnose(each, library.ledger)

"""Why systems fail, as pages show it: shares of causes by system or by task, and the cause of each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.diagnose.causes import Cause, Diagnosis, mean_shares
from r2med.diagnose.decide import diagnose
from r2med.errors import R2medError
from r2med.web.boards import Panel
from r2med.web.charts import cause_chart, responsive

if TYPE_CHECKING:
    from r2med.store.ledger import Entry
    from r2med.web.jobs import Job, Told
    from r2med.web.library import Library

_TITLE, _ANCHOR = "Causes of failure", "causes"


def panels(found: Mapping[str, Sequence[Diagnosis]]) -> list[Panel]:
    """The causes of several systems, each over the same tasks."""
    shares = {system: mean_shares(diagnoses, "documents") for system, diagnoses in found.items()}
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
    return [Panel(_TITLE, note, responsive(cause_chart, shares), _ANCHOR)]


def known(library: Library, runs: Mapping[str, Mapping[str, Entry]]) -> dict[str, list[Diagnosis]]:
    """The systems whose causes are known on every task."""
    made = {system: [library.causes(entry) for entry in by_task.values()] for system, by_task in runs.items()}
    whole = {system: [each for each in found if each is not None] for system, found in made.items()}
    return {system: found for system, found in whole.items() if found and len(found) == len(made[system])}


def start(library: Library, system: str, group: str, page: str) -> Job:
    """Have a system's newest runs diagnosed. Searches with gold answers, whose runs go to the ledger as oracles."""
    runs = library.newest(system, group)
    if not runs:
        raise R2medError(f"no run of {system!r} in the group {group!r}")
    if not any(library.has_data(task) for task in runs):
        raise R2medError(f"the data on which {system!r} was run is not on this machine")

    def work(told: Told) -> None:
        for place, entry in enumerate(runs.values()):
            told(place, len(runs))
            opened = library.opened(entry)
            if opened is None:
                raise R2medError(f"the data of {entry.task} is not on this machine, or has changed since the run")
            diagnose(opened, library.ledger)

    return library.jobs.submit(("causes", system, group), f"Causes of failure of {system} ({group})", page, work)

"""One system: its figures by task, its runs, what it took, and why it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.data.published import published
from r2med.data.task_names import called
from r2med.errors import R2medError
from r2med.render.chart_svg import responsive
from r2med.render.charts import DotChart, interval_point
from r2med.runs.cost import Cost
from r2med.web.addresses import NotThere, PageContent, several_like, system_address
from r2med.web.citing import citation
from r2med.web.colophon import colophon
from r2med.web.jobs import Job
from r2med.web.library import Library
from r2med.web.panels import task_causes

if TYPE_CHECKING:
    from starlette.requests import Request


def system_page(library: Library, request: Request) -> PageContent:
    """One own system: figures by task with intervals, runs and cost."""
    asked = request.query_params
    system, group = asked.get("system", ""), asked.get("group", "")
    runs = library.newest(system, group)
    if not runs:
        raise _not_there(library, system, group)
    means = library.means()
    points = []
    for task, entry in runs.items():
        found = library.interval(entry, "nDCG@10")
        if found is not None:
            points.append(interval_point(called(task, list(runs)), found))
    there = {measure for entry in runs.values() for measure in means.get(entry.id, {})}
    measures = [measure for measure in library.measures() if measure in there]
    cost = Cost.of_runs(list(runs.values()))
    others = [name for name in library.systems(group) if name != system]
    causes = {task: library.causes(entry) for task, entry in runs.items()}
    values = {
        "system": system, "group": group, "runs": runs, "means": means, "measures": measures, "cost": cost,
        "others": others,
        "chart": responsive(DotChart(f"nDCG@10 of {system} by task", "nDCG@10 x 100", points)) if points else "",
        "oracle": any(entry.oracle for entry in runs.values()),
        "panels": task_causes([each for each in causes.values() if each is not None]),
        "unexplained": [task for task, each in causes.items() if each is None],
        "colophon": colophon(runs.values()),
        "published": [row.name for row in published() if row.system == system and row.source.group == group][:1],
        "stages": next(iter(runs.values())).record.stages or (),
        "job": library.jobs.newest("causes", system, group),
        "cite": citation(
            f"{system} on {', '.join(runs)}", "run", system, "--tasks", *runs, "--metrics", *measures, "--ci"
        ),
    }  # fmt: skip
    return "system.html", values


def _not_there(library: Library, system: str, group: str) -> NotThere:
    """What to say of a system without a run in a group: where it has one, or what it is most like."""
    elsewhere = [each for each in library.groups() if library.newest(system, each)]
    if elsewhere:
        found = [(f"{system} ({each})", system_address(system, each)) for each in elsewhere]
    else:
        groups = [group] if group in library.groups() else library.groups()
        names = {name: each for each in reversed(groups) for name in library.systems(each)}
        found = [(name, system_address(name, names[name])) for name in several_like(system, names)]
    return NotThere(f"no run of {system!r} in the group {group!r}", found)


def start_diagnosis(library: Library, system: str, group: str, page: str) -> Job:
    """Have a system's newest runs diagnosed. Searches with gold answers, whose runs go to the ledger as oracles."""
    runs = library.newest(system, group)
    if not runs:
        raise R2medError(f"no run of {system!r} in the group {group!r}")
    if not any(library.has_data(task) for task in runs):
        raise R2medError(f"the data on which {system!r} was run is not on this machine")
    title = f"Causes of failure of {system} ({group})"
    command = ("r2med", "diagnose", "--json", "--tasks", *runs, "--", system)
    return library.jobs.submit(("causes", system, group), title, page, command)

"""The runs of the ledger, and one run with everything that was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

import orjson

from r2med.data.published import published
from r2med.data.task_names import called
from r2med.diagnosis.attribution import run_causes, run_query_causes
from r2med.diagnosis.causes import Cause
from r2med.diagnosis.charts import task_causes
from r2med.diagnosis.verification import kept_verification
from r2med.errors import R2medError
from r2med.pipeline.loaded_runs import HEADLINE
from r2med.render.charts.chart import responsive
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import system_point
from r2med.runs.cost import Cost
from r2med.runs.selection import with_words
from r2med.web.addresses import NotFound, PageContent, Pages, page_number, several_like, sort_links, system_address
from r2med.web.citation import citation, colophon, options
from r2med.web.library import Library
from r2med.workbench.bench import has_cause

if TYPE_CHECKING:
    from starlette.requests import Request


def runs_page(library: Library, request: Request) -> PageContent:
    """Show every run of the ledger, newest first."""
    asked = request.query_params
    oracles = asked.get("oracles") == "1"
    matching = with_words(library.entries(), asked.get("q", ""))
    entries = [e for e in matching if oracles or not e.oracle]
    pages = Pages.of(len(entries), page_number(asked, "page"))
    return "workbench/runs.html", {
        "entries": entries[pages.cut()], "pages": pages, "links": sort_links(request, "rank"), "means": library.means(),
        "cite": citation("Runs", "runs", *options(("--find", asked.get("q", ""))), "--limit", "0"),
        "text": asked.get("q", ""), "oracles": oracles, "hidden": len(matching) - len(entries),
    }  # fmt: skip


def run_page(library: Library, request: Request) -> PageContent:
    """Show a run with everything that was recorded, and its queries."""
    name = request.path_params["id"]
    entries = library.by_id()
    if name not in entries:
        alike = [run for run in entries if name and run.startswith(name[:4])] or several_like(name, entries)
        near = [(f"{run} {entries[run].system} on {entries[run].task}", f"/run/{run}") for run in alike[:5]]
        raise NotFound(f"no run {name!r} in the ledger", near)
    entry = entries[name]
    asked = request.query_params
    values, causes = library.query_scores(entry), run_query_causes(library, entry)
    rows = [(query, values.get(query, 0.0), library.query_text(entry.task, query)) for query in entry.queries]
    text, cause = asked.get("q", "").casefold().strip(), asked.get("cause", "")
    rows = [row for row in rows if text in f"{row[0]}\n{row[2]}".casefold() and has_cause(causes.get(row[0]), cause)]
    links = sort_links(request, "lowest")
    if links.sort in ("lowest", "highest"):
        rows.sort(key=lambda row: row[1], reverse=links.sort == "highest")
    pages = Pages.of(len(rows), page_number(asked, "page"))
    content = entry.record.as_json()
    if "local" in content:
        content["local"] = {PurePath(place).name: digest for place, digest in content["local"].items()}
    record = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    return "workbench/run.html", {
        "entry": entry,
        "means": dict(sorted(library.means().get(entry.id, {}).items(), key=lambda mean: mean[0] != str(HEADLINE))),
        "rows": rows[pages.cut()], "pages": pages,
        "links": links, "record": record.decode("utf-8", "replace"), "cost": Cost.of_runs([entry]),
        "cite": citation(f"{entry.system} on {entry.task}, run {entry.id}", "runs", "show", entry.id),
        "text": asked.get("q", ""), "causes": causes, "cause": cause,
        "known_causes": [kind.value for kind in Cause if any(has_cause(row, kind.value) for row in causes.values())],
    }  # fmt: skip


def system_page(library: Library, request: Request) -> PageContent:
    """Show one local system: figures by task with intervals, runs and cost."""
    asked = request.query_params
    system, group = asked.get("system", ""), asked.get("group", "")
    runs = library.newest(system, group)
    if not runs:
        raise _not_there(library, system, group)
    means = library.means()
    intervals = {called(task, list(runs)): library.interval(entry, "nDCG@10") for task, entry in runs.items()}
    points = [system_point(name, row.value, row) for name, row in intervals.items() if row is not None]
    measured = {measure for entry in runs.values() for measure in means.get(entry.id, {})}
    measures = [measure for measure in library.measures() if measure in measured]
    causes = {task: run_causes(library, entry) for task, entry in runs.items()}
    verifications = [(task, kept_verification(task, entry.data)) for task, entry in runs.items()]
    return "workbench/system.html", {
        "system": system, "group": group, "runs": runs, "means": means, "measures": measures,
        "cost": Cost.of_runs(list(runs.values())),
        "others": [name for name in library.systems(group) if name != system],
        "chart": responsive(DotChart(f"nDCG@10 of {system} by task", "nDCG@10 x 100", points)) if points else "",
        "oracle": any(entry.oracle for entry in runs.values()),
        "panels": task_causes([diagnosis for diagnosis in causes.values() if diagnosis is not None]),
        "unexplained": [task for task, diagnosis in causes.items() if diagnosis is None],
        "ceilings": [(task, r) for task, kept in verifications if kept for r in kept.systems if r.system == system],
        "colophon": colophon(runs.values()),
        "published": [row.name for row in published() if row.system == system and row.source.group == group][:1],
        "stages": next(iter(runs.values())).record.stages or (),
        "job": library.jobs.newest("causes", system, group),
        "cite": citation(
            f"{system} on {', '.join(runs)}", "run", system, "--tasks", *runs, "--measures", *measures, "--ci"
        ),
    }  # fmt: skip


def _not_there(library: Library, system: str, group: str) -> NotFound:
    other_groups = [other for other in library.groups() if library.newest(system, other)]
    if other_groups:
        near = [(f"{system} ({other})", system_address(system, other)) for other in other_groups]
    else:
        groups = [group] if group in library.groups() else library.groups()
        names = {name: other for other in reversed(groups) for name in library.systems(other)}
        near = [(name, system_address(name, names[name])) for name in several_like(system, names)]
    return NotFound(f"no run of {system!r} in the group {group!r}", near)


def find_causes(library: Library, form: Mapping[str, str]) -> str:
    """Start the diagnosis of a system's newest runs; return the address that shows it.

    Its searches with gold answers go to the ledger as oracles.
    """
    system, group = form.get("system", ""), form.get("group", "")
    runs = library.newest(system, group)
    if not runs:
        raise R2medError(f"no run of {system!r} in the group {group!r}")
    if not any(library.has_data(task) for task in runs):
        raise R2medError(f"the data on which {system!r} was run is not on this machine")
    title, page = f"Causes of failure of {system} ({group})", system_address(system, group) + "#causes"
    command = ("r2med", "diagnose", "--json", "--tasks", *runs, "--", system)
    library.jobs.submit(("causes", system, group), title, page, command)
    return page

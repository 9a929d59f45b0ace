"""Published systems and the sources of their figures, as pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from r2med.data.published import PublishedSystem, published, sources
from r2med.data.tasks import AVERAGE, groups
from r2med.leaderboard.reproduce import needs, verdict
from r2med.render.html import address
from r2med.render.scores.significance import Sample, intervals
from r2med.runs.ledger import Entry, Ledger
from r2med.web.addresses import NotFound, PageContent, one_of, several_like, system_address
from r2med.web.citation import Citation, citation, options
from r2med.web.library import Library


def published_page(library: Library, request: Request) -> PageContent:
    """Show one published system: what each source reports of it."""
    asked = request.query_params
    group = asked.get("group", "full")
    values = published_facts(asked.get("name", ""), group, asked.get("metric", ""))
    rows, system, measure = values["rows"], values["system"], values["measure"]
    runs = library.newest(system, group) if system else {}
    return "leaderboard/published.html", {
        **values,
        **measured(library.ledger, runs, rows, measure),
        "own_href": system_address(system, group) if runs else "",
        "source_href": "/sources#",
        "others": (),
        "cite": published_citation(rows[0].name, group, measure),
    }


def published_citation(name: str, group: str, measure: str) -> Citation:
    """Return the command that shows a published system's figures in a terminal."""
    words = options(("--group", group), ("--measure", measure), ("--find", name))
    return citation(f"{name}, published figures", "board", "--published", *words)


def published_facts(name: str, group: str, measure: str = "") -> dict[str, Any]:
    """Return what each source reports of a published system, by task in one measure; its first if none is named."""
    every = [row for row in published() if row.source.group == group]
    named = [row for row in every if row.name.casefold() == name.casefold()]
    if not named:
        alike = several_like(name, (row.name for row in every))
        near = [(other, address("/published", name=other, group=group)) for other in alike]
        there = {row.source.group: row.name for row in published() if row.name.casefold() == name.casefold()}
        near += [(f"{one} ({other})", address("/published", name=one, group=other)) for other, one in there.items()]
        raise NotFound(f"nothing was published on {group} under the name {name!r}", near)
    system = next((row.system for row in named if row.system), "")
    rows = named + [row for row in every if system and row.system == system and row not in named]
    measures = list(dict.fromkeys(name for row in rows for name in row.figures))
    measure = one_of(measure or measures[0], measures, "published measure of this system")
    tasks = list(dict.fromkeys(task for row in rows for figures in row.figures.values() for task in figures.tasks))
    return {
        "rows": rows,
        "system": system,
        "tasks": tasks,
        "measures": measures,
        "measure": measure,
        "group": group,
        "disputed": disputed_columns(rows, tasks, measure),
        "needs": needs(system) if system else {},
    }


def disputed_columns(rows: Sequence[PublishedSystem], tasks: Sequence[str], measure: str) -> set[str]:
    """Return the tasks, and the average under its name, on which sources differ by more than rounding explains."""
    columns = set()
    for column in (*tasks, AVERAGE):
        figures = [(stated_figure(row, column, measure), row.source.rounding) for row in rows]
        stated = [(value, slack) for value, slack in figures if value is not None]
        if any(abs(one - other) - (slack + more) > 1e-9 for one, slack in stated for other, more in stated):
            columns.add(column)
    return columns


def stated_figure(row: PublishedSystem, column: str, measure: str) -> float | None:
    """Return what a source reports of a system on a task, or on average."""
    figures = row.figures.get(measure)
    if figures is None:
        return None
    return figures.average if column == AVERAGE else figures.tasks.get(column)


def measured(
    ledger: Ledger, runs: Mapping[str, Entry], rows: Sequence[PublishedSystem], measure: str
) -> dict[str, Mapping[Any, Any]]:
    """Return what local runs measured by task and on average over all tasks of the group, and verdicts on it.

    Verdicts, by column and source, are on whether the measured figure is the published one.
    """
    scores = {task: ledger.scores(entry).get(measure) for task, entry in runs.items()}
    samples = {task: Sample(runs[task].queries, values) for task, values in scores.items() if values is not None}
    if not samples:
        return {"own": {}, "verdicts": {}}
    whole = {task.name for task in groups()[next(iter(runs.values())).group]}
    ranges = intervals({"": samples})[""]
    own = {task: one for task, one in ranges.items() if task != AVERAGE or samples.keys() == whole}
    verdicts = {
        (column, row.source.name): verdict(stated, interval.value, row.source.rounding, interval)
        for column, interval in own.items()
        for row in rows
        if (stated := stated_figure(row, column, measure)) is not None
    }
    return {"own": own, "verdicts": verdicts}


def sources_page(library: Library, request: Request) -> PageContent:
    """Show the sources of the published figures."""
    return "leaderboard/site_sources.html", {**source_facts(), "cite": Citation("Sources of the published figures")}


def source_facts() -> dict[str, Any]:
    """Return the sources of published figures, how many systems each has, and remarks on some of these."""
    counts = {name: sum(system.source.name == name for system in published()) for name in sources()}
    notes = [(system.name, system.source.name, system.note) for system in published() if system.note]
    return {"sources": sources().values(), "counts": counts, "remarks": notes}

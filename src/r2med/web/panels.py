"""Charts on pages with what they show in words: tasks, costs and causes of failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from r2med.board.model import Board, Line
from r2med.data.task_names import called
from r2med.diagnose.causes import Cause, Diagnosis, mean_shares
from r2med.diagnose.frontier import COSTS, Priced, bill, left_out
from r2med.render.chart_svg import responsive
from r2med.render.charts import DotChart, cause_chart, frontier_chart, line_point
from r2med.runs.ledger import Entry
from r2med.web.library import Library

_CHARTED = 30
"""Lines that a chart has room for."""
_TITLE, _ANCHOR = "Causes of failure", "causes"


@dataclass(frozen=True)
class Panel:
    """A chart with what it shows in words."""

    title: str
    note: str
    chart: Markup
    name: str = ""
    """The anchor."""


def task_panels(board: Board, lines: Sequence[Line]) -> list[Panel]:
    """A chart for each task."""
    panels = []
    for task in board.tasks:
        found = [point for line in lines if (point := line_point(line, task)) is not None]
        best = sorted(found, key=lambda point: -point.value)[:_CHARTED]
        if best:
            chart = DotChart(f"{board.measure} on {task}", f"{board.measure} x 100", best)
            panels.append(Panel(task, "", responsive(chart)))
    return panels


def frontier_panels(runs: Mapping[str, Mapping[str, Entry]], lines: Sequence[Line], measure: str) -> list[Panel]:
    """Score against cost, for every way of counting in which own systems differ."""
    whole = [line for line in lines if line.row.own and line.average is not None and line.row.name in runs]
    priced = [
        Priced(line.row.name, line.average or 0.0, bill(list(runs[line.row.name].values())), line.row.oracle)
        for line in whole[:_CHARTED]
    ]
    panels = []
    for by, unit in COSTS.items():
        chart = frontier_chart(priced, by, measure)
        if chart is not None and not chart.equal_costs:
            note = f"{measure} × 100 against {unit}. Filled: nothing better for as little. {left_out(priced, by)}"
            panels.append(Panel(f"Cost in {by}", note, responsive(chart), f"cost-{by}"))
    return panels


def system_causes(found: Mapping[str, Sequence[Diagnosis]]) -> list[Panel]:
    """The causes of several systems, each over the same tasks."""
    shares = {system: mean_shares(diagnoses, "documents") for system, diagnoses in found.items()}
    return _panels(shares, "averaged over queries and tasks")


def task_causes(found: Sequence[Diagnosis]) -> list[Panel]:
    """The causes of one system, task by task."""
    names = [each.task for each in found]
    shares = {called(each.task, names): each.shares("documents") for each in found}
    return _panels(shares, "averaged over queries")


def _panels(shares: Mapping[str, Mapping[Cause, float]], averaged: str) -> list[Panel]:
    if not shares:
        return []
    used = [cause for cause in Cause if any(row.get(cause) for row in shares.values())]
    meanings = " ".join(f"{cause.value.capitalize()}: {cause.meaning}." for cause in used)
    note = f"What became of the relevant documents, % {averaged}. {meanings}"
    return [Panel(_TITLE, note, responsive(cause_chart(shares, f"% of relevant documents, {averaged}")), _ANCHOR)]


def known_causes(library: Library, runs: Mapping[str, Mapping[str, Entry]]) -> dict[str, list[Diagnosis]]:
    """The systems whose causes are known on every task."""
    made = {system: [library.causes(entry) for entry in by_task.values()] for system, by_task in runs.items()}
    whole = {system: [each for each in found if each is not None] for system, found in made.items()}
    return {system: found for system, found in whole.items() if found and len(found) == len(made[system])}

"""Charts of diagnoses: shares of causes, the reasoning gap, and scores by tokens read. Figures are x 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from r2med.data.task_names import called, task_headings, task_names
from r2med.diagnosis.attribution import run_causes
from r2med.diagnosis.causes import Cause, Diagnosis, mean_shares
from r2med.diagnosis.gap import Gap
from r2med.render.charts.bars import Series, ShareChart
from r2med.render.charts.chart import Panel, responsive
from r2med.render.charts.dots import PairedChart, PairedPanel
from r2med.render.charts.drawing import ChartPoint
from r2med.render.charts.lines import ChartLine, LineChart
from r2med.render.palette import fills
from r2med.runs.ledger import Entry
from r2med.web.library import Library

if TYPE_CHECKING:
    from r2med.diagnosis.truncation import Sensitivity


def cause_chart(shares: Mapping[str, Mapping[Cause, float]], axis: str) -> ShareChart:
    """Chart the shares of causes, a bar per system; a cause has the same fill in every chart."""
    used = [cause for cause in Cause if any(row.get(cause, 0.0) for row in shares.values())]
    looks = dict(zip(Cause, fills(len(Cause)), strict=True))
    series = [
        Series(cause.value, looks[cause], [100 * row.get(cause, 0.0) for row in shares.values()]) for cause in used
    ]
    return ShareChart("What became of relevant documents", axis, list(shares), series)


_GAP_MARKS: Mapping[str, ChartPoint] = {
    "query-other": ChartPoint("query, other documents (chance)", 0, shape="bar", tone="soft"),
    "query-positive": ChartPoint("query, relevant documents", 0, filled=False),
    "answer-positive": ChartPoint("gold answer, relevant documents", 0, shape="diamond"),
}


def gap_chart(gaps: Sequence[Gap]) -> PairedChart:
    """Chart how near the query and the gold answer are to the relevant documents, by words and by meaning, per task."""
    sides = {"overlap": "lexical overlap x 100", "similarity": f"cosine x 100 ({gaps[0].encoder})"}
    panels = []
    for side, axis in sides.items():
        rows = [
            [mark._replace(value=100 * near[pair].value) for pair, mark in _GAP_MARKS.items() if pair in near]
            for near in (getattr(gap, side) for gap in gaps)
        ]
        panels.append(PairedPanel(axis, rows))
    tasks = list(task_headings([gap.task for gap in gaps]).values())
    return PairedChart("How near queries and answers are to relevant documents", tasks, panels)


def sensitivity_chart(study: Sensitivity) -> LineChart:
    """Chart the mean over tasks with the paired interval around it, relative to the longest limit, and each task."""
    figures, longest = study.figures, study.longest
    lengths = [float(figure.max_length) for figure in figures]
    ends = [(figure.difference.low, figure.difference.high) if figure.difference else (0.0, 0.0) for figure in figures]
    low, high = ([100 * (longest.score + end) for end in column] for column in zip(*ends, strict=True))
    mean = [100 * figure.score for figure in figures]
    several = len(longest.tasks) > 1
    lines = [ChartLine("mean over tasks" if several else "score", lengths, mean, low, high)]
    for task, name in task_names(longest.tasks).items() if several else ():
        lines.append(ChartLine(name, lengths, [100 * figure.tasks[task] for figure in figures]))
    shaded = f"{study.system}; shaded: 95% interval of the difference from {longest.max_length:,} tokens"
    title = f"{study.measure} of {study.system} by the tokens that are read"
    return LineChart(title, "tokens read", f"{study.measure} x 100", [(shaded, lines)], doubling=True)


def system_causes(diagnoses: Mapping[str, Sequence[Diagnosis]]) -> list[Panel]:
    """Chart the causes of several systems, each over the same tasks."""
    shares = {system: mean_shares(tasks, "documents") for system, tasks in diagnoses.items()}
    return _panels(shares, "averaged over queries and tasks")


def task_causes(diagnoses: Sequence[Diagnosis]) -> list[Panel]:
    """Chart the causes of one system, task by task."""
    names = [diagnosis.task for diagnosis in diagnoses]
    shares = {called(diagnosis.task, names): diagnosis.shares("documents") for diagnosis in diagnoses}
    return _panels(shares, "averaged over queries")


def _panels(shares: Mapping[str, Mapping[Cause, float]], averaged: str) -> list[Panel]:
    if not shares:
        return []
    used = [cause for cause in Cause if any(row.get(cause) for row in shares.values())]
    meanings = " ".join(f"{cause.value.capitalize()}: {cause.meaning}." for cause in used)
    note = f"What became of the relevant documents, % {averaged}. {meanings}"
    chart = cause_chart(shares, f"% of relevant documents, {averaged}")
    return [Panel("Causes of failure", note, responsive(chart), "causes")]


def known_causes(library: Library, runs: Mapping[str, Mapping[str, Entry]]) -> dict[str, list[Diagnosis]]:
    """Return the systems whose causes are known on every task."""
    causes = {system: [run_causes(library, entry) for entry in by_task.values()] for system, by_task in runs.items()}
    whole = {system: [one for one in diagnoses if one is not None] for system, diagnoses in causes.items()}
    return {system: diagnoses for system, diagnoses in whole.items() if diagnoses and None not in causes[system]}

"""Charts of boards: averages, tasks, heat maps and columns of intervals. Figures are x 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from r2med.data.task_names import task_headings
from r2med.errors import R2medError
from r2med.formatting import percent_range
from r2med.measure.bootstrap import board_intervals
from r2med.measure.figure import Figure
from r2med.measure.metrics import Measure
from r2med.pipeline.loaded_runs import HEADLINE, load_runs
from r2med.render.charts.bars import BarChart, Series
from r2med.render.charts.chart import CHARTED, Panel, responsive
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import ChartPoint, hint, system_point, tag, whisker, words
from r2med.render.charts.scale import Scale, span, tick_text
from r2med.render.palette import HATCHES, fills
from r2med.render.scores.model import Board, BoardRow
from r2med.runs.ledger import Ledger, RecordedName
from r2med.runs.selection import comparable_runs


@dataclass(frozen=True)
class ScoreSeries:
    """Systems by their scores on the same tasks."""

    measure: str
    group: str
    systems: Sequence[str]
    oracles: frozenset[str]  # those that were shown gold answers
    tasks: Mapping[str, Sequence[Figure]]  # each task's scores, in the order of the systems
    average: Sequence[Figure]


def complete_systems(ledger: Ledger, tasks: Sequence[str]) -> list[str]:
    """Return the systems that the ledger has on all of these tasks, the best first; oracles are left out."""
    means = ledger.means()
    whole: dict[str, float] = {}
    for system, runs in comparable_runs(ledger.entries()).items():
        row = [runs[task] for task in tasks if task in runs]
        if len(row) == len(tasks) and not any(entry.oracle for entry in row):
            whole[system] = float(np.mean([means[entry.id].get(str(HEADLINE), 0.0) for entry in row]))
    if not whole:
        raise R2medError("no system of the ledger was run on all of these tasks; r2med run makes runs")
    return [RecordedName(system) for system in sorted(whole, key=lambda system: -whole[system])]


def board(ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = (), measure: Measure = HEADLINE) -> ScoreSeries:
    """Score named systems on the tasks that all of them were run on."""
    tables: dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]] = {}
    oracles: set[str] = set()
    for opened in load_runs(ledger, names, tasks, measure):
        entry, order = opened[0].entry, list(opened[0].positives)
        tables[entry.task] = np.array([[run.values[query] for query in order] for run in opened])
        oracles |= {run.system for run in opened if run.entry.oracle}
    by_task, average = board_intervals(tables)
    return ScoreSeries(str(measure), entry.group, [run.system for run in opened], frozenset(oracles), by_task, average)


_COLUMN = (120, 18)  # width and height of a drawing in a column of a table


@dataclass(frozen=True)
class IntervalColumn:
    """Figures as a column of a table has room for them: one scale, drawn once in the head."""

    head: Markup
    cells: Mapping[str, Markup]
    ends: Mapping[str, float]  # the lower ends, by which the column is sorted


def interval_column(intervals: Mapping[str, Figure]) -> IntervalColumn:
    """Draw intervals by name on one scale, in percent."""
    ends = [100 * end for interval in intervals.values() for end in interval.ends]
    scale = Scale(*span(ends, from_zero=False), 12, _COLUMN[0] - 12)
    ticks = scale.ticks()
    # As many ticks as have room for their figures.
    widths = [7.0 * len(tick_text(tick)) for tick in ticks]
    room = 5 + max(((one + other) / 2 for one, other in pairwise(widths)), default=0.0)
    ticks = ticks[:: next((n for n in range(1, len(ticks)) if scale(ticks[n]) - scale(ticks[0]) >= room), len(ticks))]
    lines = "".join(f"M{scale(tick):.1f} 0V{_COLUMN[1]}" for tick in ticks)
    back = tag("path", d=lines, class_="grid")
    marks = [
        words(scale(tick), 10, tick_text(tick), class_="tick", text_anchor="middle")
        + tag("line", x1=scale(tick), x2=scale(tick), y1=13, y2=_COLUMN[1], class_="grid")
        for tick in ticks
    ]
    head = _mini(f"scale from {tick_text(ticks[0])} to {tick_text(ticks[-1])}" if marks else "scale", *marks)
    cells = {}
    for name, interval in intervals.items():
        title = f"95% interval {percent_range(interval)}"
        mark = whisker(system_point("", interval.value, interval), scale, _COLUMN[1] / 2, 3.2)
        cells[name] = _mini(title, hint(title), back, mark)
    return IntervalColumn(head, cells, {name: interval.ends[0] for name, interval in intervals.items()})


def _mini(label: str, *parts: str) -> Markup:
    box = f"0 0 {_COLUMN[0]} {_COLUMN[1]}"
    return Markup(tag("svg", *parts, class_="mini", viewBox=box, role="img", aria_label=label))


def line_point(line: BoardRow, column: str, name: str = "") -> ChartPoint | None:
    """Return the mark of a board's line in one column; None if it has no figure."""
    value = line.value(column)
    if value is None:
        return None
    return system_point(name or line.name, value, line.intervals.get(column), own=line.own, oracle=line.oracle)


def average_chart(series: ScoreSeries) -> DotChart:
    """Chart every system's average with its 95% interval, the best on top; oracles are hollow."""
    averages = sorted(zip(series.systems, series.average, strict=True), key=lambda pair: -pair[1].value)
    points = [system_point(name, mean.value, mean, oracle=name in series.oracles) for name, mean in averages]
    over = f"mean over {len(series.tasks)} {series.group} tasks"
    return DotChart("Averages of systems", f"{series.measure} x 100, {over}, 95% interval", points)


def task_chart(series: ScoreSeries) -> BarChart:
    """Chart the tasks as groups of bars, one bar per system, with 95% intervals."""
    count = len(series.systems)
    if count > len(HATCHES):
        raise R2medError(f"{count} systems are too many for bars; name at most {len(HATCHES)}")
    columns = {**series.tasks, "mean": series.average}
    bars = []
    for place, (system, fill) in enumerate(zip(series.systems, fills(count), strict=True)):
        scores = [column[place] for column in columns.values()]
        name = f"{system} (oracle)" if system in series.oracles else system
        bars.append(Series(name, fill, [100 * score.value for score in scores], scores))
    groups = list(task_headings(list(columns)).values())
    return BarChart("Systems by task", f"{series.measure} x 100", groups, bars, len(series.tasks))


def task_panels(board: Board, lines: Sequence[BoardRow]) -> list[Panel]:
    """Build a chart for each task."""
    panels = []
    for task in board.tasks:
        points = [point for line in lines if (point := line_point(line, task)) is not None]
        if best := sorted(points, key=lambda point: -point.value)[:CHARTED]:
            chart = DotChart(f"{board.measure} on {task}", f"{board.measure} x 100", best)
            panels.append(Panel(task, "", responsive(chart)))
    return panels

"""How a figure moves with truncation, on the command line and as a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.data.task_names import task_names
from r2med.measure.significance import p_text
from r2med.render.charts import ChartLine, LineChart
from r2med.render.grid import Cell, Figure, Table, key, numbers, percent
from r2med.runs.report import failure_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from r2med.diagnose.truncation import LengthFigure, Sensitivity
    from r2med.measure.significance import Difference

_UNKNOWN = "?"


def show_sensitivity(found: Sensitivity, console: Console) -> None:
    """Print the averages with their differences from the longest limit, then those of each task."""
    several = len(found.longest.tasks) > 1
    title = f"{found.system}, {found.measure} x 100{', mean over tasks' if several else ''}"
    console.print(title, style="bold", markup=False, highlight=False)
    _averages(found).show(console)
    if several:
        _by_task(found).show(console)
    for sentence in [*found.sentences, *failure_lines(found.failures)]:
        console.print(sentence, markup=False, highlight=False)


def _averages(found: Sensitivity) -> Table:
    table = Table(key("tokens"), *numbers(found.measure, "difference", "95% interval", "p (Holm)", *_CUT))
    for figure in found.figures:
        cells = [percent(figure.score), *_compared(figure.difference, figure.holm)]
        table.add(f"{figure.max_length:,}", *cells, *map(_share, (figure.documents_cut, figure.queries_cut)))
    return table


_CUT = ("% docs cut", "% queries cut")


def _compared(found: Difference | None, corrected: float | None) -> list[Cell]:
    if found is None or corrected is None:
        return ["longest", "", ""]
    low, high = percent(found.low, sign="+"), percent(found.high, sign="+")
    spread = Figure(f"{low.wide} to {high.wide}", f"{low.narrow} to {high.narrow}")
    return [percent(found.mean, sign="+"), spread, p_text(corrected)]


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{100 * value:.1f}"


def _by_task(found: Sensitivity) -> Table:
    """A row a task: the figure at each limit, with the difference from the longest below."""
    names = task_names(found.longest.tasks)
    table = Table(key("task"), *numbers(*(f"{figure.max_length:,}" for figure in found.figures)))
    for task, name in names.items():
        table.add(name, *(percent(figure.tasks[task]) for figure in found.figures))
        table.add("", *(_spread(figure, task) for figure in found.figures), style="dim")
    return table


def _spread(figure: LengthFigure, task: str) -> Cell:
    each = (figure.by_task or {}).get(task)
    if each is None:
        return ""
    low, high = percent(each.low, sign="+"), percent(each.high, sign="+")
    return Figure(f"{low.wide} to {high.wide}", f"{low.narrow} to {high.narrow}")


def sensitivity_chart(found: Sensitivity) -> LineChart:
    """The mean over tasks with the paired interval around it, and each task's own curve."""
    lengths = [float(figure.max_length) for figure in found.figures]
    lines = [ChartLine("mean over tasks" if len(found.longest.tasks) > 1 else "score", lengths, *_band(found))]
    if len(found.longest.tasks) > 1:
        lines += [
            ChartLine(name, lengths, [100 * figure.tasks[task] for figure in found.figures])
            for task, name in task_names(found.longest.tasks).items()
        ]
    title = f"{found.measure} of {found.system} by the tokens that are read"
    shaded = f"shaded: 95% interval of the difference from {found.longest.max_length:,} tokens"
    panels = [(f"{found.system}; {shaded}", lines)]
    return LineChart(title, "tokens read", f"{found.measure} x 100", panels, doubling=True)


def _band(found: Sensitivity) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """The averages, and where they may lie relative to that of the longest limit."""
    last = found.longest.score
    scores = [100 * figure.score for figure in found.figures]
    low = [100 * (last + (figure.difference.low if figure.difference else 0.0)) for figure in found.figures]
    high = [100 * (last + (figure.difference.high if figure.difference else 0.0)) for figure in found.figures]
    return scores, low, high

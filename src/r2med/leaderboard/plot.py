"""`r2med plot`: figures from the runs of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
import numpy as np

from r2med.cli.options import ManyValues, remark
from r2med.comparison.charts import difference_chart
from r2med.comparison.study import compare_shared
from r2med.data.loader import load
from r2med.data.task_names import task_headings
from r2med.data.tasks import resolve
from r2med.diagnosis.attribution import diagnose
from r2med.diagnosis.causes import LEVELS, mean_shares
from r2med.diagnosis.charts import cause_chart, gap_chart
from r2med.diagnosis.gap import measure_gap
from r2med.errors import R2medError
from r2med.measure.bootstrap import board_intervals
from r2med.measure.figure import Figure
from r2med.measure.metrics import Measure
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import HEADLINE, load_runs
from r2med.pipeline.named_runs import lacks, share
from r2med.render.charts.bars import BarChart, Series
from r2med.render.charts.chart import Chart
from r2med.render.charts.dots import DotChart
from r2med.render.charts.drawing import system_point
from r2med.render.charts.files import check_chart_file, save
from r2med.render.palette import HATCHES, fills
from r2med.render.table import messages
from r2med.runs.ledger import Ledger, RecordedName
from r2med.runs.selection import comparable_runs
from r2med.tuning.charts import frontier_chart
from r2med.tuning.frontier import COSTS, left_out, price


@dataclass(frozen=True)
class PlotRequest:
    """Arguments and options of the command, tasks by their names."""

    runs: tuple[str, ...]
    tasks: tuple[str, ...]
    measure: Measure
    by: str
    of: str
    encoder: str


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


def score_systems(
    ledger: Ledger, names: Sequence[str], tasks: Sequence[str] = (), measure: Measure = HEADLINE
) -> ScoreSeries:
    """Score named systems on the tasks that all of them were run on."""
    tables: dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]] = {}
    oracles: set[str] = set()
    for opened in load_runs(ledger, names, tasks, measure):
        entry, order = opened[0].entry, list(opened[0].positives)
        tables[entry.task] = np.array([[run.values[query] for query in order] for run in opened])
        oracles |= {run.system for run in opened if run.entry.oracle}
    by_task, average = board_intervals(tables)
    return ScoreSeries(str(measure), entry.group, [run.system for run in opened], frozenset(oracles), by_task, average)


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


def _names(asked: PlotRequest, ledger: Ledger) -> Sequence[str]:
    return asked.runs or complete_systems(ledger, asked.tasks)


def _board(asked: PlotRequest, ledger: Ledger) -> Chart:
    return average_chart(score_systems(ledger, _names(asked, ledger), asked.tasks, asked.measure))


def _tasks(asked: PlotRequest, ledger: Ledger) -> Chart:
    return task_chart(score_systems(ledger, _names(asked, ledger), asked.tasks, asked.measure))


def _differences(asked: PlotRequest, ledger: Ledger) -> Chart:
    shared = share(ledger, asked.runs, asked.tasks) if asked.runs else None
    if shared is None or len(shared.systems) != 2:
        raise click.UsageError("differences are drawn of two runs")
    return difference_chart(compare_shared(ledger, shared, str(asked.measure))[0], str(asked.measure))


def _frontier(asked: PlotRequest, ledger: Ledger) -> Chart:
    systems = price(ledger, asked.runs, asked.tasks, str(asked.measure))
    chart = frontier_chart(systems, asked.by, str(asked.measure))
    if chart is None:
        raise R2medError(f"no system has a known cost in {asked.by}; try one of {', '.join(COSTS)}")
    if chart.equal_costs and len(chart.points) > 1:
        cost = "nothing" if chart.has_free else "the same"
        others = " or ".join(f"--by {by}" for by in COSTS if by != asked.by)
        raise R2medError(
            f"the systems all cost {cost} in {asked.by}, so there is no frontier; try {others}, or `r2med plot board`"
        )
    if reason := left_out(systems, asked.by):
        messages().print(reason, markup=False, highlight=False, style="dim")
    return chart


def _gap(asked: PlotRequest, ledger: Ledger) -> Chart:
    return gap_chart([measure_gap(load(task), asked.encoder, Executor(messages())) for task in asked.tasks])


def _causes(asked: PlotRequest, ledger: Ledger) -> Chart:
    opened = load_runs(ledger, _names(asked, ledger), asked.tasks)
    by_task = [[diagnose(run, ledger, Executor(messages())) for run in several] for several in opened]
    shares = {diagnoses[0].system: mean_shares(diagnoses, asked.of) for diagnoses in zip(*by_task, strict=True)}
    return cause_chart(shares, f"% {LEVELS[asked.of]}, mean over {len(by_task)} tasks")


FIGURES: Mapping[str, tuple[str, Callable[[PlotRequest, Ledger], Chart]]] = {
    "board": ("averages with 95% intervals", _board),
    "tasks": ("bars for each task", _tasks),
    "differences": ("the second RUN minus the first, with intervals", _differences),
    "frontier": ("score against --by money, tokens or seconds", _frontier),
    "gap": ("how near queries and gold answers are to relevant documents", _gap),
    "causes": ("shares of causes, --of relevant documents or of queries", _causes),
}
"""What can be plotted: a line of help, and the function that makes the chart."""


@click.command("plot", cls=ManyValues)
@click.argument("kind", type=click.Choice(list(FIGURES)))
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: sample).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What figures are drawn.")
@click.option("--by", default="seconds", show_default=True, type=click.Choice(["money", "tokens", "seconds"]))
@click.option("--of", default="documents", show_default=True, type=click.Choice(["documents", "queries"]))
@click.option("--encoder", default="wordllama", show_default=True, metavar="MODEL", help="Embeddings of the gap.")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="FILE.png, .svg or .pdf")
def plot_command(kind: str, tasks: tuple[str, ...], measure: str, out: Path, **given: Any) -> None:
    """Draw figures from the runs of the ledger; RUN is a spec or the id of a run, by default every complete system.

    {figures}

    \b
    Examples:
      r2med plot board --tasks sample --out board.svg
      r2med plot differences bm25 "replay >> bm25" --out differences.png
    """
    check_chart_file("--out", out)
    names = tuple(task.name for task in resolve(tasks or ("sample",)))
    asked = PlotRequest(tasks=names, measure=Measure.parse(measure), **given)
    with Ledger() as ledger:
        remark(lacks(ledger, asked.runs, asked.tasks) if tasks else ())
        chart = FIGURES[kind][1](asked, ledger)
    save(chart, out)
    click.echo(f"the figure is in {out}", err=True)


plot_command.help = cleandoc(str(plot_command.help)).replace(
    "{figures}", "\n".join(["\b", *(f"{name:<11}  {meaning}" for name, (meaning, _) in FIGURES.items())])
)

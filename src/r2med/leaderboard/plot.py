"""`r2med plot`: figures from the runs of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from r2med.cli.options import ManyValues, remark
from r2med.comparison.charts import difference_chart
from r2med.comparison.study import compare_shared
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.diagnosis.attribution import diagnose
from r2med.diagnosis.causes import LEVELS, mean_shares
from r2med.diagnosis.charts import cause_chart, gap_chart
from r2med.diagnosis.gap import measure_gap
from r2med.errors import R2medError, require_extra
from r2med.leaderboard.charts import average_chart, board, complete_systems, task_chart
from r2med.measure.metrics import Measure
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import load_runs
from r2med.pipeline.named_runs import lacks, share
from r2med.render.charts.plots import ENDINGS, PaperChart, save
from r2med.render.table import messages
from r2med.runs.ledger import Ledger
from r2med.tuning.charts import frontier_chart
from r2med.tuning.frontier import COSTS, left_out, price


@dataclass(frozen=True)
class PlotRequest:
    """Arguments and options of the command."""

    runs: tuple[str, ...]
    tasks: tuple[str, ...]
    """The names of the tasks, resolved."""
    measure: str
    by: str
    of: str
    encoder: str


@click.command("plot", cls=ManyValues)
@click.argument("kind", type=click.Choice(["board", "tasks", "differences", "frontier", "gap", "causes"]))
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: sample).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What figures are drawn.")
@click.option("--by", default="seconds", show_default=True, type=click.Choice(["money", "tokens", "seconds"]))
@click.option("--of", default="documents", show_default=True, type=click.Choice(["documents", "queries"]))
@click.option("--encoder", default="wordllama", show_default=True, metavar="MODEL", help="Embeddings of the gap.")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="FILE.png, .svg or .pdf")
def plot_command(kind: str, tasks: tuple[str, ...], out: Path, **given: Any) -> None:
    """Draw figures from the runs of the ledger; RUN is a spec or the id of a run, by default every complete system.

    \b
    board        averages with 95% intervals
    tasks        bars for each task
    differences  the second RUN minus the first, with intervals
    frontier     score against --by money, tokens or seconds
    gap          how near queries and gold answers are to relevant documents
    causes       shares of causes, --of relevant documents or of queries

    \b
    Examples:
      r2med plot board --tasks sample --out board.svg
      r2med plot differences bm25 "replay >> bm25" --out differences.png
    """
    require_extra("plots", "matplotlib")
    if out.suffix.lower() not in ENDINGS:
        raise click.UsageError(f"--out must end in {', '.join(ENDINGS)}")
    asked = PlotRequest(tasks=tuple(task.name for task in resolve(tasks or ("sample",))), **given)
    with Ledger() as ledger:
        remark(lacks(ledger, asked.runs, asked.tasks) if tasks else ())
        chart = _KINDS[kind](asked, ledger)
    save(chart, out)
    click.echo(f"the figure is in {out}", err=True)


def _names(asked: PlotRequest, ledger: Ledger) -> list[str]:
    return list(asked.runs) or complete_systems(ledger, asked.tasks)


def _board(asked: PlotRequest, ledger: Ledger) -> PaperChart:
    return average_chart(board(ledger, _names(asked, ledger), asked.tasks, Measure.parse(asked.measure)))


def _tasks(asked: PlotRequest, ledger: Ledger) -> PaperChart:
    return task_chart(board(ledger, _names(asked, ledger), asked.tasks, Measure.parse(asked.measure)))


def _differences(asked: PlotRequest, ledger: Ledger) -> PaperChart:
    shared = share(ledger, asked.runs, asked.tasks) if asked.runs else None
    if shared is None or len(shared.systems) != 2:
        raise click.UsageError("differences are drawn of two runs")
    measure = str(Measure.parse(asked.measure))
    return difference_chart(compare_shared(ledger, shared, measure)[0], measure)


def _frontier(asked: PlotRequest, ledger: Ledger) -> PaperChart:
    measure = str(Measure.parse(asked.measure))
    systems = price(ledger, asked.runs, asked.tasks, measure)
    chart = frontier_chart(systems, asked.by, measure)
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


def _gap(asked: PlotRequest, ledger: Ledger) -> PaperChart:
    return gap_chart([measure_gap(load(task), asked.encoder, Executor(messages())) for task in asked.tasks])


def _causes(asked: PlotRequest, ledger: Ledger) -> PaperChart:
    opened = load_runs(ledger, _names(asked, ledger), asked.tasks)
    by_task = [[diagnose(each, ledger, Executor(messages())) for each in several] for several in opened]
    shares = {each[0].system: mean_shares(each, asked.of) for each in zip(*by_task, strict=True)}
    return cause_chart(shares, f"% {LEVELS[asked.of]}, mean over {len(by_task)} tasks")


_KINDS: dict[str, Callable[[PlotRequest, Ledger], PaperChart]] = {
    "board": _board,
    "tasks": _tasks,
    "differences": _differences,
    "frontier": _frontier,
    "gap": _gap,
    "causes": _causes,
}

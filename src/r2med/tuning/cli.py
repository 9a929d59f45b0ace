"""`r2med frontier` and `r2med tune`: scores against their price, and options chosen on some queries for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from r2med.cli.execution import executor_option, one_executor
from r2med.cli.options import ManyValues, json_option, tasks_option, write_json
from r2med.data.tasks import resolve
from r2med.measure.metrics import Measure
from r2med.render.charts.files import check_chart_file, save
from r2med.render.table import output
from r2med.runs.ledger import Ledger
from r2med.tuning.charts import route_chart
from r2med.tuning.frontier import COSTS
from r2med.tuning.routes import savings
from r2med.tuning.study import TuneOptions, read_over, tune
from r2med.tuning.tables import show_saving, show_tuned


@click.command("frontier", cls=ManyValues)
@click.argument("systems", nargs=-1, metavar="[RUN ...]")
@tasks_option("Which tasks (default: all they share).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="The effect.")
@click.option("--by", type=click.Choice(list(COSTS)), default="tokens", show_default=True, help="The cost.")
@click.option("--within", type=click.FloatRange(0, 100), default=1.0, show_default=True, metavar="POINTS",
              help="How much of the best score may be given up.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the curves of all routes.")
@json_option()
def frontier_command(
    systems: tuple[str, ...], tasks: tuple[str, ...], plot: Path | None, as_json: bool, **given: Any
) -> None:
    """Which systems are worth their price, and what would routing between two of them save?

    Everything comes from the runs of the ledger: nothing is asked, nothing is searched. For every two systems, the
    cheap one and the strong one, and for every signal that the cheap one's lists tell, the score is computed at each
    share of the queries that the strong one answers, with a 95% interval of the difference to the strong system alone,
    and compared with a random choice of queries. `r2med tune` then measures the route on queries that it was not
    chosen by.

    \b
    Examples:
      r2med frontier --tasks sample
      r2med frontier bm25 "replay >> bm25" --tasks sample --within 2 --plot routes.svg
    """
    if plot is not None:
        check_chart_file("--plot", plot)
    names = [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        saving = savings(ledger, systems, names, Measure.parse(given["measure"]), given["by"], given["within"] / 100)
    if as_json:
        write_json(saving.as_dict())
    else:
        show_saving(saving, output())
    if plot is not None:
        save(route_chart(saving), plot)
        click.echo(f"the figure is in {plot}", err=True)


@click.command("tune", cls=ManyValues)
@click.argument("system")
@tasks_option("Which tasks (default: the sample).")
@click.option(
    "--over", multiple=True, metavar="NAME=VALUES...", help="Options to try: k1=0.6,0.9,1.2 or b=0..1, a range."
)
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to choose by.")
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True, help="How many parts of the queries.")
@click.option("--halves", type=click.IntRange(2), help="In place of folds: so many random halves, with their spread.")
@click.option(
    "--split-queries", is_flag=True, help="Split queries one by one, also those that share a relevant document."
)
@click.option("--budget", type=click.FloatRange(0, 1), default=1.0, show_default=True, metavar="SHARE",
              help="The most that a route may send to its strong system.")  # fmt: skip
@click.option("--trials", type=click.IntRange(1), help="Let Optuna suggest so many; without, all combinations.")
@executor_option()
@json_option()
def tune_command(
    system: str, tasks: tuple[str, ...], over: tuple[str, ...], measure: str, executor: str, as_json: bool, **given: Any
) -> None:
    """Choose a system's options on some of the queries, and measure it on the others.

    What a system gains by being tuned is reported only on queries that had no part in the choice, paired with the
    system as it was written. Queries that share a relevant document stay together unless --split-queries is given.
    An option is set in every stage that has it, also one of your own class or function; a range is tried at five
    values, or wherever Optuna looks. A route is tuned without --over: the share of the queries that its strong system
    answers, as a threshold of its signal.

    Candidates are not kept in the ledger; answers of language models are. Every candidate runs on all queries.

    \b
    Examples:
      r2med tune bm25 --over k1=0.6,0.9,1.2,2 b=0.2,0.4,0.75 --tasks sample
      r2med tune "rrf(bm25, wordllama)" --over weights=[1,1],[2,1],[1,2] --tasks sample
      r2med tune "route(bm25, replay >> bm25, by=nqc)" --budget 0.5 --halves 20 --tasks sample
    """
    settings = {name: value for name, value in given.items() if value is not None}
    with one_executor(executor, no_shards="one candidate is tried after another") as where:
        options = TuneOptions(Measure.parse(measure), executor=where, **settings)
        tuned = tune(system, tasks, read_over(over), options)
    if as_json:
        write_json(tuned.as_dict())
    else:
        show_tuned(tuned, output())

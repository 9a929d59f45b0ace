"""`r2med frontier` and `r2med tune`: scores against their price, and options chosen on some queries for others."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.cli.options import ManyValues, json_option, write_json
from r2med.data.tasks import resolve
from r2med.measure.metrics import Measure
from r2med.render.charts.files import check_chart_file, save
from r2med.render.table import output
from r2med.runs.ledger import Ledger
from r2med.tuning.charts import route_chart
from r2med.tuning.frontier import COSTS
from r2med.tuning.routes import savings
from r2med.tuning.tables import show_saving


@click.command("frontier", cls=ManyValues)
@click.argument("systems", nargs=-1, metavar="[RUN ...]")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all they share).")
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="The effect.")
@click.option("--by", type=click.Choice(list(COSTS)), default="tokens", show_default=True, help="The cost.")
@click.option("--within", type=click.FloatRange(0, 100), default=1.0, show_default=True, metavar="POINTS",
              help="How much of the best score may be given up.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the curves of all routes.")
@json_option()
def frontier_command(
    systems: tuple[str, ...],
    tasks: tuple[str, ...],
    metric: str,
    by: str,
    within: float,
    plot: Path | None,
    as_json: bool,
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
        found = savings(ledger, systems, names, Measure.parse(metric), by, within / 100)
    if as_json:
        write_json(found.as_dict())
    else:
        show_saving(found, output())
    if plot is not None:
        save(route_chart(found), plot)
        click.echo(f"the figure is in {plot}", err=True)

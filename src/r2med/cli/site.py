"""`r2med site`: a static leaderboard."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.cli.options import ManyValues, messages, typed_command
from r2med.measure.metrics import Measure
from r2med.pipeline.engine import Engine
from r2med.runs.ledger import Ledger
from r2med.web.site import Site, write_site


@click.command("site", cls=ManyValues)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="The folder to fill.")
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to rank by.")
@click.option("--reports/--no-reports", default=True, help="A page with every query of the own runs.")
def command(runs: tuple[str, ...], out: Path, metric: str, reports: bool) -> None:
    """Write a static leaderboard of chosen runs and all published figures, ready for any static host.

    RUN is a spec or the id of a run in the ledger; without any, only published figures are shown. All links are
    relative, and nothing is loaded from elsewhere.

    \b
    Examples:
      r2med site --out public
      r2med site bm25 "rrf(bm25, wordllama)" --out public
    """
    with Ledger() as ledger:
        site = Site(runs, str(Measure.parse(metric)), reports, typed_command())
        files = write_site(ledger, site, out, Engine(messages()))
    click.echo(f"{len(files)} files are in {out}; open {out / 'index.html'}", err=True)

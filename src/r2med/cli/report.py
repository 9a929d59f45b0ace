"""`r2med report`: runs as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.cli.options import ManyValues, messages, remark, typed_command
from r2med.data.tasks import resolve
from r2med.measure.metrics import Measure
from r2med.pipeline.engine import Engine
from r2med.pipeline.named_runs import share
from r2med.runs.ledger import Ledger
from r2med.storage.files import write_file
from r2med.web.citing import without_folders
from r2med.web.report_file import ReportChoice, report


@click.command("report", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="FILE.html")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all they share).")
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to rank by.")
@click.option("--causes/--no-causes", default=True, help="Causes of failure, which may search with gold answers.")
@click.option("--title", default="R2MED report", show_default=True)
def command(runs: tuple[str, ...], out: Path, tasks: tuple[str, ...], metric: str, causes: bool, title: str) -> None:
    """Write runs as one HTML file that needs no network: board, charts, and every query with what was found for it.

    RUN is a spec or the id of a run in the ledger; differences are against the first. Documents' texts are in the
    file, cut where all of them would be too much.

    \b
    Examples:
      r2med report bm25 wordllama "replay >> bm25" --tasks sample --out report.html
    """
    measure, names = Measure.parse(metric), [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        shared = share(ledger, runs, names)
        remark(shared.notes)
        choice = ReportChoice(shared, measure, causes, title, without_folders(typed_command()))
        page = report(ledger, choice, Engine(messages()))
    write_file(out, page, parents=True)
    click.echo(f"the report is in {out} ({out.stat().st_size / 1e6:.1f} MB)", err=True)

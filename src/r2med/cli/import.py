"""`r2med import`: a run file of any tool as a run of the ledger."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.cli.options import ManyValues, json_option, output, write_json
from r2med.exchange.import_run import import_run
from r2med.measure.metrics import parse_all
from r2med.render.report_text import show_report


@click.command("import", cls=ManyValues)
@click.argument("runfile", type=click.Path(path_type=Path), metavar="RUNFILE")
@click.option("--task", required=True, help="The task that it is of: a name or a folder.")
@click.option("--as", "name", required=True, metavar="NAME", help="What the run is called from now on.")
@click.option("--metrics", multiple=True, metavar="MEASURE...", help="Such as nDCG@10 Recall@100; a table for each.")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--strict", is_flag=True, help="Make a query that the file has no list for an error.")
@json_option()
def command(
    runfile: Path, task: str, name: str, metrics: tuple[str, ...], split: str | None, strict: bool, as_json: bool
) -> None:
    """Put a run file of any tool into the ledger under a name: TREC (.gz too), the authors' jsonl, JSON or parquet.

    From then on NAME is a system like any other: compare, diagnose, inspect, board, report and plot take it, and it
    stands in a spec where a retriever stands, as in "rrf(NAME, bm25)". What it cost is not known.

    \b
    Examples:
      r2med import theirs.trec --task sample/Biology --as theirs
    """
    asked = parse_all(metrics)
    report = import_run(runfile, task, name, asked, split=split, strict=strict)
    if as_json:
        write_json(report.as_dict())
        return
    show_report(report, output(), [str(measure) for measure in asked])
    click.echo(f"{runfile} is run {report.results[0].run_id} of {name} in the ledger", err=True)

"""`r2med import`: a run file of any tool as a run of the ledger."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.cli.options import ManyValues, json_option, output, write_json
from r2med.data.tasks import resolve
from r2med.exchange.import_run import import_run, import_runs
from r2med.measure.metrics import parse_all
from r2med.render.report_text import show_report


@click.command("import", cls=ManyValues)
@click.argument("runfile", type=click.Path(path_type=Path), metavar="RUNFILE")
@click.option("--task", help="The task that it is of: a name or a folder.")
@click.option(
    "--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Several tasks; RUNFILE has {task} for a task's name."
)
@click.option("--as", "name", required=True, metavar="NAME", help="What the run is called from now on.")
@click.option("--metrics", multiple=True, metavar="MEASURE...", help="Such as nDCG@10 Recall@100; a table for each.")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option(
    "--strict", is_flag=True, help="Make a query that the file has no list for, and data that is left out, an error."
)
@json_option()
def command(
    runfile: Path,
    task: str | None,
    tasks: tuple[str, ...],
    name: str,
    metrics: tuple[str, ...],
    split: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Put a run file of any tool into the ledger under a name: TREC (.gz too), the authors' jsonl, JSON or parquet.

    From then on NAME is a system like any other: compare, diagnose, inspect, board, report and plot take it, and it
    stands in a spec where a retriever stands, as in "rrf(NAME, bm25)". What it cost is not known.

    \b
    Examples:
      r2med import theirs.trec --task sample/Biology --as theirs
      r2med import "runs/{task}.trec" --tasks sample --as theirs
    """
    if (task is None) == (not tasks):
        raise click.UsageError("give the task: either --task NAME, or --tasks for several")
    asked = parse_all(metrics)
    if task is None:
        report = import_runs(runfile, resolve(tasks, split=split), name, asked, split=split, strict=strict)
    else:
        report = import_run(runfile, task, name, asked, split=split, strict=strict)
    if as_json:
        write_json(report.as_dict())
    else:
        show_report(report, output(), [str(measure) for measure in asked])
        for result in report.results:
            on = "" if task else f" on {report.names[result.task]}"
            click.echo(f"{runfile} is run {result.run_id} of {name}{on} in the ledger", err=True)
    if report.failures:
        raise click.exceptions.Exit(1)

"""`r2med eval`: score run files made by any tool."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.board.report_rows import Shown
from r2med.cli.options import ManyValues, json_option, output, write_json
from r2med.exchange.score_run_files import judgements, score_files
from r2med.measure.metrics import DEFAULT, parse_all
from r2med.render.report_text import format_report, show_report


@click.command("eval", cls=ManyValues)
@click.argument("runfiles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUNFILE...")
@click.option("--task", help="The task whose judgements to use: a name or a folder.")
@click.option("--qrels", type=click.Path(path_type=Path), help="A file of judgements, in any of the layouts.")
@click.option("--metrics", multiple=True, metavar="MEASURE...", help="Such as nDCG@10 Recall@100; a table for each.")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--drop-self/--keep-self", default=False, help="Drop a document whose id is the query's own.")
@click.option("--ci", is_flag=True, help="Show 95% intervals (bootstrap over queries) below the means.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "markdown", "latex", "csv"]),
    default="terminal",
    show_default=True,
    help="How the table is written.",
)
@json_option()
def command(
    runfiles: tuple[Path, ...],
    task: str | None,
    qrels: Path | None,
    metrics: tuple[str, ...],
    split: str | None,
    drop_self: bool,
    ci: bool,
    form: str,
    as_json: bool,
) -> None:
    """Score run files made by any tool: TREC (.gz too), the authors' jsonl, JSON or parquet.

    \b
    Examples:
      r2med eval bm25.trec --task sample/Biology
      r2med eval a.trec.gz b.jsonl --qrels qrels/test.tsv --metrics nDCG@10 Recall@100
    """
    source = qrels if task is None else task
    if source is None or (task is not None and qrels is not None):
        raise click.UsageError("give the judgements: either --task NAME or --qrels FILE")
    asked = parse_all(metrics)
    judged = judgements(source, split)
    report = score_files(runfiles, judged, tuple(dict.fromkeys([*asked, *DEFAULT])), drop_self=drop_self)
    if as_json:
        write_json(report.as_dict())
        return
    names, shown = [str(measure) for measure in asked], Shown(intervals=ci)
    if form == "terminal":
        show_report(report, output(), names, shown)
    else:
        click.echo(format_report(report, form, names, shown))

"""`r2med eval`: score run files made by any tool."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.board.report_rows import Shown
from r2med.cli.options import DROP_SELF, ManyValues, json_option, output, write_json
from r2med.data.tasks import resolve
from r2med.exchange.score_run_files import judgements, score_files, score_patterns
from r2med.measure.metrics import DEFAULT, parse_all
from r2med.render.report_text import format_report, show_report
from r2med.runs.report import Report, failure_lines


@click.command("eval", cls=ManyValues)
@click.argument("runfiles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUNFILE...")
@click.option("--task", help="The task whose judgements to use: a name or a folder.")
@click.option(
    "--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Several tasks; RUNFILE has {task} for a task's name."
)
@click.option("--qrels", type=click.Path(path_type=Path), help="A file of judgements, in any of the layouts.")
@click.option("--metrics", multiple=True, metavar="MEASURE...", help="Such as nDCG@10 Recall@100; a table for each.")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--drop-self/--keep-self", default=None, help=DROP_SELF)
@click.option("--strict", is_flag=True, help="Make data that is left out an error.")
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
    tasks: tuple[str, ...],
    qrels: Path | None,
    metrics: tuple[str, ...],
    split: str | None,
    drop_self: bool | None,
    strict: bool,
    ci: bool,
    form: str,
    as_json: bool,
) -> None:
    """Score run files made by any tool: TREC (.gz too), the authors' jsonl, JSON or parquet.

    \b
    Examples:
      r2med eval bm25.trec --task sample/Biology
      r2med eval a.trec.gz b.jsonl --qrels qrels/test.tsv --metrics nDCG@10 Recall@100
      r2med eval "runs/{task}.trec" --tasks sample
    """
    source = qrels if task is None else task
    if sum((task is not None, qrels is not None, bool(tasks))) != 1:
        raise click.UsageError("give the judgements: either --task NAME or --qrels FILE, or --tasks for several")
    asked = parse_all(metrics)
    measures = tuple(dict.fromkeys([*asked, *DEFAULT]))
    if source is None:
        report = score_patterns(runfiles, resolve(tasks, split=split), measures, drop_self=drop_self, strict=strict)
    else:
        report = score_files(runfiles, judgements(source, split, strict=strict), measures, drop_self=drop_self)
    _show(report, [str(measure) for measure in asked], Shown(intervals=ci), "json" if as_json else form)
    if report.failures:
        raise click.exceptions.Exit(1)


def _show(report: Report, measures: list[str], shown: Shown, form: str) -> None:
    if form == "json":
        write_json(report.as_dict())
    elif form == "terminal":
        show_report(report, output(), measures, shown)
    else:
        click.echo(format_report(report, form, measures, shown))
        for line in failure_lines(report.failures, report.names):
            click.echo(line, err=True)

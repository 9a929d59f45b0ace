"""`r2med eval`, `export`, `submit` and `verify`: runs and results exchanged with other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from r2med.cli.execution import print_report
from r2med.cli.options import DROP_SELF, ManyValues, format_option, json_option, tasks_option, write_json
from r2med.data.task_names import task_names
from r2med.data.tasks import resolve
from r2med.exchange.export import GROUPS, Target, export
from r2med.exchange.score_files import PLACE, import_run, import_runs, judgements, score_files, score_patterns
from r2med.exchange.submission import About, submit
from r2med.exchange.verify import printable, verify
from r2med.formatting import counted
from r2med.measure.metrics import DEFAULT, parse_all
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger


@click.command("eval", cls=ManyValues)
@click.argument("runfiles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUNFILE...")
@tasks_option("Whose judgements; of several, RUNFILE has {task}.")
@click.option("--qrels", type=click.Path(path_type=Path), help="A file of judgements, in any of the layouts.")
@click.option("--keep", default="", metavar="NAME", help="Put the run into the ledger, as a system of this name.")
@click.option("--measures", multiple=True, metavar="MEASURE...", help="Such as nDCG@10 Recall@100; a table for each.")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--drop-self/--keep-self", default=None, help=DROP_SELF)
@click.option(
    "--strict", is_flag=True, help="Make data that is left out, and with --keep a query without a list, an error."
)
@click.option("--ci", is_flag=True, help="Show 95% intervals (bootstrap over queries) below the means.")
@format_option()
@json_option()
def eval_command(
    runfiles: tuple[Path, ...],
    tasks: tuple[str, ...],
    qrels: Path | None,
    keep: str,
    measures: tuple[str, ...],
    split: str | None,
    drop_self: bool | None,
    strict: bool,
    ci: bool,
    form: str,
    as_json: bool,
) -> None:
    """Score run files made by any tool: TREC (.gz too), the authors' jsonl, JSON or parquet.

    With --keep NAME, one run file is put into the ledger. From then on NAME is a system like any other: compare,
    diagnose, inspect, board, report and plot take it, and it stands in a spec where a retriever stands, as in
    "rrf(NAME, bm25)". What it cost is not known.

    \b
    Examples:
      r2med eval bm25.trec --tasks sample/Biology
      r2med eval a.trec.gz b.jsonl --qrels qrels/test.tsv --measures nDCG@10 Recall@100
      r2med eval "runs/{task}.trec" --tasks sample
      r2med eval "runs/{task}.trec" --tasks sample --keep theirs
    """
    if bool(qrels) == bool(tasks):
        raise click.UsageError("give the judgements: either --tasks NAME or --qrels FILE")
    asked = parse_all(measures)
    every = tuple(dict.fromkeys([*asked, *DEFAULT]))
    names = resolve(tasks, split=split)
    single = len(names) == 1 and not any(PLACE in str(file) for file in runfiles)
    if keep:
        if qrels or len(runfiles) > 1 or drop_self is not None:
            raise click.UsageError("--keep takes one RUNFILE and --tasks, without --qrels, --drop-self and --keep-self")
        if single:
            report = import_run(runfiles[0], names[0], keep, asked, split=split, strict=strict)
        else:
            report = import_runs(runfiles[0], names, keep, asked, split=split, strict=strict)
    elif qrels or single:
        judged = judgements(qrels or names[0], split, strict=strict)
        report = score_files(runfiles, judged, every, drop_self=drop_self)
    else:
        report = score_patterns(runfiles, names, every, drop_self=drop_self, strict=strict)
    print_report(report, "json" if as_json else form, list(map(str, asked)), View(intervals=ci))
    if keep:
        for result in report.results:
            on = "" if single else f" on {report.names[result.task]}"
            click.echo(f"{runfiles[0]} is run {result.id} of {keep}{on} in the ledger", err=True)
    if report.failures:
        raise click.exceptions.Exit(1)


@click.command("export", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--format", "form", required=True, type=click.Choice(list(GROUPS)))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to write into.")
@tasks_option("Which tasks (default: all that the format knows).", "NAME|GROUP...")
@click.option("--name", default="", metavar="NAME", help="What the system is called in the files, such as ORG/MODEL.")
@click.option("--revision", default="", help="The revision that the files name.")
def export_command(
    runs: tuple[str, ...], form: str, out: Path, tasks: tuple[str, ...], name: str, revision: str
) -> None:
    """Write runs of the ledger as files that other tools read. A RUN is a system's spec or the id of a run.

    trec, jsonl: ranked lists. mteb: results of the full tasks as MTEB keeps them. r2med: results of the full tasks as
    in the benchmark's repository. hakari: results of the nano tasks as HAKARI-Bench keeps them. The figures are
    computed anew from the ranked lists. hydoc: the texts that expanders wrote, as the benchmark's
    query_with_hydoc.jsonl. A task that is named and has no run is an error, and nothing is written then.

    \b
    Examples:
      r2med export bm25 --format trec --out runs
      r2med export "hyde(gpt-4o) >> bm25" --format hydoc --out generated
      r2med export bge --format mteb --name BAAI/bge-large-en-v1.5 --out results
    """
    names = [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        for path in export(ledger, runs, form, Target(out, name, revision), names):
            click.echo(path)


@click.command("submit", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write, FILE.zip.")
@tasks_option("Which tasks (default: all of the benchmark with runs).", "NAME|GROUP...")
@click.option("--name", default="", metavar="NAME", help="What a board calls the system (default: the title).")
@click.option("--title", default="", help="What the submission is called.")
@click.option("--authors", default="", help="Who submits it.")
@click.option("--link", default="", help="A paper, a model or a repository.")
@click.option("--notes", default="", help="Whatever else a reader should know.")
def submit_command(runs: tuple[str, ...], out: Path, tasks: tuple[str, ...], name: str, **about: Any) -> None:
    """Pack runs with their results, settings, versions and a manifest into one file, and verify it.

    A RUN is a system's spec or the id of a run. `r2med verify FILE.zip` checks the file anywhere. A task that is named
    and has no run is an error. Runs on folders are left out: their data is here only. Queries for which a system did
    not do all it should have are counted.

    \b
    Examples:
      r2med submit bm25 "rrf(bm25, bge)" --tasks full --title "Our hybrid" --out ours.zip
    """
    names = [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        entries, left_out = submit(ledger, runs, out, About(**about), names, name)
    for entry in entries:
        incomplete = f": {len(entry.incomplete)} of {len(entry.queries)} queries incomplete" if entry.incomplete else ""
        click.echo(f"{entry.id} {entry.name} on {entry.task}{incomplete}")
    for task, called in task_names(left_out).items():
        click.echo(f"left out: runs on {called} ({task}), which is on this machine only", err=True)
    result = verify(out)
    for fault in result.faults:
        click.secho(fault, fg="red", err=True)
    if not result.ok:
        raise click.exceptions.Exit(1)
    figures = f"{counted(result.figures, 'figure')} verified"
    sizes = f"{counted(len(entries), 'run')}, {figures}, {out.stat().st_size:,} bytes"
    click.echo(f"{out}: {sizes}")


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.zip")
@json_option()
def verify_command(file: Path, as_json: bool) -> None:
    """Check a submission: every byte against its manifest, every figure against its ranked lists.

    The figures are computed anew with the judgements of the tasks as they are here, which are fetched from the hub
    when they must be. Nothing of the submission is run or unpacked. The exit code is 1 when anything is not as stated.
    """
    result = verify(file)
    if as_json:
        write_json(result.as_dict())
    else:
        for name in ("title", "authors", "link", "notes", "created"):
            if text := getattr(result.description, name):
                click.echo(printable(f"{name}: {text}"))
        for row in result.results:
            value = row.metrics.get("nDCG@10")
            headline = "no nDCG@10" if value is None else f"nDCG@10 {100 * value:.2f}"
            incomplete = f", {row.incomplete} of {row.queries} queries incomplete" if row.incomplete else ""
            click.echo(printable(f"{row}: {headline}{incomplete}"))
        for fault in result.faults:
            click.secho(printable(f"fault: {fault}"), fg="red")
        verdict = "verified" if result.ok else "NOT as stated"
        sizes = f"{counted(len(result.results), 'run')}, {counted(result.figures, 'figure')}"
        click.echo(f"{file}: {verdict}; {sizes} computed anew")
    if not result.ok:
        raise click.exceptions.Exit(1)

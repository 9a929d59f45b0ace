"""`r2med tasks`: what there is, sizes and problems of tasks and folders; `r2med analyze`: the tokens of BM25."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, near_option, write_json
from r2med.data.loader import load
from r2med.data.tasks import groups, registry, resolve
from r2med.data.validate import ValidationReport, stats, validate
from r2med.formatting import counted
from r2med.lexical.analyzer import analyze
from r2med.render.table import Column, Table, key, numbers, output

if TYPE_CHECKING:
    from r2med.data.tasks import Task


@click.command("analyze")
@click.argument("text", required=False)
def analyze_command(text: str | None) -> None:
    """Show the tokens that BM25 sees: for each line of TEXT (or of standard input) one line of tokens.

    \b
    Examples:
      r2med analyze "The patient's β-blocker wasn't working"
      cat notes.txt | r2med analyze -
    """
    if text is not None and text != "-":
        lines = text.split("\n")
    else:
        data = sys.stdin.buffer.read().decode("utf-8", "replace")
        lines = data.removesuffix("\n").split("\n") if data else []
    for line in lines:
        click.echo(" ".join(analyze(line.removesuffix("\r"))))


@click.group("tasks", invoke_without_command=True)
@json_option()
@click.pass_context
def tasks_command(ctx: click.Context, as_json: bool) -> None:
    """List the tasks and groups; `show` those named, `stats` for sizes, `validate` for problems of tasks or folders.

    \b
    Examples:
      r2med tasks
      r2med tasks show nano clinical-case
      r2med tasks validate path/to/folder
    """
    if ctx.invoked_subcommand is None:
        _show(list(registry().values()), as_json)


@tasks_command.command("show", short_help="List the tasks that are named.")
@click.argument("names", nargs=-1, required=True, metavar="NAME|GROUP...")
@json_option()
def show_tasks(names: tuple[str, ...], as_json: bool) -> None:
    """List the tasks that are named. `--json` also has repositories, commits and prompts' words."""
    _show(resolve(names), as_json)


def _show(tasks: Sequence[Task], as_json: bool) -> None:
    if as_json:
        write_json([_facts(task) for task in tasks])
        return
    table = Table(key("task"), Column("family"), Column("scenario"), *numbers("#Q", "#D", "qrels"))
    for task in tasks:
        counts = ["-" if count is None else f"{count:,}" for count in (task.queries, task.documents, task.qrels)]
        table.add(task.name, task.family, task.scenario, *counts)
    table.show(output())
    # The licence of each group, and the sources that are under another.
    for group in dict.fromkeys(task.group for task in tasks):
        some = [task for task in tasks if task.group == group]
        licences = ", ".join(dict.fromkeys(task.licence for task in some if task.licence))
        if licences or any(task.hub for task in some):
            card = " by the hub cards" if licences and any(task.hub for task in some) else ""
            click.echo(f"licence of {group}: {licences or 'not known'}{card}")
        for task in some:
            if task.source_licence:
                click.echo(f"licence of the source of {task.name}: {task.source_licence}")
    output().print(f"groups: {', '.join(groups())}")


def _facts(task: Task) -> dict[str, object]:
    names = ("name", "group", "family", *task.WORDS, "hub", "revision")
    counts = ("queries", "documents", "qrels", "query_length", "document_length")
    licences = {name: getattr(task, name) or None for name in ("licence", "source_licence")}
    return {name: getattr(task, name) for name in (*names, *counts)} | licences | {"sentence": task.sentence}


@tasks_command.command("stats", short_help="Sizes, lengths and duplicates.")
@click.argument("tasks", nargs=-1, metavar="[NAME|GROUP|PATH]...")
@json_option()
def show_stats(tasks: tuple[str, ...], as_json: bool) -> None:
    """Sizes, lengths in words and duplicates of tasks or folders (default: the sample).

    \b
    Examples:
      r2med tasks stats
      r2med tasks stats MedQA-Diag path/to/folder --json
    """
    rows = [stats(load(task)) for task in resolve(tasks or ("sample",))]
    if as_json:
        write_json(rows)
        return
    table = Table(key("task"), *numbers("#Q", "#D", "pos/Q", "Q-len (5-95%)", "D-len (5-95%)", "same text", "own id"))
    for row in rows:
        sizes = (f"{row.queries:,}", f"{row.documents:,}", f"{row.positives:.1f}")
        lengths = (f"{words.mean:.1f} ({words.p5}-{words.p95})" for words in (row.query_words, row.document_words))
        table.add(row.task, *sizes, *lengths, f"{row.documents - row.distinct_texts:,}", f"{row.shared_ids:,}")
    console = output()
    table.show(console)
    console.print("lengths in words: the mean, and the range from the 5th to the 95th percentile", style="dim")
    console.print("same text: documents that repeat another; own id: documents with the id of a query", style="dim")


def _summary(report: ValidationReport) -> str:
    read = f"{counted(report.queries, 'query', 'queries')}, {counted(report.documents, 'document')}"
    read += f", {counted(report.judgements, 'judgement')}"
    verdict = "fine" if report.ok else "unusable"
    counts = f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}"
    return f"{report.source}: {verdict}; {counts} ({read})"


@tasks_command.command("validate", short_help="Find every problem in data folders, with file and line.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--most", default=20, show_default=True, help="How many of each kind to list; 0 for counts only.")
@click.option("--strict", is_flag=True, help="Make what would be left out, with a warning, an error.")
@near_option()
@json_option()
def validate_data(
    paths: tuple[str, ...], split: str | None, most: int, strict: bool, near: float, as_json: bool
) -> None:
    """Find every problem in data folders, with file and line. The exit code is 1 when there are errors.

    Relevant documents that look wrong are warnings: one word, links only, HTML that was cut, and texts that documents
    repeat which the question does not judge.

    \b
    Examples:
      r2med tasks validate path/to/folder
      r2med tasks validate sample/Biology other/folder --json
    """
    reports = [validate(path, split=split, strict=strict, near=near) for path in paths]
    if as_json:
        write_json([report.as_dict() for report in reports])
    else:
        for report in reports:
            for group in report.groups():
                click.secho(str(group), fg="red" if group.severity == "error" else "yellow", bold=True)
                for problem in group.problems[:most]:
                    click.echo(f"  {problem}")
                if len(group.problems) > most > 0:
                    click.echo(f"  ... and {len(group.problems) - most:,} more (--most {len(group.problems)})")
            click.echo(_summary(report))
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)

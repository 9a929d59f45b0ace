"""Commands on data: `r2med analyze`, `stats`, `tasks` and `validate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, write_json
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.data.validate import stats, validate
from r2med.formatting import counted
from r2med.render.table import Table, key, numbers, output

if TYPE_CHECKING:
    from r2med.data.validate import Lengths, Stats, ValidationReport


_HEADINGS = ("#Q", "#D", "pos/Q", "Q-len (5-95%)", "D-len (5-95%)", "same text", "own id")


@click.command("stats")
@click.argument("tasks", nargs=-1, metavar="[NAME|GROUP|PATH]...")
@json_option()
def stats_command(tasks: tuple[str, ...], as_json: bool) -> None:
    """Sizes, lengths in words and duplicates of tasks or folders (default: the sample).

    \b
    Examples:
      r2med stats
      r2med stats MedQA-Diag path/to/folder --json
    """
    found = [stats(load(task)) for task in resolve(tasks or ("sample",))]
    if as_json:
        write_json([each.as_dict() for each in found])
    else:
        _show_stats(found)


def _show_stats(found: Sequence[Stats]) -> None:
    table = Table(key("task"), *numbers(*_HEADINGS))
    for each in found:
        table.add(
            each.task,
            f"{each.queries:,}",
            f"{each.documents:,}",
            f"{each.positives:.1f}",
            _length(each.query_words),
            _length(each.document_words),
            f"{each.documents - each.distinct_texts:,}",
            f"{each.shared_ids:,}",
        )
    console = output()
    table.show(console)
    console.print("lengths in words: the mean, and the range from the 5th to the 95th percentile", style="dim")
    console.print("same text: documents that repeat another; own id: documents with the id of a query", style="dim")


def _length(lengths: Lengths) -> str:
    return f"{lengths.mean:.1f} ({lengths.p5}-{lengths.p95})"


def _summary(report: ValidationReport) -> str:
    parts = (
        (report.queries, "query", "queries"),
        (report.documents, "document", ""),
        (report.judgements, "judgement", ""),
    )
    read = ", ".join(counted(*part) for part in parts)
    verdict = "fine" if report.ok else "unusable"
    found = f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}"
    return f"{report.source}: {verdict}; {found} ({read})"


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--split", default=None, help="Which judgements, where a folder has several sets.")
@click.option("--most", default=20, show_default=True, help="How many of each kind to list; 0 for counts only.")
@click.option("--strict", is_flag=True, help="Make what would be left out, with a warning, an error.")
@json_option()
def validate_command(paths: tuple[str, ...], split: str | None, most: int, strict: bool, as_json: bool) -> None:
    """Find every problem in data folders, with file and line. The exit code is 1 when there are errors.

    \b
    Examples:
      r2med validate path/to/folder
      r2med validate sample/Biology other/folder --json
    """
    reports = [validate(path, split=split, strict=strict) for path in paths]
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

"""`r2med validate`: every problem of data folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, write_json
from r2med.data.validate import validate
from r2med.errors import counted

if TYPE_CHECKING:
    from r2med.data.validate import ValidationReport


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
def command(paths: tuple[str, ...], split: str | None, most: int, strict: bool, as_json: bool) -> None:
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

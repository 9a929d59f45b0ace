"""`r2med runs`: what the ledger holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.options import Function, json_option, write_json
from r2med.data.run_files import write_run
from r2med.data.task_names import task_names
from r2med.pipeline.named_runs import Filter, filtered
from r2med.render.table import Column, Table, numbers, output, percent
from r2med.runs.ledger import Ledger
from r2med.runs.selection import with_words
from r2med.store.files import file_name

if TYPE_CHECKING:
    from r2med.runs.ledger import Entry


def filters(function: Function) -> Function:
    """Add the options that select runs by group, task and system."""
    groups = click.Choice(["full", "nano", "sample", "custom", "custom-nano"])
    for option in (
        click.option("--group", type=groups, help="Only runs on this group of tasks."),
        click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH", help="Only runs on it; repeatable."),
        click.option("--system", "systems", multiple=True, metavar="SPEC", help="Only runs of it; repeatable."),
    ):
        function = option(function)
    return function


@click.group("runs", invoke_without_command=True)
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(0), help="How many of the last to list; 0 for all."
)
@click.option("--find", default="", metavar="WORDS", help="Only runs in whose id, system or task all words occur.")
@filters
@json_option()
@click.pass_context
def runs_command(ctx: click.Context, /, limit: int, find: str, as_json: bool, **wanted: Any) -> None:
    """List the runs of the ledger, the last one made or used first; `show ID` and `rm ID` take the start of an id.

    \b
    Examples:
      r2med runs --system bm25 --tasks sample/Biology
      r2med runs rm --system bm25 --group sample
    """
    if ctx.invoked_subcommand is not None:
        return
    with Ledger() as ledger:
        entries = filtered(ledger, Filter(**wanted))
        means = ledger.means()
    entries = with_words(entries, find)[: limit or None]
    if as_json:
        write_json([_summary(entry, means.get(entry.id, {})) for entry in entries])
    elif not entries and (find or any(wanted.values())):
        click.echo("no run is like that; r2med runs lists all")
    elif not entries:
        click.echo("the ledger is empty; try: r2med run bm25")
    else:
        columns = (Column("system", folds=True, key=True), Column("task", folds=True), Column("when (UTC)"))
        table = Table(Column("run", key=True), *columns, *numbers("nDCG@10", "seconds"))
        tasks = task_names(entry.task for entry in entries)
        for entry in entries:
            when = entry.created[:16].replace("T", " ")
            value = percent(means.get(entry.id, {}).get("nDCG@10"))
            seconds = "imported" if entry.record.imported else f"{entry.seconds:.2f}"
            table.add(entry.id, entry.name, tasks[entry.task], when, value, seconds)
        table.show(output())


def _summary(entry: Entry, means: dict[str, float]) -> dict[str, object]:
    return {
        "run": entry.id,
        **{name: getattr(entry, name) for name in ("system", "task", "group", "created")},
        "queries": len(entry.queries),
        "documents": entry.record.documents,
        "seconds": None if entry.record.imported else entry.seconds,
        "imported": entry.record.imported,
        "metrics": means,
        "warnings": list(entry.record.warnings),
    }


@runs_command.command("show", short_help="Show everything recorded of a run.")
@click.argument("run")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the ranked lists to this run file.")
@json_option()
def show(run: str, out: Path | None, as_json: bool) -> None:
    """Everything recorded of a run."""
    with Ledger() as ledger:
        entry = ledger.get(run)
        details = _summary(entry, ledger.means().get(entry.id, {})) | {"record": entry.record.as_json()}
        if out is not None:
            write_run(ledger.run(entry), out, tag=file_name(entry.system))
    if as_json:
        write_json(details)
        return
    for name, value in details.items():
        if name != "record":
            click.echo(f"{name:10} {value}")
    click.echo("record")
    write_json(details["record"])


@runs_command.command("rm", short_help="Remove runs.")
@click.argument("runs", nargs=-1)
@filters
@click.option("--yes", is_flag=True, help="Do not ask before removing what the options choose.")
def remove(runs: tuple[str, ...], yes: bool, **wanted: Any) -> None:
    """Forget runs, by their ids or all of a system, a task or a group.

    \b
    Examples:
      r2med runs rm --system bm25 --tasks sample/Biology
    """
    if bool(runs) == any(wanted.values()):
        raise click.UsageError("name runs by their ids, or choose them by --system, --tasks and --group")
    with Ledger() as ledger:
        entries = [ledger.get(name) for name in runs] or filtered(ledger, Filter(**wanted))
        count = "1 run" if len(entries) == 1 else f"{len(entries)} runs"
        if not runs and entries and not yes:
            click.confirm(f"remove {count}?", abort=True, err=True)
        ledger.remove(entries)
    for entry in entries:
        click.echo(f"removed {entry.id} {entry.system} on {entry.task}")
    if not runs:
        click.echo(f"{count} removed")

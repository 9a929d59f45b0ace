"""`r2med reproduce`: a published row run again, its figures beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from r2med.board.reproduce import check_needs, compare, needs, reproductions
from r2med.cli.engine_option import engine_option, one_engine
from r2med.cli.options import ManyValues, json_option, output, write_json
from r2med.data.tasks import resolve
from r2med.errors import R2medError
from r2med.measure.metrics import DEFAULT, Measure
from r2med.pipeline.evaluate import Options, evaluate
from r2med.render.grid import Column, Table, key, numbers
from r2med.runs.report import failure_lines

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.board.reproduce import Compared, Reproduction
    from r2med.runs.report import Report


@click.command("reproduce", cls=ManyValues)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Where to run (default: as published).")
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to compare by.")
@click.option("--generate", is_flag=True, help="Ask the language model anew instead of replaying its published texts.")
@engine_option()
@click.option("--fresh", is_flag=True, help="Compute again what the ledger already has.")
@click.option("--dry-run", is_flag=True, help="Say what would run and what it needs, and do nothing.")
@json_option()
def command(**given: Any) -> None:
    """Run a published row again and print published against measured, with difference and verdict.

    A NAME is one of those that `r2med board --published` shows, such as base/bge, hyde/gpt4/bm25 or
    reranker/rankllama, or a whole table: table:base, table:gar, table:mteb, ... Texts that a language model wrote are
    replayed as the authors published them, which needs no model; --generate asks it anew. A verdict is `within
    rounding` of the published digits, `within the interval` of what was measured (95%, over queries), or `different`.

    \b
    Examples:
      r2med reproduce base/bm25 --dry-run
      r2med reproduce hyde/gpt4/bm25 --tasks Biology MedQA-Diag
      r2med reproduce table:base
    """
    found = reproductions(given["names"], generate=given["generate"])
    if given["dry_run"]:
        _announce(found, given)
        return
    _tasks(found, given)
    for each in found:
        check_needs(each.system)
    _run(found, given)


def _tasks(found: Sequence[Reproduction], given: dict[str, Any]) -> list[str]:
    """Return the tasks that were asked for, or every group that figures were published for."""
    groups = list(dict.fromkeys(row.source.group for each in found for row in each.rows))
    tasks = list(given["tasks"])
    if tasks and not any(task.group in groups for task in resolve(tasks)):
        raise R2medError(
            f"nothing to compare with: these figures were published on {' and '.join(groups)} tasks, not on"
            f" {', '.join(tasks)}; r2med run {found[0].system!r} --tasks {' '.join(tasks)} measures it there"
        )
    return tasks or groups


def _announce(found: Sequence[Reproduction], given: dict[str, Any]) -> None:
    facts = [_facts(each) for each in found]
    tasks = [task.name for task in resolve(_tasks(found, given))]
    if given["as_json"]:
        write_json({"tasks": tasks, "systems": facts})
        return
    for each in facts:
        click.secho(f"{', '.join(each['published'])}: {each['system']}", bold=True)
        for name, value in each["needs"].items():
            click.echo("  needs a GPU" if name == "gpu" else f"  needs {name}: {', '.join(value)}")
        if not each["needs"]:
            click.echo("  needs nothing but the data")
        for note in each["notes"]:
            click.echo(f"  note: {note}")
    click.echo(f"on {', '.join(tasks)}")


def _facts(each: Reproduction) -> dict[str, Any]:
    rows = [f"{row.name} ({row.source.name})" for row in each.rows]
    return {"system": each.system, "published": rows, "needs": needs(each.system), "notes": each.notes}


def _run(found: Sequence[Reproduction], given: dict[str, Any]) -> None:
    measure = Measure.parse(given["metric"])
    with one_engine(given["engine"]) as engine:
        options = Options(measures=tuple(dict.fromkeys([measure, *DEFAULT])), fresh=given["fresh"], engine=engine)
        report = evaluate([each.system for each in found], _tasks(found, given), options).whole()
    compared = {each.system: compare(each, report, str(measure)) for each in found}
    if given["as_json"]:
        rows = [one.as_dict() for several in compared.values() for one in several]
        write_json({"measure": str(measure), "compared": rows, "failures": [f.as_dict() for f in report.failures]})
    else:
        console = output()
        for each in found:
            _show(each, compared[each.system], str(measure), console)
        _complain(report)
    if report.failures:
        raise click.exceptions.Exit(1)


def _complain(report: Report) -> None:
    for line in failure_lines(report.failures, report.names):
        click.secho(line, fg="red", err=True)
    incomplete = sum(len(result.incomplete) for result in report.results)
    if incomplete:
        click.echo(f"{incomplete} queries were incomplete; r2med runs show ID says why", err=True)


def _show(each: Reproduction, compared: Sequence[Compared], measure: str, console: Console) -> None:
    console.print(each.system, style="bold")
    for row in each.rows:
        figures = numbers(f"published ({row.source.name})", "measured", "difference", "95% interval")
        table = Table(key(f"{measure} x 100"), *figures, Column("verdict", folds=True))
        for one in compared:
            if (one.name, one.source) == (row.name, row.source.name):
                table.add(*_cells(one), style="bold" if one.task == "average" else "")
        table.show(console)
    for note in each.notes:
        console.print(f"note: {note}", style="dim")


def _cells(one: Compared) -> list[str]:
    published = "-" if one.published is None else f"{100 * one.published:.3f}"
    difference = "" if one.difference is None else f"{100 * one.difference:+.3f}"
    interval = f"{100 * one.low:.2f} to {100 * one.high:.2f}"
    return [one.task, published, f"{100 * one.measured:.3f}", difference, interval, one.verdict]

"""`r2med report`, `r2med site` and `r2med reproduce`: boards to hand on, and published rows run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.execution import executor_option, one_executor
from r2med.cli.options import ManyValues, json_option, remark, typed_command, write_json
from r2med.data.tasks import resolve
from r2med.errors import R2medError
from r2med.formatting import counted, percent, percent_range
from r2med.leaderboard.report_file import ReportChoice, report
from r2med.leaderboard.reproduce import Compared, Reproduction, check_needs, compare, needs, reproductions
from r2med.leaderboard.site import Site, workflow, write_site
from r2med.measure.metrics import DEFAULT, Measure
from r2med.pipeline.evaluate import Options, evaluate
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.named_runs import share
from r2med.render.table import Column, Table, cells, column, key, messages, output
from r2med.runs.ledger import Ledger
from r2med.runs.report import failure_lines
from r2med.store.files import reason, write_file
from r2med.web.citation import without_folders

if TYPE_CHECKING:
    from rich.console import Console

LEFT_OUT = 3
"""The exit code of a site that was written without some archives."""


@click.command("report", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="FILE.html")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all they share).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to rank by.")
@click.option("--causes/--no-causes", default=True, help="Causes of failure, which may search with gold answers.")
@click.option("--title", default="R2MED report", show_default=True)
def report_command(
    runs: tuple[str, ...], out: Path, tasks: tuple[str, ...], measure: str, causes: bool, title: str
) -> None:
    """Write runs as one HTML file that needs no network: board, charts, and every query with what was found for it.

    RUN is a spec or the id of a run in the ledger; differences are against the first. Documents' texts are in the
    file, cut where all of them would be too much.

    \b
    Examples:
      r2med report bm25 wordllama "replay >> bm25" --tasks sample --out report.html
    """
    names = [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        shared = share(ledger, runs, names)
        remark(shared.notes)
        choice = ReportChoice(shared, Measure.parse(measure), causes, title, without_folders(typed_command()))
        page = report(ledger, choice, Executor(messages()))
    write_file(out, page, parents=True)
    click.echo(f"the report is in {out} ({out.stat().st_size / 1e6:.1f} MB)", err=True)


@click.command("reproduce", cls=ManyValues)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Where to run (default: as published).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to compare by.")
@click.option("--generate", is_flag=True, help="Ask the language model anew instead of replaying its published texts.")
@executor_option()
@click.option("--fresh", is_flag=True, help="Compute again what the ledger already has.")
@click.option("--dry-run", is_flag=True, help="Say what would run and what it needs, and do nothing.")
@json_option()
def reproduce_command(**given: Any) -> None:
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
    systems = reproductions(given["names"], generate=given["generate"])
    # Where figures were published, unless tasks were asked for.
    groups = list(dict.fromkeys(row.source.group for system in systems for row in system.rows))
    tasks = given["tasks"] or groups
    if given["tasks"] and not any(task.group in groups for task in resolve(tasks)):
        raise R2medError(
            f"nothing to compare with: these figures were published on {' and '.join(groups)} tasks, not on"
            f" {', '.join(tasks)}; r2med run {systems[0].system!r} --tasks {' '.join(tasks)} measures it there"
        )
    if given["dry_run"]:
        _announce(systems, tasks, as_json=given["as_json"])
        return
    for system in systems:
        check_needs(system.system)
    _run(systems, tasks, given)


def _announce(systems: Sequence[Reproduction], tasks: Sequence[str], *, as_json: bool) -> None:
    names = [task.name for task in resolve(tasks)]
    facts: list[dict[str, Any]] = [
        {
            "system": system.system,
            "published": [f"{row.name} ({row.source.name})" for row in system.rows],
            "needs": needs(system.system),
            "notes": system.notes,
        }
        for system in systems
    ]
    if as_json:
        write_json({"tasks": names, "systems": facts})
        return
    for system in facts:
        click.secho(f"{', '.join(system['published'])}: {system['system']}", bold=True)
        for name, value in system["needs"].items():
            click.echo("  needs a GPU" if name == "gpu" else f"  needs {name}: {', '.join(value)}")
        if not system["needs"]:
            click.echo("  needs nothing but the data")
        for note in system["notes"]:
            click.echo(f"  note: {note}")
    click.echo(f"on {', '.join(names)}")


def _run(systems: Sequence[Reproduction], tasks: Sequence[str], given: Mapping[str, Any]) -> None:
    measure = Measure.parse(given["measure"])
    with one_executor(given["executor"]) as executor:
        options = Options(measures=tuple(dict.fromkeys([measure, *DEFAULT])), fresh=given["fresh"], executor=executor)
        report = evaluate([system.system for system in systems], tasks, options).whole()
    compared = {system.system: list(compare(system, report, str(measure))) for system in systems}
    if given["as_json"]:
        rows = [{**asdict(one), "difference": one.difference} for several in compared.values() for one in several]
        write_json({"measure": str(measure), "compared": rows, "failures": [f.as_dict() for f in report.failures]})
    else:
        console = output()
        for system in systems:
            _show(system, compared[system.system], str(measure), console)
        for line in failure_lines(report.failures, report.names):
            click.secho(line, fg="red", err=True)
        if incomplete := sum(len(result.incomplete) for result in report.results):
            click.echo(f"{incomplete} queries were incomplete; r2med runs show ID says why", err=True)
    if report.failures:
        raise click.exceptions.Exit(1)


def _show(system: Reproduction, compared: Sequence[Compared], measure: str, console: Console) -> None:
    console.print(system.system, style="bold")
    for row in system.rows:
        # Some sources publish more than two digits.
        columns = (
            key(f"{measure} x 100", "task"),
            column("published", f"published ({row.source.name})", lambda value: percent(value, 3)),
            column("measured", form=lambda value: percent(value, 3)),
            column("difference", form=lambda value: "" if value is None else percent(value, 3, "+")),
            column("", "95% interval", percent_range, lambda one: one),
            Column("verdict", folds=True, name="verdict"),
        )
        table = Table(*columns)
        for one in compared:
            if (one.name, one.source) == (row.name, row.source.name):
                table.add(*cells(columns, one), style="bold" if one.task == "average" else "")
        table.show(console)
    for note in system.notes:
        console.print(f"note: {note}", style="dim")


_Folder = click.Path(path_type=Path, file_okay=False)


@click.command("site", cls=ManyValues)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--out", type=_Folder, help="The folder to fill.")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to rank by.")
@click.option("--reports/--no-reports", default=True, help="A page with every query of the runs.")
@click.option("--submissions", type=_Folder, metavar="DIR", help="Show what is in the archives of this folder.")
@click.option("--submit-to", default="", metavar="TEXT", help='What "How to submit" says of where archives go.')
@click.option("--url", default="", metavar="URL", help="Where the site will be read: for citations of its pages.")
@click.option(
    "--workflow",
    "workflow_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a workflow of GitHub Actions that keeps such a site, unless the file is there.",
)
def site_command(runs: tuple[str, ...], out: Path | None, workflow_file: Path | None, **wishes: Any) -> None:
    """Write a static leaderboard of runs and all published figures, ready for any static host.

    RUN is a spec or the id of a run in the ledger; without any, only published figures are shown. With --submissions
    the systems are those of the archives that `r2med submit` made: each is verified and every figure computed anew; a
    broken one is named and left out, and the exit code is then 3. All links are relative, and nothing is loaded from
    elsewhere.

    \b
    Examples:
      r2med site --out public
      r2med site bm25 "rrf(bm25, wordllama)" --out public
      r2med site --submissions submissions --out public
      r2med site --workflow .github/workflows/leaderboard.yml
    """
    if workflow_file is not None:
        _write_workflow(workflow_file)
    if out is None:
        if workflow_file is None:
            raise click.UsageError("Missing option '--out'.")
        return
    if runs and wishes["submissions"]:
        raise R2medError("RUN and --submissions cannot stand together: a site shows own runs or submitted ones")
    if wishes["url"] and not wishes["url"].startswith(("http://", "https://")):
        raise R2medError(f"--url {wishes['url']!r} is not an address such as https://example.org/board")
    wishes["measure"] = str(Measure.parse(wishes["measure"]))
    with Ledger() as ledger:
        files, sent = write_site(ledger, Site(runs, command=typed_command(), **wishes), out, Executor(messages()))
    for archive in sent.left:
        click.secho(f"left out: {archive.name}: {archive.why}", fg="red", err=True)
    if (folder := wishes["submissions"]) is not None:
        figures = sum(archive.figures for archive in sent.accepted)
        click.echo(
            f"{counted(len(sent.accepted), 'submission')} of {folder} verified, {figures:,} figures computed anew;"
            f" {len(sent.left)} left out",
            err=True,
        )
    click.echo(f"{len(files)} files are in {out}; open {out / 'index.html'}", err=True)
    if sent.left:
        raise click.exceptions.Exit(LEFT_OUT)


def _write_workflow(path: Path) -> None:
    if path.exists():
        click.echo(f"{path} is there already and stays as it is", err=True)
        return
    try:
        write_file(path, workflow(), parents=True)
    except OSError as error:
        raise R2medError(f"{path}: cannot be written ({reason(error)})") from error
    click.echo(f"{path} is written; commit it and a folder submissions/", err=True)

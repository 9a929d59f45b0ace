"""`r2med submit`: runs packed for a leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.options import ManyValues
from r2med.data.task_names import task_names
from r2med.data.tasks import resolve
from r2med.errors import counted
from r2med.exchange.submission import About, submit
from r2med.exchange.verify import verify
from r2med.runs.ledger import Ledger

if TYPE_CHECKING:
    from r2med.runs.ledger import Entry


@click.command("submit", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write, FILE.zip.")
@click.option(
    "--tasks", multiple=True, metavar="NAME|GROUP...", help="Which tasks (default: all of the benchmark with runs)."
)
@click.option("--name", default="", metavar="NAME", help="What a board calls the system (default: the title).")
@click.option("--title", default="", help="What the submission is called.")
@click.option("--authors", default="", help="Who submits it.")
@click.option("--link", default="", help="A paper, a model or a repository.")
@click.option("--notes", default="", help="Whatever else a reader should know.")
def command(runs: tuple[str, ...], out: Path, tasks: tuple[str, ...], name: str, **about: Any) -> None:
    """Pack runs with their results, settings, versions and a manifest into one file, and verify it.

    A RUN is a system's spec or the id of a run. `r2med verify FILE.zip` checks the file anywhere. A task that is named
    and has no run is an error. Runs on folders are left out: their data is here only. Queries for which a system did
    not do all it should have are counted.

    \b
    Examples:
      r2med submit bm25 "rrf(bm25, bge)" --tasks full --title "Our hybrid" --out ours.zip
    """
    wanted = [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        entries, left_out = submit(ledger, runs, out, About(**about), wanted, name)
    for entry in entries:
        click.echo(f"{entry.id} {entry.name} on {entry.task}{_incomplete(entry)}")
    for task, called in task_names(left_out).items():
        click.echo(f"left out: runs on {called} ({task}), which is on this machine only", err=True)
    found = verify(out)
    for fault in found.faults:
        click.secho(fault, fg="red", err=True)
    if not found.ok:
        raise click.exceptions.Exit(1)
    sizes = f"{counted(len(entries), 'run')}, {counted(found.figures, 'figure')} verified, {out.stat().st_size:,} bytes"
    click.echo(f"{out}: {sizes}")


def _incomplete(entry: Entry) -> str:
    return f": {len(entry.incomplete)} of {len(entry.queries)} queries incomplete" if entry.incomplete else ""

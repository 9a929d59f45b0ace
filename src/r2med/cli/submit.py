"""`r2med submit`: runs packed for a leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.options import ManyValues
from r2med.data.tasks import resolve
from r2med.exchange.submission import About, submit
from r2med.exchange.verify import verify
from r2med.runs.ledger import Ledger

if TYPE_CHECKING:
    from r2med.runs.ledger import Entry


@click.command("submit", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The file to write, FILE.zip.")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP...", help="Which tasks (default: all there are runs on).")
@click.option("--title", default="", help="What the submission is called.")
@click.option("--authors", default="", help="Who submits it.")
@click.option("--link", default="", help="A paper, a model or a repository.")
@click.option("--notes", default="", help="Whatever else a reader should know.")
def command(runs: tuple[str, ...], out: Path, tasks: tuple[str, ...], **about: Any) -> None:
    """Pack runs with their results, settings, versions and a manifest into one file, and verify it.

    A RUN is a system's spec or the id of a run. `r2med verify FILE.zip` checks the file anywhere. A task that is named
    and has no run is an error. Queries for which a system did not do all it should have are counted.

    \b
    Examples:
      r2med submit bm25 "rrf(bm25, bge)" --tasks full --title "Our hybrid" --out ours.zip
    """
    wanted = [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        entries = submit(ledger, runs, out, About(**about), wanted)
    for entry in entries:
        click.echo(f"{entry.id} {entry.system} on {entry.task}{_incomplete(entry)}")
    found = verify(out)
    for fault in found.faults:
        click.secho(fault, fg="red", err=True)
    if not found.ok:
        raise click.exceptions.Exit(1)
    click.echo(f"{out}: {len(entries)} runs, {found.figures} figures verified, {out.stat().st_size:,} bytes")


def _incomplete(entry: Entry) -> str:
    return f": {len(entry.incomplete)} of {len(entry.queries)} queries incomplete" if entry.incomplete else ""

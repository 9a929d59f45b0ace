"""`r2med export`: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from r2med.cli.options import ManyValues
from r2med.data.tasks import resolve
from r2med.exchange.export_results import GROUPS, Target, export
from r2med.runs.ledger import Ledger


@click.command("export", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--format", "form", required=True, type=click.Choice(list(GROUPS)))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to write into.")
@click.option(
    "--tasks", multiple=True, metavar="NAME|GROUP...", help="Which tasks (default: all that the format knows)."
)
@click.option("--name", default="", metavar="NAME", help="What the system is called in the files, such as ORG/MODEL.")
@click.option("--revision", default="", help="The revision that the files name.")
def command(runs: tuple[str, ...], form: str, out: Path, tasks: tuple[str, ...], name: str, revision: str) -> None:
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
    wanted = [task.name for task in resolve(tasks)]
    with Ledger() as ledger:
        for path in export(ledger, runs, form, Target(out, name, revision), wanted):
            click.echo(path)

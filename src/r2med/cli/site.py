"""`r2med site`: a static leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from r2med.cli.options import ManyValues, messages, typed_command
from r2med.errors import R2medError, counted
from r2med.measure.metrics import Measure
from r2med.pipeline.engine import Engine
from r2med.runs.ledger import Ledger
from r2med.storage.files import reason, write_file
from r2med.web.site import Site, WrittenSite, workflow, write_site

LEFT_OUT = 3
"""The exit code of a site that was written without some archives."""
_Folder = click.Path(path_type=Path, file_okay=False)


@click.command("site", cls=ManyValues)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--out", type=_Folder, help="The folder to fill.")
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to rank by.")
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
def command(runs: tuple[str, ...], out: Path | None, workflow_file: Path | None, **wishes: Any) -> None:
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
    wishes["measure"] = str(Measure.parse(wishes.pop("metric")))
    with Ledger() as ledger:
        written = write_site(ledger, Site(runs, command=typed_command(), **wishes), out, Engine(messages()))
    _tell(written, out, wishes["submissions"])


def _write_workflow(path: Path) -> None:
    if path.exists():
        click.echo(f"{path} is there already and stays as it is", err=True)
        return
    try:
        write_file(path, workflow(), parents=True)
    except OSError as error:
        raise R2medError(f"{path}: cannot be written ({reason(error)})") from error
    click.echo(f"{path} is written; commit it and a folder submissions/", err=True)


def _tell(written: WrittenSite, out: Path, folder: Path | None) -> None:
    sent = written.submissions
    for each in sent.left:
        click.secho(f"left out: {each.name}: {each.why}", fg="red", err=True)
    if folder is not None:
        figures = sum(each.figures for each in sent.accepted)
        click.echo(
            f"{counted(len(sent.accepted), 'submission')} of {folder} verified, {figures:,} figures computed anew;"
            f" {len(sent.left)} left out",
            err=True,
        )
    click.echo(f"{len(written.files)} files are in {out}; open {out / 'index.html'}", err=True)
    if sent.left:
        raise click.exceptions.Exit(LEFT_OUT)

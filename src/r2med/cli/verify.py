"""`r2med verify`: is a submission what it says?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from r2med.cli.options import json_option, write_json
from r2med.errors import counted
from r2med.exchange.verify import verify


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.zip")
@json_option()
def command(file: Path, as_json: bool) -> None:
    """Check a submission: every byte against its manifest, every figure against its ranked lists.

    The figures are computed anew with the judgements of the tasks as they are here, which are fetched from the hub
    when they must be. Nothing of the submission is run or unpacked. The exit code is 1 when anything is not as stated.
    """
    found = verify(file)
    if as_json:
        write_json(found.as_dict())
    else:
        for name in ("title", "authors", "link", "notes", "created"):
            if found.description.get(name):
                click.echo(_plain(f"{name}: {found.description[name]}"))
        for row in found.results:
            click.echo(_plain(f"{row.get('system')} on {row.get('task')}: {_headline(row)}{_incomplete(row)}"))
        for fault in found.faults:
            click.secho(_plain(f"fault: {fault}"), fg="red")
        verdict = "verified" if found.ok else "NOT as stated"
        sizes = f"{counted(len(found.results), 'run')}, {counted(found.figures, 'figure')}"
        click.echo(f"{file}: {verdict}; {sizes} computed anew")
    if not found.ok:
        raise click.exceptions.Exit(1)


def _plain(text: str) -> str:
    """A stranger's text without anything that a terminal would obey."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _headline(row: object) -> str:
    metrics = row.get("metrics") if isinstance(row, dict) else None
    value = metrics.get("nDCG@10") if isinstance(metrics, dict) else None
    return f"nDCG@10 {100 * value:.2f}" if isinstance(value, float) else "no nDCG@10"


def _incomplete(row: Mapping[str, Any]) -> str:
    count = row.get("incomplete")
    return f", {count} of {row.get('queries')} queries incomplete" if count else ""

"""`r2med doctor`: is everything here, and if not, how to get it."""

from __future__ import annotations

import click

from r2med.cli.options import json_option, write_json
from r2med.doctor import examine


@click.command("doctor")
@json_option()
def command(as_json: bool) -> None:
    """Versions, extras, devices, caches, and what is missing with the command that brings it."""
    found = examine()
    if as_json:
        write_json(found)
        return
    for heading, facts in found.items():
        click.secho(heading, bold=True)
        width = max(map(len, facts), default=0)
        for name, fact in facts.items():
            click.echo(f"  {name:{width}}  {fact}")

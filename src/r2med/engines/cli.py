"""`r2med engines` and `r2med index`: the search engines that can be queried, and pushing documents into them."""

from __future__ import annotations

from typing import Any

import click

from r2med.cli.options import json_option, write_json
from r2med.engines.request import preset_text, presets, read_request
from r2med.engines.sql import DEFAULT_TABLE, EXAMPLES, example
from r2med.errors import R2medError, suggest
from r2med.render.table import Column, Table, key, output


@click.group("engines", invoke_without_command=True)
@json_option()
@click.pass_context
def engines_command(ctx: click.Context, as_json: bool) -> None:
    """List the search engines that `http(NAME, ...)` can ask, and the example statements of `sql(FILE.sql, ...)`.

    \b
    Examples:
      r2med engines
      r2med engines show solr
      r2med engines show postgres-hybrid > hybrid.sql
    """
    if ctx.invoked_subcommand is not None:
        return
    facts = [_fact(name) for name in presets()]
    facts += [_statement(name) for name in EXAMPLES]
    if as_json:
        write_json(facts)
        return
    table = Table(
        key("engine"), Column("used as"), Column("searches by"), Column("versions"), Column("key", folds=True)
    )
    for fact in facts:
        table.add(fact["name"], fact["stage"], ", ".join(fact["searches"]), fact["versions"], fact["key"] or "-")
    table.show(output())


def _fact(name: str) -> dict[str, Any]:
    searches = [word for word, table in (("text", "query"), ("vectors", "vector")) if table in presets()[name]]
    request = read_request(name, vector="vectors" in searches)
    keys = ", ".join(request.keys())
    return {"name": name, "stage": "http", "searches": searches, "versions": request.versions, "key": keys}


def _statement(name: str) -> dict[str, Any]:
    text = example(name)
    searches = [word for word, place in (("text", "%(query)s"), ("vectors", "%(vector)s")) if place in text]
    return {"name": name, "stage": "sql", "searches": searches, "versions": "PostgreSQL 16", "key": "DATABASE_URL"}


@engines_command.command("show", short_help="Print how a search engine is asked.")
@click.argument("name")
@click.option("--table", default=DEFAULT_TABLE, show_default=True, help="The table that a statement searches.")
def show(name: str, table: str) -> None:
    """Print how an engine is asked: a preset as a file engine.toml to start from, or an example statement."""
    if name in EXAMPLES:
        click.echo(example(name, table), nl=False)
    elif name in presets():
        click.echo(preset_text(name), nl=False)
    else:
        raise R2medError(f"unknown engine {name!r}{suggest(name, [*presets(), *EXAMPLES])}")

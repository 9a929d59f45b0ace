"""`r2med engines`: the search engines that can be queried, and pushing documents into them."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from r2med.cli.execution import asking_options, one_executor
from r2med.cli.options import json_option, remark, write_json
from r2med.engines.push import POSTGRES, PushPlan, PushRequest, plan_push, push
from r2med.engines.request import preset_text, presets, read_request
from r2med.engines.sql import DEFAULT_TABLE, EXAMPLES, example
from r2med.engines.targets import TARGETS
from r2med.errors import R2medError, suggest
from r2med.formatting import counted
from r2med.render.table import Column, Table, key, output
from r2med.settings import RequestSettings, overriding


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
      r2med engines push MedQA-Diag --to elasticsearch --url http://localhost:9200
    """
    if ctx.invoked_subcommand is not None:
        return
    facts = []
    for name in presets():
        searches = [word for word, table in (("text", "query"), ("vectors", "vector")) if table in presets()[name]]
        request = read_request(name, vector="vectors" in searches)
        facts.append((name, "http", searches, request.versions, ", ".join(request.keys())))
    for name in EXAMPLES:
        places = {"text": "%(query)s", "vectors": "%(vector)s"}
        searches = [word for word, place in places.items() if place in example(name)]
        facts.append((name, "sql", searches, "PostgreSQL 16", "DATABASE_URL"))
    if as_json:
        names = ("name", "stage", "searches", "versions", "key")
        write_json([dict(zip(names, fact, strict=True)) for fact in facts])
        return
    table = Table(
        key("engine"), Column("used as"), Column("searches by"), Column("versions"), Column("key", folds=True)
    )
    for name, stage, searches, versions, variable in facts:
        table.add(name, stage, ", ".join(searches), versions, variable or "-")
    table.show(output())


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


@engines_command.command("push", short_help="Push a task's documents into an engine.")
@click.argument("task", metavar="TASK")
@click.option("--to", "engine", required=True, type=click.Choice([*TARGETS, POSTGRES]), help="Which engine.")
@click.option("--url", default="", help="Where it listens; keys are in the variables of `r2med engines`.")
@click.option("--index", "index", default="", help="The index, core, collection, class or table (of the task's name).")
@click.option("--encoder", default="", metavar="SPEC", help="Push vectors too, made by any encoder of r2med.")
@click.option("--dsn-env", default="DATABASE_URL", show_default=True, help="The variable with a database's address.")
@click.option("--batch", default=200, show_default=True, help="Documents in a request.")
@asking_options
@click.option("--dry-run", is_flag=True, help="Show the mapping and the size, and send nothing.")
@json_option()
def push_documents(
    executor: str,
    concurrency: int | None,
    timeout: float | None,
    retries: int | None,
    rpm: float | None,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Push a task's documents into a search engine, with the task's own ids, and count them afterwards.

    A push that was stopped goes on where it was. The index is made where it is not there; Solr's core and Vespa's
    schema must be there already.

    \b
    Examples:
      r2med engines push sample/Biology --to elasticsearch --url http://localhost:9200 --dry-run
      r2med engines push MedQA-Diag --to qdrant --url http://localhost:6333 --encoder bge
      r2med engines push path/to/folder --to postgres --dsn-env MEDLINE_DSN
    """
    request = PushRequest(**given)
    local = one_executor("local" if dry_run else executor, no_shards="documents are pushed once")
    with overriding(RequestSettings(timeout, retries, rpm, concurrency)), local as where:
        outcome = plan_push(request) if dry_run else push(request, where)
    left_out = f" ({outcome.left_out:,} without text are left out)" if outcome.left_out else ""
    if as_json:
        write_json(outcome)
    elif isinstance(outcome, PushPlan):
        requests = "one request each" if outcome.engine == "vespa" else counted(outcome.batches, "request")
        megabytes = outcome.bytes >= 1e5
        size = f"about {outcome.bytes / 1e6:,.1f} MB" if megabytes else f"about {outcome.bytes / 1e3:,.0f} KB"
        documents = counted(outcome.documents, "document")
        click.echo(f"{documents} to {outcome.index} of {outcome.engine}, {requests}, {size}{left_out}")
        if outcome.to_encode:
            click.echo(f"{counted(outcome.to_encode, 'text')} to encode before")
        click.echo(outcome.mapping, nl=False)
    else:
        remark(outcome.warnings)
        there = outcome.documents - outcome.sent
        click.echo(
            f"{counted(outcome.count, 'document')} in {outcome.index} of {outcome.engine}: "
            f"{f'{there:,} were there already, ' if there else ''}"
            f"{outcome.sent:,} sent in {outcome.seconds:,.1f} s{left_out}"
        )
        if outcome.engine == POSTGRES:
            name = outcome.system.partition("(")[2].partition(".sql")[0]
            table = "" if outcome.index == DEFAULT_TABLE else f" --table {quote(outcome.index)}"
            click.echo(f"r2med engines show {name}{table} > {name}.sql")
        click.echo(f"r2med run {quote(outcome.system)} --tasks {quote(request.task)}")

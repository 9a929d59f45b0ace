"""`r2med engines`: the search engines that can be queried, and pushing documents into them."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from r2med.cli.execution import asking_options, one_executor
from r2med.cli.options import json_option, write_json
from r2med.engines.push import POSTGRES, PushPlan, PushRequest, PushResult, as_dict, plan_push, push
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
    chosen = one_executor("local" if dry_run else executor, no_shards="documents are pushed once")
    with overriding(RequestSettings(timeout, retries, rpm, concurrency)), chosen as where:
        outcome = plan_push(request) if dry_run else push(request, where)
    if as_json:
        write_json(as_dict(outcome))
    elif isinstance(outcome, PushPlan):
        _show_plan(outcome)
    else:
        _show_result(outcome, request.task)


def _left_out(outcome: PushPlan | PushResult) -> str:
    return f" ({outcome.left_out:,} without text are left out)" if outcome.left_out else ""


def _show_plan(plan: PushPlan) -> None:
    requests = "one request each" if plan.engine == "vespa" else counted(plan.batches, "request")
    size = f"about {plan.bytes / 1e6:,.1f} MB" if plan.bytes >= 1e5 else f"about {plan.bytes / 1e3:,.0f} KB"
    click.echo(
        f"{counted(plan.documents, 'document')} to {plan.index} of {plan.engine}, {requests}, {size}{_left_out(plan)}"
    )
    if plan.to_encode:
        click.echo(f"{counted(plan.to_encode, 'text')} to encode before")
    click.echo(plan.mapping, nl=False)


def _show_result(result: PushResult, task: str) -> None:
    for sentence in result.warnings:
        click.echo(f"note: {sentence}", err=True)
    there = f"{result.documents - result.sent:,} were there already, " if result.sent < result.documents else ""
    click.echo(
        f"{counted(result.count, 'document')} in {result.index} of {result.engine}: {there}"
        f"{result.sent:,} sent in {result.seconds:,.1f} s{_left_out(result)}"
    )
    if result.engine == POSTGRES:
        name = result.system.partition("(")[2].partition(".sql")[0]
        table = "" if result.index == DEFAULT_TABLE else f" --table {quote(result.index)}"
        click.echo(f"r2med engines show {name}{table} > {name}.sql")
    click.echo(f"r2med run {quote(result.system)} --tasks {quote(task)}")

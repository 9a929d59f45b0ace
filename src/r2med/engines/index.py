"""`r2med index`: documents pushed into a search engine."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from r2med.cli.execution import asking_options, one_executor
from r2med.cli.options import json_option, write_json
from r2med.engines.push import POSTGRES, PushPlan, PushRequest, PushResult, as_dict, plan_push, push
from r2med.engines.sql import DEFAULT_TABLE
from r2med.engines.targets import TARGETS
from r2med.formatting import counted
from r2med.settings import RequestSettings, requesting


@click.command("index")
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
def index_command(
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
      r2med index sample/Biology --to elasticsearch --url http://localhost:9200 --dry-run
      r2med index MedQA-Diag --to qdrant --url http://localhost:6333 --encoder bge
      r2med index path/to/folder --to postgres --dsn-env MEDLINE_DSN
    """
    request = PushRequest(**given)
    chosen = one_executor("local" if dry_run else executor, no_shards="documents are pushed once")
    with requesting(RequestSettings(timeout, retries, rpm, concurrency)), chosen as where:
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

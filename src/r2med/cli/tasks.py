"""`r2med tasks`: the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, output, write_json

if TYPE_CHECKING:
    from r2med.data.tasks import Task


@click.command("tasks")
@click.argument("names", nargs=-1, metavar="[NAME|GROUP]...")
@json_option()
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List the tasks and groups, all or those named.

    \b
    Examples:
      r2med tasks
      r2med tasks nano clinical-case
    """
    from r2med.data.tasks import groups, registry, resolve

    chosen = resolve(names) if names else list(registry().values())
    if as_json:
        write_json([_facts(task) for task in chosen])
        return
    _show(chosen)
    click.echo(f"groups: {', '.join(groups())}")


def _facts(task: Task) -> dict[str, object]:
    names = ("name", "group", "family", "scenario", "noun", "target", "purpose", "hub", "revision")
    counts = ("queries", "documents", "qrels", "query_length", "document_length")
    return {name: getattr(task, name) for name in (*names, *counts)} | {"sentence": task.sentence}


def _show(tasks: Sequence[Task]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("task", "family", "scenario"):
        table.add_column(heading, no_wrap=True)
    for heading in ("#Q", "#D", "qrels"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("from", overflow="ellipsis")
    for task in tasks:
        where = f"{task.hub}@{task.revision[:8]}" if task.hub else "bundled" if task.group == "sample" else "folder"
        counts = ["-" if count is None else f"{count:,}" for count in (task.queries, task.documents, task.qrels)]
        table.add_row(task.name, task.family_title, task.scenario, *counts, where)
    output().print(table)

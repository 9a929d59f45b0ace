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
    from r2med.render.grid import Column, Table, key, numbers

    texts = [Column(heading, folds=True) for heading in ("family", "scenario")]
    table = Table(key("task"), *texts, *numbers("#Q", "#D", "qrels"), Column("from", folds=True))
    for task in tasks:
        where = f"{task.hub}@{task.revision[:8]}" if task.hub else "bundled" if task.group == "sample" else "folder"
        counts = ["-" if count is None else f"{count:,}" for count in (task.queries, task.documents, task.qrels)]
        table.add(task.name, task.family_title, task.scenario, *counts, where)
    table.show(output())

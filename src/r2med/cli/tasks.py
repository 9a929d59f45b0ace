"""`r2med tasks` and `r2med analyze`: what there is, and the tokens that BM25 sees."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, write_json
from r2med.data.tasks import groups, registry, resolve
from r2med.lexical.analyzer import analyze
from r2med.render.table import Column, Table, key, numbers, output

if TYPE_CHECKING:
    from r2med.data.tasks import Task


@click.command("analyze")
@click.argument("text", required=False)
def analyze_command(text: str | None) -> None:
    """Show the tokens that BM25 sees: for each line of TEXT (or of standard input) one line of tokens.

    \b
    Examples:
      r2med analyze "The patient's β-blocker wasn't working"
      cat notes.txt | r2med analyze -
    """
    if text is not None and text != "-":
        lines = text.split("\n")
    else:
        data = sys.stdin.buffer.read().decode("utf-8", "replace")
        lines = data.removesuffix("\n").split("\n") if data else []
    for line in lines:
        click.echo(" ".join(analyze(line.removesuffix("\r"))))


@click.command("tasks")
@click.argument("names", nargs=-1, metavar="[NAME|GROUP]...")
@json_option()
def tasks_command(names: tuple[str, ...], as_json: bool) -> None:
    """List the tasks and groups, all or those named. `--json` also has repositories, commits and prompts' words.

    \b
    Examples:
      r2med tasks
      r2med tasks nano clinical-case
    """
    chosen = resolve(names) if names else list(registry().values())
    if as_json:
        write_json([_facts(task) for task in chosen])
        return
    _show_tasks(chosen)
    for line in _licences(chosen):
        click.echo(line)
    words = f"groups: {', '.join(groups())}"
    output().print(words)


def _facts(task: Task) -> dict[str, object]:
    names = ("name", "group", "family", "scenario", "noun", "target", "purpose", "hub", "revision")
    counts = ("queries", "documents", "qrels", "query_length", "document_length")
    licences = {name: getattr(task, name) or None for name in ("licence", "source_licence")}
    return {name: getattr(task, name) for name in (*names, *counts)} | licences | {"sentence": task.sentence}


def _licences(tasks: Sequence[Task]) -> list[str]:
    """List the licence of each group, and the sources that are under another, below the table."""
    lines = []
    for group in dict.fromkeys(task.group for task in tasks):
        some = [task for task in tasks if task.group == group]
        known = dict.fromkeys(task.licence for task in some if task.licence)
        card = " by the hub cards" if any(task.hub for task in some) else ""
        if known or card:
            lines.append(f"licence of {group}: {', '.join(known) or 'not known'}{card if known else ''}")
        lines += [
            f"licence of the source of {task.name}: {task.source_licence}" for task in some if task.source_licence
        ]
    return lines


def _show_tasks(tasks: Sequence[Task]) -> None:
    table = Table(key("task"), Column("family"), Column("scenario"), *numbers("#Q", "#D", "qrels"))
    for task in tasks:
        counts = ["-" if count is None else f"{count:,}" for count in (task.queries, task.documents, task.qrels)]
        table.add(task.name, task.family, task.scenario, *counts)
    table.show(output())

"""`r2med stats`: what the data is like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, output, write_json
from r2med.data import load
from r2med.data.tasks import resolve
from r2med.data.validate import stats
from r2med.render.grid import Table, key, numbers

if TYPE_CHECKING:
    from r2med.data.validate import Lengths, Stats

_HEADINGS = ("#Q", "#D", "pos/Q", "Q-len (5-95%)", "D-len (5-95%)", "same text", "own id")


@click.command("stats")
@click.argument("tasks", nargs=-1, metavar="[NAME|GROUP|PATH]...")
@json_option()
def command(tasks: tuple[str, ...], as_json: bool) -> None:
    """Sizes, lengths in words and duplicates of tasks or folders (default: the sample).

    \b
    Examples:
      r2med stats
      r2med stats MedQA-Diag path/to/folder --json
    """
    found = [stats(load(task)) for task in resolve(tasks or ("sample",))]
    if as_json:
        write_json([each.as_dict() for each in found])
    else:
        _show(found)


def _show(found: Sequence[Stats]) -> None:
    table = Table(key("task"), *numbers(*_HEADINGS))
    for each in found:
        table.add(
            each.task,
            f"{each.queries:,}",
            f"{each.documents:,}",
            f"{each.positives:.1f}",
            _length(each.query_words),
            _length(each.document_words),
            f"{each.documents - each.distinct_texts:,}",
            f"{each.shared_ids:,}",
        )
    console = output()
    table.show(console)
    console.print("lengths in words: the mean, and the range from the 5th to the 95th percentile", style="dim")
    console.print("same text: documents that repeat another; own id: documents with the id of a query", style="dim")


def _length(lengths: Lengths) -> str:
    return f"{lengths.mean:.1f} ({lengths.p5}-{lengths.p95})"

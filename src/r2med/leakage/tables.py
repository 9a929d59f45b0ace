"""Tables and sentences of a leakage report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.leakage.index import METHODS
from r2med.render.table import Column, Table, key, numbers

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.leakage.findings import LeakageReport

_KINDS = ("queries", "positives", "documents")


def show(report: LeakageReport, console: Console) -> None:
    """Print the share of each task that is affected, the strongest pairs, and the conclusion."""
    _shares(report).show(console)
    if report.strongest:
        more = f" of {report.pairs:,}" if report.pairs > len(report.strongest) else ""
        console.print(f"The strongest pairs ({len(report.strongest)}{more})", style="bold")
        texts = [Column(heading, folds=True) for heading in ("training row", "task", "kind", "id", "method")]
        table = Table(*texts, *numbers("score"))
        for pair in report.strongest:
            names = (f"{pair.file}:{pair.line}", pair.task, pair.kind, pair.id, pair.method)
            table.add(*names, f"{pair.score:.2f}")
        table.show(console)
    for sentence in conclusion(report):
        console.print(sentence)


def conclusion(report: LeakageReport) -> list[str]:
    """Summarize the findings in sentences."""
    rows = sum(leaked.rows for leaked in report.files.values())
    judged = sum(len(leaked.judged) for leaked in report.files.values())
    any_ = sum(len(leaked.any) for leaked in report.files.values())
    sentences = [
        f"{judged:,} of {rows:,} rows hold queries or positives, {any_ - judged:,} more hold other documents."
        if any_
        else f"None of {rows:,} rows holds a query, a positive or another document of these tasks."
    ]
    short = sum(getattr(task, kind).too_short for task in report.tasks for kind in ("queries", "documents"))
    if short:
        least = report.settings.min_words
        sentences.append(f"{short:,} queries and documents of fewer than {least} words were not compared.")
    return sentences


def _shares(report: LeakageReport) -> Table:
    counts = [heading for kind in _KINDS for heading in (kind, "%")]
    methods = [method for method in METHODS if method in report.settings.methods]
    table = Table(key("affected"), *numbers(*counts, *methods))
    for task in report.tasks:
        shares = [getattr(task, kind) for kind in _KINDS]
        cells = [cell for share in shares for cell in (f"{share.affected:,}/{share.total:,}", f"{share.share:.1%}")]
        # Queries and documents that each method found, those of a surer one left out.
        found = [task.queries.methods.get(name, 0) + task.documents.methods.get(name, 0) for name in methods]
        table.add(task.task, *cells, *(f"{count:,}" if count else "" for count in found))
    return table

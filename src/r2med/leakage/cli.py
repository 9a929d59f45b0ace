"""`r2med leakage`: does training data hold what is evaluated on?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from r2med.cli.options import FailedWith2, ManyValues, json_option, write_json
from r2med.errors import R2medError, debug
from r2med.leakage.check import check, exclude, targets
from r2med.leakage.findings import LeakageReport
from r2med.leakage.index import METHODS, Settings
from r2med.pipeline.executor.local import Executor
from r2med.render.table import Column, Table, key, messages, numbers, output
from r2med.runs.contamination import keep_check

_KINDS = ("queries", "positives", "documents")


@click.command("leakage", cls=ManyValues)
@click.argument("files", nargs=-1, required=True, metavar="TRAIN_FILE...", type=click.Path(path_type=Path))
@click.option("--tasks", multiple=True, required=True, metavar="NAME|GROUP|PATH...", help="What is evaluated on.")
@click.option("--exclude", "clean", metavar="OUT", type=click.Path(path_type=Path), help="Write the clean rows here.")
@click.option("--documents", is_flag=True, help="Other documents than positives count too: exit code and --exclude.")
@click.option("--fields", multiple=True, metavar="FIELD...", help="The fields of rows to look at (default: all).")
@click.option("--methods", multiple=True, metavar="METHOD...", help="Some of exact, normalised, near, ngram.")
@click.option("--threshold", default=0.6, show_default=True, type=float, help="Least similarity of near-duplicates.")
@click.option("--overlap", default=0.0, show_default=True, type=float, help="Least share of a text's 13-grams found.")
@click.option("--min-words", default=5, show_default=True, type=int, help="Shorter texts are not compared.")
@click.option("--out", metavar="REPORT.jsonl", type=click.Path(path_type=Path), help="Write every pair here.")
@click.option("--model", default="", metavar="NAME", help="Keep the result: the column contamination of the board.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(0), help="Pairs to show; 0 for all.")
@json_option()
def leakage_command(files: tuple[Path, ...], clean: Path | None, documents: bool, as_json: bool, **given: Any) -> None:
    """Which queries, positives and documents of tasks occur in training data?

    A text is found exactly, as normalised text (the same words in the same order), as a near-duplicate (most word
    pairs in common), or by 13 words in a row that a training row shares with it. Training files are JSON lines, plain
    text (a row a line) or parquet, of any size, .gz too.

    The exit code is 1 when a query or a positive is found, or with --documents any document, and 2 for an error.
    --exclude writes the training data without the rows that hold them: a file, or for several training files a folder.

    \b
    Examples:
      r2med leakage train.jsonl --tasks full --exclude clean.jsonl
      r2med leakage train.jsonl --tasks full --model my-encoder
      r2med leakage part-*.parquet --tasks nano --fields query pos --out pairs.jsonl
      r2med leakage train.txt.gz --tasks MedQA-Diag path/to/folder --methods exact normalised --json
    """
    try:
        places = targets(files, clean) if clean is not None else {}
        model, tasks, out, limit = (
            given.pop("model"),
            given.pop("tasks"),
            given.pop("out"),
            given.pop("limit") or sys.maxsize,
        )
        settings = Settings(given.pop("methods") or METHODS, **given)
        report = check(files, tasks, settings, Executor(messages()), out, limit)
        cleaned = exclude(report, places, documents)
        if model:
            keep_check(model, {task.task: task.queries.affected + task.positives.affected for task in report.tasks})
    except R2medError as error:
        debug(error)
        raise FailedWith2(str(error)) from error
    leaks = report.leaks(documents)
    if as_json:
        write_json({"leaks": leaks, **report.as_dict(), "excluded": {str(file): n for file, n in cleaned.items()}})
    else:
        _show(report)
    for file, rows in cleaned.items():
        click.echo(f"{file} is the training data without {rows:,} rows", err=True)
    if leaks:
        raise click.exceptions.Exit(1)


def _show(report: LeakageReport) -> None:
    console = output()
    headings = [heading for kind in _KINDS for heading in (kind, "%")]
    methods = [method for method in METHODS if method in report.settings.methods]
    table = Table(key("affected"), *numbers(*headings, *methods))
    for task in report.tasks:
        shares = [getattr(task, kind) for kind in _KINDS]
        cells = [cell for share in shares for cell in (f"{share.affected:,}/{share.total:,}", f"{share.share:.1%}")]
        # Queries and documents that each method found, those of a surer one left out.
        counts = [task.queries.methods.get(name, 0) + task.documents.methods.get(name, 0) for name in methods]
        table.add(task.task, *cells, *(f"{count:,}" if count else "" for count in counts))
    table.show(console)
    if report.strongest:
        more = f" of {report.pairs:,}" if report.pairs > len(report.strongest) else ""
        console.print(f"The strongest pairs ({len(report.strongest)}{more})", style="bold")
        texts = [Column(heading, folds=True) for heading in ("training row", "task", "kind", "id", "method")]
        table = Table(*texts, *numbers("score"))
        for pair in report.strongest:
            place = f"{pair.file}:{pair.line}"
            table.add(place, pair.task, pair.kind, pair.id, pair.method, f"{pair.score:.2f}")
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

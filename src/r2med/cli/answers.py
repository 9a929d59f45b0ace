"""`r2med answers`: are the generated answers right?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, output, write_json

if TYPE_CHECKING:
    from r2med.answers import AnswerReport
    from r2med.measure.correlation import Correlation


@click.command("answers")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--judge", default="", metavar="LLM", help="The model that compares an answer with the gold answer.")
@click.option("--metric", default="nDCG@10", show_default=True, help="The measure of retrieval to correlate with.")
@json_option()
def command(runs: tuple[str, ...], judge: str, metric: str, as_json: bool) -> None:
    """Are the generated answers of runs right, and does that go with retrieval?

    A RUN is a system's spec or a run's id. Without --judge only the free comparisons are made: the gold answer
    word for word, or contained in the text.

    \b
    Examples:
      r2med answers "replay >> bm25"
      r2med answers "hyde(gpt-4o) >> bm25" "answer(o3-mini) >> bm25" --judge gpt-4o
    """
    from r2med.answers import judge_runs
    from r2med.measure.metrics import Measure

    report = judge_runs(runs, judge, str(Measure.parse(metric)))
    if as_json:
        write_json(report.as_dict())
    else:
        _show(report)


def _show(report: AnswerReport) -> None:
    from r2med.render.grid import Column, Table, key, numbers

    figures = numbers("accuracy", "exact", "contained", "judged", "unparsable", "missing")
    table = Table(key("system"), Column("task", folds=True, key=True), *figures)
    for each in report.results:
        shares = (each.accuracy, each.share("exact"), each.share("contained"))
        cells = ["-" if share is None else f"{100 * share:.1f}" for share in shares]
        counts = [str(count) for count in (len(each.right), each.unparsable, len(each.missing))]
        table.add(each.system, each.task, *cells, *counts)
    console = output()
    table.show(console)
    console.print(f"with {report.measure} over queries: {_line(report.over_queries)}")
    console.print(f"with {report.measure} over systems: {_line(report.over_systems)}")


def _line(found: Correlation) -> str:
    if found.pearson is None or found.spearman is None:
        return f"not defined on {found.points} points"
    parts = []
    for name, value, interval in (
        ("Pearson", found.pearson, found.pearson_interval),
        ("Spearman", found.spearman, found.spearman_interval),
    ):
        spread = f" [{interval[0]:+.2f}, {interval[1]:+.2f}]" if interval else ""
        parts.append(f"{name} {value:+.2f}{spread}")
    return f"{', '.join(parts)} ({found.points} points)"

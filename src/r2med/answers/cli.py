"""`r2med answers` and `r2med rag`: are generated answers right, and does retrieval change them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from r2med.answers.accuracy import judge_runs
from r2med.cli.execution import asking, asking_options
from r2med.cli.options import ManyValues, json_option, remark, write_json
from r2med.data.task_names import task_names
from r2med.data.tasks import resolve
from r2med.llm.judge import judge_prompt
from r2med.measure.metrics import Measure
from r2med.render.table import Column, Table, key, numbers, output

if TYPE_CHECKING:
    from r2med.answers.accuracy import AnswerReport
    from r2med.measure.correlation import Correlation


@click.command("answers", cls=ManyValues)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all with answers).")
@click.option("--judge", default="", metavar="LLM", help="The model that compares an answer with the gold answer.")
@click.option("--judge-prompt", "prompt", default="", metavar="FILE", help="What to ask the judge, in your own words.")
@click.option("--measure", default="nDCG@10", show_default=True, help="The measure of retrieval to correlate with.")
@asking_options
@json_option()
def answers_command(
    runs: tuple[str, ...], tasks: tuple[str, ...], judge: str, prompt: str, measure: str, as_json: bool, **settings: Any
) -> None:
    """Are the generated answers of runs right, and does that go with retrieval?

    A RUN is a system's spec or a run's id. Tasks without gold answers are left out, with a note. Without --judge only
    the free comparisons are made: the gold answer word for word, or contained in the text. A prompt of your own has
    {question}, {correct_answer} and {response} in it, and asks for one line: Verdict: yes, or Verdict: no.

    \b
    Examples:
      r2med answers "replay >> bm25" --tasks sample/MedQA-Diag
      r2med answers "hyde(gpt-4o) >> bm25" "answer(o3-mini) >> bm25" --judge gpt-4o
      r2med answers "replay >> bm25" --judge gpt-4o --judge-prompt strict.txt
    """
    names = [task.name for task in resolve(tasks)]
    if prompt and not judge:
        raise click.UsageError("--judge-prompt is for a judge; name one with --judge")
    asked = judge_prompt(prompt) if prompt else None
    with asking(**settings) as executor:
        report = judge_runs(runs, judge, str(Measure.parse(measure)), names, asked, executor)
    remark(report.notes)
    if as_json:
        write_json(report.as_dict())
    else:
        _show(report)


def _show(report: AnswerReport) -> None:
    names = task_names(each.task for each in report.results)
    figures = numbers("accuracy", "exact", "contained", "judged", "unparsable", "missing")
    table = Table(key("system"), Column("task", folds=True, key=True), *figures)
    for each in report.results:
        shares = (each.accuracy, each.share("exact"), each.share("contained"))
        cells = ["-" if share is None else f"{100 * share:.1f}" for share in shares]
        counts = [str(count) for count in (len(each.right), each.unparsable, len(each.missing))]
        table.add(each.system, names[each.task], *cells, *counts)
    console = output()
    table.show(console)
    console.print(f"with {report.measure} over queries: {_line(report.over_queries, report)}")
    console.print(f"with {report.measure} over systems: {_line(report.over_systems, report)}")


def _line(found: Correlation, report: AnswerReport) -> str:
    if found.pearson is None or found.spearman is None:
        points = "1 point" if found.points == 1 else f"{found.points} points"
        return f"not defined on {points}: {report.too_few or 'the values do not vary'}"
    parts = []
    for name, figure in (("Pearson", found.pearson), ("Spearman", found.spearman)):
        spread = "" if figure.low is None else f" [{', '.join(f'{end:+.2f}' for end in figure.ends)}]"
        parts.append(f"{name} {figure.value:+.2f}{spread}")
    return f"{', '.join(parts)} ({found.points} points)"

"""`r2med answers` and `r2med rag`: are generated answers right, and does retrieval change them?"""

from __future__ import annotations

from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.answers.accuracy import judge_runs
from r2med.answers.arms import KINDS, ORDERS, PromptRule, make_arms
from r2med.answers.nugget_writer import NuggetWriter
from r2med.answers.plan import plan_study
from r2med.answers.report import make_report
from r2med.answers.study import StudyOptions, run_study
from r2med.answers.tables import rag_charts, rag_sections
from r2med.cli.execution import asking, asking_options
from r2med.cli.options import ManyValues, json_option, remark, write_json
from r2med.data.task_names import task_names
from r2med.data.tasks import resolve
from r2med.formatting import counted, percent
from r2med.llm.budget import Estimate
from r2med.llm.parsing import judge_prompt
from r2med.measure.metrics import Measure
from r2med.render.charts.files import check_chart_files, save_charts
from r2med.render.sections import write_sections
from r2med.render.table import Column, Table, column, key, numbers, output

if TYPE_CHECKING:
    from r2med.answers.plan import StudyPlan
    from r2med.measure.correlation import Correlation
    from r2med.pipeline.executor.local import Executor


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
        return
    short = task_names(result.task for result in report.results)
    in_percent = partial(percent, digits=1)
    columns = [
        key("system"),
        Column("task", folds=True, key=True, get=lambda result: short[result.task]),
        column("accuracy", form=in_percent),
        column("exact", form=in_percent, get=lambda result: result.share("exact")),
        column("contained", form=in_percent, get=lambda result: result.share("contained")),
        column("judged", get=lambda result: len(result.right)),
        column("unparsable"),
        column("missing", get=lambda result: len(result.missing)),
    ]
    console = output()
    Table.of(columns, report.results).show(console)
    console.print(f"with {report.measure} over queries: {_describe(report.over_queries, report.too_few)}")
    console.print(f"with {report.measure} over systems: {_describe(report.over_systems, report.too_few)}")


def _describe(correlation: Correlation, too_few: str) -> str:
    if correlation.pearson is None or correlation.spearman is None:
        points = "1 point" if correlation.points == 1 else f"{correlation.points} points"
        return f"not defined on {points}: {too_few or 'the values do not vary'}"
    parts = []
    for name, figure in (("Pearson", correlation.pearson), ("Spearman", correlation.spearman)):
        spread = "" if figure.low is None else f" [{', '.join(f'{end:+.2f}' for end in figure.ends)}]"
        parts.append(f"{name} {figure.value:+.2f}{spread}")
    return f"{', '.join(parts)} ({correlation.points} points)"


_FILE = click.Path(path_type=Path, dir_okay=False)
_RULE = ("k", "budget", "order", "prompt")
_ASKED = ("executor", "concurrency", "timeout", "retries", "rpm", "max_cost", "max_tokens")


@click.command("rag", cls=ManyValues)
@click.argument("systems", nargs=-1, metavar="[SYSTEM]...")
@click.option("--llm", required=True, metavar="LLM", help="The model that answers.")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: sample).")
@click.option(
    "--arms", multiple=True, metavar="ARM...", help=f"Some of {', '.join(KINDS)}; run files (NAME=FILE); systems."
)
@click.option("--judge", default="", metavar="LLM", help="The model that compares an answer with the gold answer.")
@click.option("--judge-prompt", default="", metavar="FILE", help="What to ask the judge, in your own words.")
@click.option("--nuggets", default="", metavar="FILE", help="Facts of good answers, for the judge to look for.")
@click.option(
    "--write-nuggets", type=_FILE, metavar="FILE", help="Have the model write such facts, and answer nothing."
)
@click.option("--k", default=5, show_default=True, type=click.IntRange(1), help="Passages in view at the most.")
@click.option("--budget", default=2000, show_default=True, type=click.IntRange(1), help="Tokens of all passages.")
@click.option("--order", default="ranked", show_default=True, type=click.Choice(ORDERS), help="Of the sources.")
@click.option("--prompt", default="", metavar="FILE", help="A prompt of your own, with {question} and {sources}.")
@click.option("--samples", default=1, show_default=True, type=click.IntRange(1), help="Answers to each question.")
@click.option("--temperature", type=click.FloatRange(0), help="In place of the model's own.")
@click.option("--answer-tokens", type=click.IntRange(1), help="The longest reply, in place of the model's own.")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What lists are measured by.")
@click.option("--max-cost", type=float, metavar="DOLLARS", help="Stop asking models before this is spent.")
@click.option("--max-tokens", type=int, help="Stop asking models before so many tokens are used.")
@asking_options
@click.option("--fresh", is_flag=True, help="Read and judge kept replies again.")
@click.option("--dry-run", is_flag=True, help="Show what would be asked and what it would cost, and ask nothing.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="DIR|FILE", help="Draw arms, flows and retrieval.")
@click.option("--format", "form", type=click.Choice(["md", "latex"]), help="Write Markdown or LaTeX.")
@json_option()
def rag_command(systems: tuple[str, ...], tasks: tuple[str, ...], arms: tuple[str, ...], **given: Any) -> None:
    """Does retrieval change the answer? The same questions, model and prompt, with and without passages.

    closed shows no passage, system the first k of each SYSTEM, gold the relevant passages, random relevant passages of
    other questions, hard the highest ranked passages of each SYSTEM that are not relevant. The last three are chosen by
    the judgements and marked as oracles. Further arms are run files and systems.

    With --nuggets, answers are longer, and the judge says which facts of FILE each of them holds: vital ones, which a
    good answer must have, and okay ones. --write-nuggets makes that file from gold answers and relevant passages, for
    people to check (r2med review new NAME --from FILE); what it has already stays as it is.

    Every arm has the same token budget. Answers name their sources and may abstain. An answer is right when it has the
    words of the gold answer, or when the --judge says that it means the same. Replies, answers and verdicts are kept:
    the same command goes on where it was stopped, and shows what is there without asking again.

    \b
    Examples:
      r2med rag bm25 --llm gpt-4o --judge gpt-4o --tasks MedQA-Diag --dry-run
      r2med rag bm25 "rrf(bm25, bge)" --llm gpt-4o --samples 3 --tasks full --max-cost 20
      r2med rag --llm qwen@http://localhost:8000/v1 --arms closed gold ours=run.trec --tasks path/to/folder
      r2med rag --llm gpt-4o --tasks sample/PMC-Treatment --write-nuggets nuggets.jsonl
      r2med rag bm25 --llm gpt-4o --judge gpt-4o --tasks sample/PMC-Treatment --nuggets nuggets.jsonl
    """
    as_json, form, dry_run = given.pop("as_json"), given.pop("form"), given.pop("dry_run")
    if as_json and form:
        raise click.UsageError("--json and --format exclude each other")
    if given["judge_prompt"] and not given["judge"]:
        raise click.UsageError("--judge-prompt is for a judge; name one with --judge")
    plot, nuggets_file = given.pop("plot"), given.pop("write_nuggets")
    if nuggets_file is not None and (systems or arms or given["nuggets"] or form or plot):
        raise click.UsageError("--write-nuggets answers nothing: leave out SYSTEM, --arms, --nuggets, --format, --plot")
    if plot is not None:
        check_chart_files(plot)
    fresh = given.pop("fresh")
    names = list(tasks or ("sample",))
    asked = {name: given.pop(name) for name in _ASKED}
    measure = str(Measure.parse(given.pop("measure")))
    options = StudyOptions(rule=PromptRule(**{name: given.pop(name) for name in _RULE}), measure=measure, **given)
    study_arms = make_arms(systems, arms)
    with asking(dry_run=dry_run, **asked) as executor:
        if nuggets_file is not None:
            _write_nuggets(NuggetWriter(options, names, nuggets_file), executor, dry_run=dry_run, as_json=as_json)
            return
        if dry_run:
            _show_plan(plan_study(study_arms, names, options), as_json=as_json)
            return
        report = make_report(*run_study(study_arms, names, options, executor, fresh=fresh))
    remark(report.notes)
    if as_json:
        write_json(report.as_dict())
    else:
        title = f"Answers of {report.settings['llm']['name']} with and without passages"
        write_sections(form, title, rag_sections(report), report.notes)
    if plot is not None:
        charts = rag_charts(report)
        lacks = {"flows": "closed was not asked", "retrieval": "it takes two systems"}
        remark(f"{name} is not drawn: {why}" for name, why in lacks.items() if name not in charts)
        files = save_charts(charts, plot)
        click.echo(f"the figures are in {', '.join(map(str, files))}", err=True)


def _write_nuggets(writer: NuggetWriter, executor: Executor, *, dry_run: bool, as_json: bool) -> None:
    done = writer.estimate() if dry_run else writer.write(executor)
    remark(writer.notes)
    if as_json:
        write_json(done)
    elif isinstance(done, Estimate):
        table = Table(key("step"), *numbers("requests", "kept", "tokens", "dollars", "at most"))
        table.add("nuggets", *_cells(done))
        table.show(output())
    else:
        kept = f"; {counted(done.kept, 'question')} had them before" if done.kept else ""
        click.echo(f"{counted(done.nuggets, 'nugget')}, {done.vital:,} vital, of {counted(done.questions, 'question')}")
        click.echo(f"in {done.path}{kept}; {_money(done.cost)} for replies, kept ones included")
        if done.unread:
            why = f"the first: {done.first_unread}; the same command asks for them again"
            click.echo(f"{counted(done.unread, 'reply', 'replies')} could not be read, {why}", err=True)
        if done.failed:
            click.echo(f"{counted(done.failed, 'request')} had no reply; the same command asks again", err=True)


def _show_plan(plan: StudyPlan, *, as_json: bool) -> None:
    if as_json:
        write_json(plan.as_dict())
        return
    remark(plan.notes)
    console = output()
    table = Table(key("arm"), *numbers("questions", "answers", "kept", "tokens", "dollars", "at most"))
    for label in dict.fromkeys(arm.arm for arm in plan.arms):
        parts = [arm for arm in plan.arms if arm.arm == label]
        answers = reduce(add, (arm.answers for arm in parts))
        table.add(label, f"{sum(arm.questions for arm in parts):,}", *_cells(answers))
    table.rule()
    table.add("all answers", "", *_cells(plan.answers))
    if plan.verdicts is not None:
        table.add("all verdicts, at most", "", *_cells(plan.verdicts))
    table.show(console)
    console.print(f"left to pay for: {_money(plan.total.cost)}, at most {_money(plan.total.cost_limit)}")
    console.print("the first prompt with passages:\n", style="bold")
    console.print(plan.first_prompt, markup=False, highlight=False)


def _cells(guess: Estimate) -> list[str]:
    tokens = guess.prompt_tokens + guess.completion_tokens
    return [f"{guess.requests:,}", f"{guess.cached:,}", f"{tokens:,}", _money(guess.cost), _money(guess.cost_limit)]


def _money(dollars: float | None) -> str:
    return "?" if dollars is None else f"${dollars:,.4f}"

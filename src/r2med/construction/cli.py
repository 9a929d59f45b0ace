"""`r2med build`: a judged task from the user's questions and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from r2med.cli.execution import asking, asking_options, show_foreseen
from r2med.cli.options import Percent, json_option, remark, write_json
from r2med.construction.builder import Builder, BuildProgress, init, show, status
from r2med.construction.health import TaskHealth, check_health
from r2med.construction.health_report import health_markdown, health_sections, refresh_card
from r2med.construction.judging import Rejudging
from r2med.construction.package import publish, remarks
from r2med.construction.pool import read_built_task
from r2med.formatting import counted, human_size, money
from r2med.llm.items import Count
from r2med.render.charts.bars import FunnelChart, FunnelStep, UpSetChart, UpSetColumn
from r2med.render.charts.files import check_chart_files, save_charts
from r2med.render.charts.scatter import ScoreBubble, ScoreChart
from r2med.render.sections import show_sections
from r2med.render.table import Table, column, key, numbers, output, say

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


class _BuildGroup(click.Group):
    """Group of the sub-verbs of this study, and of `translate`, which is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, "translate"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "translate":
            command: click.Command = import_module("r2med.translation.cli").translate_task
            return command
        return super().get_command(ctx, cmd_name)


@click.group("build", cls=_BuildGroup)
def build_command() -> None:
    """Make a judged task from your own questions and documents.

    `init` writes a plan with comments, `run` runs its steps and goes on where it was stopped, `status` shows how many
    questions are left after each step and why the others went, `show` everything about one question, `check` whether
    the task is any good; `publish` pushes it to the hub. `translate` asks the questions of any task in other languages.

    \b
    Examples:
      r2med build init my-build
      r2med build run my-build --dry-run
    """


@build_command.command("init", short_help="Write an example plan into a new folder.")
@_FOLDER
@click.option("--people", default="", metavar="REVIEW", help="Let people judge, in a review of this name.")
def init_folder(folder: Path, people: str) -> None:
    """Write plan.toml, guideline.md and an example into a new folder DIR.

    \b
    Examples:
      r2med build init my-task
      r2med build init ward-task --people ward-7
    """
    for path in init(folder, people):
        click.echo(f"wrote {path}")
    judges = "" if people else ", and who judges"
    click.echo(f"now say in {folder}/plan.toml where your questions and documents are{judges}; then:", err=True)
    click.echo(f"  r2med build run {folder} --dry-run", err=True)


@build_command.command("run", short_help="Run the steps of a plan, or resume them.")
@_FOLDER
@click.option("--until", default="", metavar="STEP", help="Stop after this step, such as read, rewrite or mine.")
@click.option("--partial", is_flag=True, help="Do not wait for people: build with the labels that they gave so far.")
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what each step would ask and cost.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@asking_options
@json_option()
def run_steps(
    folder: Path, until: str, partial: bool, dry_run: bool, max_cost: float | None, as_json: bool, **settings: Any
) -> None:
    """Run the steps of the plan in DIR, or go on where they were stopped; the task is DIR/task.

    What is finished is kept item by item: stopped at any moment, the same command goes on, and no reply is paid for
    twice. A changed setting makes again only what depends on it.

    Where people judge, the first run ends with the pool on the review desk, and a later one makes the task.
    """
    if dry_run and (until or partial):
        option = "--until" if until else "--partial"
        raise click.UsageError(f"{option} does not go with --dry-run, which shows every step")
    with asking(max_cost=max_cost, dry_run=dry_run, **settings) as executor:
        builder = Builder(folder, executor)
        if dry_run:
            show_foreseen(builder.estimate(), as_json)
            return
        built = builder.run(until, partial=partial)
    _report(built, as_json)
    if left := sum(count.left for count in built.counts):
        click.echo(f"note: {left:,} items have no answer that can be used; run the same command to ask again", err=True)
    _say_people(built)
    if built.task:
        click.echo(f"the task is in {built.task}; see: r2med run bm25 --tasks {built.task}", err=True)


@build_command.command("check", short_help="Judge the quality of a built task.")
@_FOLDER
@click.option(
    "--reask",
    type=Percent(),
    default=0.0,
    metavar="SHARE",
    help="Ask judges again about this share of pairs, such as 5%.",
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="DIR|FILE", help="Draw funnel, members and scores.")
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what asking again would take.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@click.option("--format", "form", type=click.Choice(["md"]), help="Write Markdown.")
@asking_options
@json_option()
def check_task(
    folder: Path, reask: float, plot: Path | None, dry_run: bool, form: str | None, as_json: bool, **settings: Any
) -> None:
    """Is the task that was built in DIR any good? A verdict by stated rules, and the figures behind it.

    How far questions are from their evidence; who found the positives, and how many were probably missed; what a
    system that was not asked has against it; whether questions repeat each other; baselines with intervals. With
    --reask, whether the judges say the same again. The card of the task gets the same report.

    \b
    Examples:
      r2med build check my-build --reask 20% --dry-run
      r2med build check my-build --reask 20%
    """
    if as_json and form:
        raise click.UsageError("--json and --format exclude each other")
    if dry_run and not reask:
        raise click.UsageError("--dry-run goes with --reask: nothing else is asked")
    if plot:
        check_chart_files(plot)
    built = read_built_task(folder)
    with asking(dry_run=dry_run, **settings) as executor:
        again = Rejudging(built, reask) if reask else None
        if dry_run and again:
            note = "Replies that cannot be read are asked for again on top. ? is a price that is not known."
            show_foreseen([again.estimate()], as_json, note)
            return
        health = check_health(built, executor, again)
    remark(health.notes)
    if as_json:
        write_json(health.as_dict())
    elif form:
        click.echo(health_markdown(health))
    else:
        show_health(health, output())
    card = refresh_card(built.folder, health)
    click.echo(f"the card is renewed: {card}" if card else f"note: {built.folder} has no card to renew", err=True)
    for path in save_health_plots(health, built.manifest["funnel"], plot) if plot else ():
        click.echo(f"the figure is in {path}", err=True)


@build_command.command("status", short_help="Show how many questions each step kept.")
@_FOLDER
@json_option()
def show_status(folder: Path, as_json: bool) -> None:
    """Show how many questions are left after each step of DIR, and why the others went."""
    built = status(folder)
    _report(built, as_json)
    _say_people(built)


@build_command.command("show", short_help="Show everything about one question.")
@_FOLDER
@click.argument("question", metavar="ID")
@click.option("--top", type=click.IntRange(0), metavar="N", help="Show only the N best candidates.")
@json_option()
def show_one(folder: Path, question: str, top: int | None, as_json: bool) -> None:
    """Show everything about the question ID of DIR: each step, each candidate, both scores, reasons and verdicts.

    Candidates with the highest scores come first.
    """
    history = show(folder, question, top)
    if as_json:
        write_json(history)
    else:
        show_question(history, output())


@build_command.command("publish", short_help="Push a built task to the hub.")
@_FOLDER
@click.option("--repo", required=True, metavar="ORG/NAME", help="The dataset on the hub; made if it is not there.")
@click.option("--private", is_flag=True, help="Make it visible to your organisation only.")
@click.option("--dry-run", is_flag=True, help="Check everything and show the files; push nothing.")
@json_option()
def publish_task(folder: Path, repo: str, private: bool, dry_run: bool, as_json: bool) -> None:
    """Push the task that was built in DIR to the hub, as a dataset that `datasets` and r2med read.

    Refused are a task that is not valid, texts without a stated licence, and a dev split that leaks into test. The
    token is that of HF_TOKEN or of `hf auth login`.

    \b
    Example:
      r2med build publish my-build --repo ward-7/handover --private
    """
    publication = publish(folder, repo, private=private, dry_run=dry_run)
    if as_json:
        write_json(publication)
        return
    Table.of([key("file", "name"), column("bytes", "size", human_size)], publication.files).show(output())
    if publication.url:
        click.echo(f"pushed to {publication.url}; read it with: r2med run bm25 --tasks hf:{repo}", err=True)
    else:
        click.echo(f"nothing was pushed; without --dry-run these files go to {repo}", err=True)


def _report(built: BuildProgress, as_json: bool) -> None:
    if as_json:
        write_json(built.as_dict())
    else:
        show_funnel(built.counts, output())


def _say_people(built: BuildProgress) -> None:
    """Say how far people are, and what to do next where pairs wait for them."""
    if (people := built.people) is None:
        return
    name, folder = people.review, built.folder
    judges = f" by {counted(len(people.people), 'person', 'people')}" if people.people else ""
    labels = f"{people.labelled:,} of {counted(people.pairs, 'pair')} labelled{judges}, {people.open:,} wait for people"
    click.echo(f"review {name}: {labels}", err=True)
    if people.open:
        click.echo(f'  r2med review invite {name} "Dr. Ada"   prints the link of a reviewer', err=True)
        click.echo("  r2med serve   must run while they judge", err=True)
        click.echo(f"  r2med build run {folder}   goes on when all is judged; with --partial, now", err=True)


_OF_QUESTIONS = ("read", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "select")
_MOST_OVERLAPS = 16


def show_funnel(counts: Sequence[Count], console: Console) -> None:
    """Print how many items each step kept and what it took, and below why items were dropped, failed or are marked."""
    table = Table(key("step"), *numbers("items", "kept", "requests", "dollars"))
    for count in counts:
        asked = [f"{count.spent.requests:,}", money(count.spent.cost)] if count.spent.requests else ["", ""]
        table.add(count.step, f"{count.items:,}", f"{count.kept:,}", *asked)
    table.show(console)
    for count in counts:
        for note in remarks(count):
            say(console, f"{count.step}: {note}")


def show_question(history: Mapping[str, Any], console: Console) -> None:
    """Print the history of one question."""

    def line(content: object) -> str:
        if isinstance(content, dict):
            content = "; ".join(f"{name}: {value}" for name, value in content.items())
        return " | ".join(map(str, content)) if isinstance(content, list | tuple) else str(content)

    console.print(history["id"], style="bold")
    for step, value in history["steps"].items():
        for name, content in value.items():
            repeated = name == "id" or (step == "read" and name == "text")
            if not repeated and content not in ("", [], None):
                console.print(f"{step}: {name}: {line(content)}")
    if history["dropped"]:
        console.print(f"dropped: {history['dropped']}", style="bold")
    for number, candidate in enumerate(history["candidates"], 1):
        grades = "?"
        if "answers" in candidate:
            grades = f"answers {candidate['answers']:g}, supports {candidate['supports']:g}"
        verdict = candidate["verdict"] or "not selected yet"
        console.print(f"\n{number}. {candidate['passage']}: {verdict} ({grades})", style="bold")
        ways = (f"{w['system']} by {w['view']} at {w['rank']}" if w["rank"] else "source" for w in candidate["found"])
        console.print(f"   found: {'; '.join(ways)}")
        for opinion in candidate.get("opinions", ()):
            mark = " (not in the passage)" if opinion["quote_state"] == "invented" else ""
            quote = f' "{opinion["quote"]}"{mark}' if opinion["quote"] else ""
            scores = f"{opinion['answers']:g}, {opinion['supports']:g}"
            reason = f": {opinion['reason']}" if opinion["reason"] or quote else ""
            console.print(f"   {opinion['judge']}: {scores}{reason}{quote}")
        for name in ("dropped", "failed"):
            if candidate.get(name):
                console.print(f"   {candidate[name]}")


def show_health(health: TaskHealth, console: Console) -> None:
    """Print the report on a task's health."""
    # The question that a check asks is for pages: on a terminal its name and figure have to do.
    verdict, *others = health_sections(health)
    short = replace(verdict, headings=verdict.headings[:-1], rows=[row[:-1] for row in verdict.rows])
    show_sections([short, *others], console)


def funnel_chart(funnel: Sequence[Mapping[str, Any]]) -> FunnelChart:
    """Build the funnel of a build from its counts."""
    counts = [count for count in funnel if count["step"] in _OF_QUESTIONS]
    steps = [FunnelStep("questions", count["items"], "") for count in counts[:1]]
    for count in counts:
        why, number = max(count["dropped"].items(), key=lambda entry: entry[1], default=("", 0))
        steps.append(FunnelStep(count["step"], count["kept"], f"{number:,} {why}" if number else ""))
    return FunnelChart("What is left of the questions after each step", steps)


def member_chart(health: TaskHealth) -> UpSetChart:
    """Build the chart of which members found the same positives."""
    coverage, members = health.coverage, [member.name for member in health.coverage.members]

    def label(finders: Sequence[str]) -> str:
        if not finders:
            return "no member, but the known source"
        return "all" if len(finders) == len(members) > 1 else " and ".join(finders) + " alone" * (len(finders) == 1)

    columns = [
        UpSetColumn(tuple(n in overlap.members for n in members), overlap.positives, label(overlap.members))
        for overlap in coverage.overlaps
    ]
    drawn, others = columns[:_MOST_OVERLAPS], columns[_MOST_OVERLAPS:]
    totals, rest = [member.found.part for member in coverage.members], sum(column.positives for column in others)
    return UpSetChart("Who found the positives", "positives found by just these", members, totals, drawn, rest)


def score_chart(health: TaskHealth) -> ScoreChart:
    """Build the chart of the scores of all judged pairs."""
    bubbles = [ScoreBubble(score.answers, score.supports, score.pairs, score.verdict) for score in health.scores]
    cut, band = ((health.cuts[f"{of}answers"], health.cuts[f"{of}supports"]) for of in ("", "band_"))
    values = [value for bubble in bubbles for value in (bubble.x, bubble.y)] + [*cut, *band]
    axes = ("answers: states or establishes the answer", "supports: holds knowledge that it rests on")
    return ScoreChart("Scores of judged pairs", *axes, bubbles, cut, band, (min(values), max(values)))


def save_health_plots(health: TaskHealth, funnel: Sequence[Mapping[str, Any]], place: Path) -> list[Path]:
    """Write the figures: DIR/funnel.svg and so on, or NAME-funnel.png and so on for NAME.png."""
    charts = {"funnel": funnel_chart(funnel), "members": member_chart(health), "scores": score_chart(health)}
    return save_charts(charts, place)

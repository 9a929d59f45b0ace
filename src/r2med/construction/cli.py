"""`r2med build`: a judged task from the user's questions and documents."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from r2med.cli.execution import asking, asking_options, show_foreseen
from r2med.cli.options import Percent, json_option, remark, write_json
from r2med.construction.builder import Builder, init
from r2med.construction.health import check_health
from r2med.construction.health_report import health_markdown, refresh_card
from r2med.construction.pool import read_built_task
from r2med.construction.progress import BuildProgress, show, status
from r2med.construction.publish import publish
from r2med.construction.rejudge import Rejudging
from r2med.construction.tables import save_health_plots, show_funnel, show_health, show_question
from r2med.formatting import human_size
from r2med.render.charts.files import check_chart_files
from r2med.render.table import Table, column, key, output

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


class _BuildGroup(click.Group):
    """Group of the sub-verbs of this study, and of `translate`, which is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the sub-verbs."""
        return sorted([*self.commands, "translate"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a sub-verb."""
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
def init_folder(folder: Path) -> None:
    """Write plan.toml, guideline.md and an example into a new folder DIR.

    \b
    Example:
      r2med build init my-task
    """
    for path in init(folder):
        click.echo(f"wrote {path}")
    click.echo(f"now say in {folder}/plan.toml where your questions and documents are, and who judges; then:", err=True)
    click.echo(f"  r2med build run {folder} --dry-run", err=True)


@build_command.command("run", short_help="Run the steps of a plan, or resume them.")
@_FOLDER
@click.option("--until", default="", metavar="STEP", help="Stop after this step, such as read, rewrite or mine.")
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what each step would ask and cost.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@asking_options
@json_option()
def run_steps(folder: Path, until: str, dry_run: bool, max_cost: float | None, as_json: bool, **settings: Any) -> None:
    """Run the steps of the plan in DIR, or go on where they were stopped; the task is DIR/task.

    What is finished is kept item by item: stopped at any moment, the same command goes on, and no reply is paid for
    twice. A changed setting makes again only what depends on it.
    """
    if dry_run and until:
        raise click.UsageError("--until does not go with --dry-run, which shows every step")
    with asking(max_cost=max_cost, dry_run=dry_run, **settings) as executor:
        builder = Builder(folder, executor)
        if dry_run:
            show_foreseen(builder.estimate(), as_json)
            return
        built = builder.run(until)
    _report(built, as_json)
    left = sum(count.left for count in built.counts)
    if left:
        click.echo(f"note: {left:,} items have no answer that can be used; run the same command to ask again", err=True)
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
    _report(status(folder), as_json)


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

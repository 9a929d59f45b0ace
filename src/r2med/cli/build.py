"""`r2med build`: a judged task from one's own questions and documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from r2med.build.builder import Builder, BuildProgress, init, show, status
from r2med.cli.asking import asking, asking_options
from r2med.cli.options import json_option, messages, output, write_json
from r2med.pipeline.engine import Engine
from r2med.render.build_tables import show_estimate, show_funnel, show_question

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.group("build")
def command() -> None:
    """Make a judged task from your own questions and documents.

    `init` writes a plan with comments, `run` runs its steps and goes on where it was stopped, `status` shows how many
    questions are left after each step and why the others went, `show` everything about one question.

    \b
    Examples:
      r2med build init my-build
      r2med build --help
    """


@command.command("init")
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


@command.command("run")
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
    builder = Builder(folder, Engine(messages()))
    with asking(max_cost=max_cost, **settings):
        if dry_run:
            foreseen = builder.estimate()
            if as_json:
                write_json([step.as_dict() for step in foreseen])
            else:
                show_estimate(foreseen, output())
            return
        built = builder.run(until)
    _report(built, as_json)
    failed = sum(sum(count.failed.values()) for count in built.counts)
    if failed:
        click.echo(f"note: {failed:,} items were not answered; run the same command to ask again", err=True)
    if built.task:
        click.echo(f"the task is in {built.task}; see: r2med run bm25 --tasks {built.task}", err=True)


@command.command("status")
@_FOLDER
@json_option()
def show_status(folder: Path, as_json: bool) -> None:
    """Show how many questions are left after each step of DIR, and why the others went."""
    _report(status(folder), as_json)


@command.command("show")
@_FOLDER
@click.argument("question", metavar="ID")
@click.option("--top", type=click.IntRange(0), metavar="N", help="Show only the N best candidates.")
@json_option()
def show_one(folder: Path, question: str, top: int | None, as_json: bool) -> None:
    """Show everything about the question ID of DIR: each step, each candidate, both scores, reasons and verdicts.

    Candidates with the highest scores come first.
    """
    found = show(folder, question, top)
    if as_json:
        write_json(found)
        return
    show_question(found, output())


def _report(built: BuildProgress, as_json: bool) -> None:
    if as_json:
        write_json(built.as_dict())
        return
    show_funnel(built, output())

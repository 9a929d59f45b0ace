"""`r2med review`: have people and models judge passages, see how far they agree, and write what they said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from r2med.cli.options import ManyValues, Percent, json_option, output, remark, write_json
from r2med.cli.review_labels import export_command, import_command, judge_command
from r2med.diagnose.labels import read_labels
from r2med.errors import counted
from r2med.render.agreement_report import AGREEMENT_FORMATS, BREAKDOWNS, show_agreement
from r2med.render.review_tables import show_progress, show_reviews
from r2med.review.drawing import QUEUES
from r2med.review.grading_scale import DEFAULT_SCALE, read_guideline, read_scale
from r2med.review.invitations import invite, join_path, withdraw
from r2med.review.new_review import ReviewSettings, new_review
from r2med.review.review_agreement import review_agreement
from r2med.review.review_progress import every_progress, review_progress
from r2med.review.review_rows import ADJUDICATOR, REVIEWER
from r2med.review.review_store import ReviewStore
from r2med.runs.ledger import Ledger

_NAME = click.argument("name", metavar="NAME")
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("review")
def command() -> None:
    """Have people and models judge passages, blind and one at a time, and keep every decision.

    `new` makes a project, `invite` prints a link for a person, who opens it in a browser while `r2med serve` runs,
    `show` tells how far everybody is, `agreement` how far they agree. `judge` has a model label the same items,
    `import` brings labels in from elsewhere, `export` writes what came of it all.

    \b
    Examples:
      r2med review new pilot --from sample/Biology bm25 --items 20
      r2med review invite pilot "Dr. Ada"
      r2med review show pilot
    """


@command.command("new", short_help="Draw the passages of a new project.", cls=ManyValues)
@_NAME
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="TASK|RUN|BUILD...",
    help="What to draw from: tasks, systems or runs of the ledger, folders of `r2med build`.",
)
@click.option("--queue", type=click.Choice(QUEUES), default=QUEUES[0], show_default=True, help="How to draw.")
@click.option("--items", type=click.IntRange(1), default=100, show_default=True, help="How many passages.")
@click.option("--overlap", type=Percent(), default="20%", show_default=True, help="Share that everybody judges.")
@click.option("--repeat", type=Percent(), default="5%", show_default=True, help="Share that a person sees twice.")
@click.option("--gold", type=_FILE, metavar="FILE", help="Judgements known to be right, dealt in among the others.")
@click.option("--scale", type=_FILE, metavar="FILE", help="Grades and their meanings, as TOML.")
@click.option("--guideline", type=_FILE, metavar="FILE", help="How to judge, as text.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of every draw and order.")
@click.option("--open-answer", is_flag=True, help="Show the gold answer from the start; every export says so.")
@json_option()
def create(name: str, sources: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Make the project NAME: draw passages, and keep with each how it was drawn.

    `random` draws from every judged pair and all that the runs have among their first ten; only this part may feed an
    estimate. `disagreements` takes what runs and labels (or the judges of a build) say the opposite of, `near-cut`
    what stands just above or below the cut, `holes` what runs found and nobody judged, `mixed` half at random and
    the rest of all three.

    \b
    Examples:
      r2med review new first --from sample/Biology bm25 --items 20
      r2med review new second --from sample/MedQA-Diag bm25 bm25-classic --queue mixed --items 30 --overlap 50%
    """
    scale = read_scale(given["scale"]) if given["scale"] else DEFAULT_SCALE
    guideline = read_guideline(given["guideline"]) if given["guideline"] else ""
    settings = ReviewSettings(**{**given, "scale": scale, "guideline": guideline})
    with Ledger() as ledger:
        made = new_review(ledger, name, sources, settings)
    remark(made.notes)
    with made.store as store:
        progress = review_progress(store)
    if as_json:
        write_json(progress.as_dict())
        return
    show_progress(progress, output())
    click.echo(f"now invite somebody: r2med review invite {name} PERSON", err=True)


@command.command("list")
@json_option()
def list_projects(as_json: bool) -> None:
    """List the projects of this machine.

    \b
    Example:
      r2med review list
    """
    found, broken = every_progress()
    remark(broken)
    if as_json:
        write_json([each.as_dict() for each in found])
    elif found:
        show_reviews(found, output())
    else:
        click.echo("there is no review; make one: r2med review new NAME --from TASK RUN")


@command.command("show", short_help="Show how far a project is.")
@_NAME
@json_option()
def show_project(name: str, as_json: bool) -> None:
    """Show how far the project NAME is: items, people, seconds, agreement so far, and what is unclear."""
    with ReviewStore.open(name) as store:
        progress = review_progress(store)
    if as_json:
        write_json(progress.as_dict())
        return
    show_progress(progress, output())


@command.command("invite", short_help="Print a link for a reviewer.")
@_NAME
@click.argument("person")
@click.option("--adjudicator", is_flag=True, help="To decide where others disagree.")
@click.option("--url", default="http://127.0.0.1:8421", show_default=True, help="Where `r2med serve` is reached.")
def invite_person(name: str, person: str, adjudicator: bool, url: str) -> None:
    """Print a link with a secret that opens the desk of NAME for PERSON, and nothing else.

    The secret is shown once and kept only as a hash. Whoever has the link is PERSON: send it as you would a password.

    \b
    Examples:
      r2med review invite pilot "Dr. Grace"
      r2med review invite pilot "Dr. Edsger" --adjudicator
    """
    with ReviewStore.open(name) as store:
        invited = invite(store, person, ADJUDICATOR if adjudicator else REVIEWER)
    click.echo(f"{url.rstrip('/')}{join_path(name, invited.secret)}")
    click.echo("the link is shown this once; r2med serve must run for it to work", err=True)


@command.command("withdraw", short_help="Disable a reviewer's links.")
@_NAME
@click.argument("person")
def withdraw_person(name: str, person: str) -> None:
    """Let the links of PERSON open nothing any more; their decisions stay, what they had not begun goes to others."""
    with ReviewStore.open(name) as store:
        done = withdraw(store, person)
    released = f"; {counted(done.released, 'item')} went back to the others" if done.released else ""
    click.echo(f"{counted(done.links, 'link')} of {person} withdrawn{released}")


@command.command("agreement", short_help="Measure how far reviewers agree.", cls=ManyValues)
@_NAME
@click.option("--by", multiple=True, type=click.Choice(BREAKDOWNS), help="Break the figures down, too.")
@click.option("--labels", type=_FILE, metavar="FILE", help="Classes of questions, as `r2med label` writes them.")
@click.option("--format", "form", type=click.Choice(list(AGREEMENT_FORMATS)), help="Write Markdown or LaTeX.")
@json_option()
def agreement(name: str, by: tuple[str, ...], labels: Path | None, form: str | None, as_json: bool) -> None:
    """Say how far the reviewers of NAME agree, and how right the task's own labels are.

    Raw agreement, which grades are given for which, Cohen's kappa, Krippendorff's alpha, Gwet's AC1 and AC2, each
    with a 95% interval over questions and a sentence on what it means; how far each person agrees with themselves
    on items that came twice, and with the gold items. Then how many of the labels are right and how many relevant
    pairs they miss, from the items that were drawn at random and from nothing else.

    \b
    Examples:
      r2med review agreement pilot
      r2med review agreement pilot --by pair slice time
      r2med review agreement pilot --format latex
    """
    if as_json and form:
        raise click.UsageError("--json and --format exclude each other")
    classes = read_labels(labels) if labels else None
    with ReviewStore.open(name) as store:
        found = review_agreement(store, classes)
    remark(found.notes)
    if as_json:
        write_json(found.as_dict())
    elif form:
        click.echo(AGREEMENT_FORMATS[form](found, by), nl=False)
    else:
        show_agreement(found, output(), by)


for _each in (export_command, judge_command, import_command):
    command.add_command(_each)

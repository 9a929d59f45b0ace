"""`r2med review`: projects of passages to judge, links for reviewers, agreement, and labels in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from r2med.cli.execution import asking, asking_options
from r2med.cli.options import ManyValues, Percent, json_option, remark, write_json
from r2med.data.labels import read_labels
from r2med.formatting import counted
from r2med.llm.budget import Estimate
from r2med.llm.cards import find_model
from r2med.render.sections import write_sections
from r2med.render.table import output
from r2med.reviews.access import invite, join_path, withdraw
from r2med.reviews.agreement import review_agreement
from r2med.reviews.deciding import progress_of
from r2med.reviews.imports import KINDS, OF_JUDGEMENTS, OF_REVIEW, ImportSettings, import_labels, parse_grades
from r2med.reviews.labels import FORMS, RULES, ExportSettings, export_labels
from r2med.reviews.model import ModelReviewer
from r2med.reviews.progress import every_progress
from r2med.reviews.rows import ADJUDICATOR, REVIEWER
from r2med.reviews.sampling import QUEUES, ReviewSettings, new_review
from r2med.reviews.scale import DEFAULT_SCALE, read_guideline, read_scale
from r2med.reviews.store import ReviewStore
from r2med.reviews.tables import BREAKDOWNS, agreement_sections, show_progress, show_reviews
from r2med.runs.ledger import Ledger

_NAME = click.argument("name", metavar="NAME")
_OUT = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("review")
def review_command() -> None:
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


@review_command.command("export", short_help="Write the labels of a project.", cls=ManyValues)
@_NAME
@click.option("--to", "form", type=click.Choice(FORMS), required=True, help="In which form.")
@click.option("--out", type=_OUT, required=True, metavar="PATH", help="The file, or the folder of a task.")
@click.option(
    "--rule", type=click.Choice(list(RULES)), default="majority", show_default=True, help="Where they differ."
)
@click.option(
    "--reviewer", "reviewers", multiple=True, metavar="NAME...", help="Whose labels count (default: people's)."
)
@click.option("--binary", is_flag=True, help="Write every relevant grade as 1.")
@click.option("--task", default="", metavar="TASK", help="Which task, of a review of several.")
@json_option()
def export_command(name: str, form: str, out: Path, as_json: bool, **given: Any) -> None:
    """Write the labels of NAME: an adjudicator's first, then what the rule makes of the reviewers' grades.

    Judgements in TREC's, R2MED's or BEIR's form; `csv` has every single label, a row each; `nuggets` those of a
    review of nuggets that are not wrong, for `r2med rag --nuggets`; `task` writes a new
    version of the task, with the labels that were reviewed in place of its own, a list of every change and a
    fingerprint of its own. Grades below the one that the scale calls relevant are written as 0, that grade as 1.

    \b
    Examples:
      r2med review export pilot --to trec --out pilot.qrels
      r2med review export pilot --to csv --out pilot.csv
      r2med review export pilot --to task --out Biology-v2
    """
    settings = ExportSettings(form, **given)
    with ReviewStore.open(name) as store:
        done = export_labels(store, out, settings)
    remark(done.notes)
    if as_json:
        write_json(done)
        return
    click.echo(f"{counted(done.labels, 'label')} in {done.path}")
    if done.fingerprint:
        changes = f"{done.changed:,} changed, {done.added:,} new"
        click.echo(f"{changes}; fingerprint {done.fingerprint}, before {done.before}")
        click.echo(f"see: r2med run bm25 --tasks {done.path}", err=True)


@review_command.command("judge", short_help="Label every item by a language model.", cls=ManyValues)
@_NAME
@click.option("--llm", required=True, metavar="MODEL", help="Such as gpt-4o, NAME@http://host:port/v1 or local.")
@click.option("--as", "person", default="", metavar="NAME", help="What it is called here (default: as the model).")
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what asking would take.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@click.option("--max-tokens", type=click.IntRange(0), help="Stop before more tokens are used, read and written.")
@asking_options
@json_option()
def judge_command(name: str, llm: str, person: str, dry_run: bool, as_json: bool, **settings: Any) -> None:
    """Let a model label every item of NAME, by the same guideline and scale as people, as one more reviewer.

    Its reason and the stretch that it quotes are kept with the grade. A reply without a grade of the scale is counted
    and is not a label. Replies are kept: stopped at any moment, the same command goes on and pays for nothing twice.

    \b
    Examples:
      r2med review judge pilot --llm gpt-4o --dry-run
      r2med review judge pilot --llm gpt-4o --max-cost 5
    """
    with ReviewStore.open(name) as store, asking(dry_run=dry_run, **settings) as executor:
        reviewer = ModelReviewer(store, find_model(llm), person)
        done = reviewer.estimate() if dry_run else reviewer.judge(executor)
    if as_json:
        write_json(done)
        return
    if isinstance(done, Estimate):
        cost = "unknown" if done.cost is None else f"about ${done.cost:.4f}"
        click.echo(f"{done.requests:,} requests, {done.cached:,} answered already; cost: {cost}")
        return
    price = "at an unknown price" if done.cost is None else f"for ${done.cost:.4f}"
    click.echo(f"{done.reviewer}: {done.graded:,} of {counted(done.items, 'item')} graded {price}")
    if done.unread:
        click.echo(
            f"{done.unread:,} replies could not be read and count as nothing, the first: {done.first_unread!r};"
            " the same command asks for them again"
        )
    if done.failed:
        click.echo(f"{done.failed:,} requests had no reply; the same command asks them again")
    if done.invented:
        click.echo(f"{done.invented:,} quotes are not in their passage; the grade stands, nothing is marked")


@review_command.command("import", short_help="Add labels from a file.")
@_NAME
@click.argument("file", type=_OUT)
@click.option("--as", "person", required=True, metavar="NAME", help="What the reviewer is called here.")
@click.option("--grades", default="", metavar="A=B,...", help="What a label of the file means here, such as 1=2.")
@click.option(
    "--scale",
    type=click.Choice([OF_JUDGEMENTS, OF_REVIEW]),
    help="Whose numbers the file has: judgements', where 1 is relevant, or the grades of the review.",
)
@click.option("--kind", type=click.Choice(KINDS), help="Who made the labels; without it they count as neither's.")
@click.option("--question", default="", metavar="NAME", help="Which question of an annotation tool is the grade.")
@click.option("--task", default="", metavar="TASK", help="Which task of the review the file is about.")
@json_option()
def import_command(name: str, file: Path, person: str, grades: str, as_json: bool, **given: str | None) -> None:
    """Let the labels in FILE be one more reviewer of NAME, or several where the file has several.

    FILE is any file of judgements (TREC, JSON lines, tab-separated, CSV, parquet), with or without a column of
    reviewers; the JSON export of Label Studio; or records of Argilla as JSON or JSON lines. The records of such tools
    must have the ids of query and document (query_id, doc_id) among their data, fields or metadata. Labels of pairs
    that are not items of the review are counted and left out.

    Labels come back as `review export --to csv` wrote them, by reviewer and by task. Judgements call 1 relevant, a
    review may call it otherwise: where a file could mean either, `--scale` says which it is.

    \b
    Examples:
      r2med review import pilot second.qrels --as "First round" --scale judgements
      r2med review import pilot qrels/test.tsv --as "the paper" --grades 1=2
    """
    settings = ImportSettings(person, parse_grades(grades), **{name: value or "" for name, value in given.items()})
    with ReviewStore.open(name) as store:
        done = import_labels(store, file, settings)
    if as_json:
        write_json(done)
        return
    for reviewer, count in done.reviewers.items():
        click.echo(f"{reviewer}: {counted(count, 'label')}")
    if done.unknown:
        click.echo(f"{done.unknown:,} labels are of no item of {name}, the first in {done.first_unknown}", err=True)
    if done.skipped:
        click.echo(f"{done.skipped:,} answers are cancelled, discarded or drafts and left out", err=True)


@review_command.command("new", short_help="Draw the passages of a new project.", cls=ManyValues)
@_NAME
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="TASK|RUN|BUILD|FILE...",
    help="What to draw from: tasks, systems or runs of the ledger, folders of `r2med build`; or a file of nuggets.",
)
@click.option("--queue", type=click.Choice(QUEUES), default=QUEUES[0], show_default=True, help="How to draw.")
@click.option("--items", type=click.IntRange(1), help="How many, except for `decide` and nuggets (default: 100).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What `decide` compares by.")
@click.option("--error", type=Percent(), default="5%", show_default=True, help="Of the verdicts of `decide`, at most.")
@click.option("--fresh", is_flag=True, help="Let `decide` ignore the labels of the task.")
@click.option("--overlap", type=Percent(), default="20%", show_default=True, help="Share that everybody judges.")
@click.option("--repeat", type=Percent(), default="5%", show_default=True, help="Share that a person sees twice.")
@click.option("--gold", type=_FILE, metavar="FILE", help="Judgements known to be right, dealt in among the others.")
@click.option("--scale", type=_FILE, metavar="FILE", help="Grades and their meanings, as TOML.")
@click.option("--guideline", type=_FILE, metavar="FILE", help="How to judge, as text.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of every draw and order.")
@click.option("--open-answer", is_flag=True, help="Show the gold answer from the start; every export says so.")
@click.option("--aspects", is_flag=True, help="Ask which of the question's aspects a passage covers.")
@json_option()
def create(name: str, sources: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Make the project NAME: draw passages, and keep with each how it was drawn.

    `random` draws from every judged pair and all that the runs have among their first ten; only this part may feed an
    estimate. `disagreements` takes what runs and labels (or the judges of a build) say the opposite of, `near-cut`
    what stands just above or below the cut, `holes` what runs found and nobody judged, `unverified` relevant documents
    that every verifier of the last `r2med diagnose --verify` ranks last, `mixed` half at random and the rest of the
    first three of these. `decide` deals, out of all that the named systems have among their first ten, the passage
    whose label tells most about which system is better, until that is sure but for `--error`.

    A file of nuggets, as `r2med rag --write-nuggets` makes it, has one fact for each item, and no passages: it is
    wrong, okay or vital, with the gold answer in view. `review export --to nuggets` writes what people left of it.

    \b
    Examples:
      r2med review new first --from sample/Biology bm25 --items 20
      r2med review new second --from sample/MedQA-Diag bm25 bm25-classic --queue mixed --items 30 --overlap 50%
      r2med review new which --from sample/Biology bm25 wordllama --queue decide
    """
    scale = read_scale(given["scale"]) if given["scale"] else DEFAULT_SCALE
    guideline = read_guideline(given["guideline"]) if given["guideline"] else ""
    settings = ReviewSettings(**{**given, "scale": scale, "guideline": guideline})
    with Ledger() as ledger:
        review, notes = new_review(ledger, name, sources, settings)
    remark(notes)
    with review as store:
        progress = progress_of(store)
    if as_json:
        write_json(progress)
        return
    show_progress(progress, output())
    click.echo(f"now invite somebody: r2med review invite {name} PERSON", err=True)


@review_command.command("list")
@json_option()
def list_projects(as_json: bool) -> None:
    """List the projects of this machine.

    \b
    Example:
      r2med review list
    """
    reviews, broken = every_progress()
    remark(broken)
    if as_json:
        write_json(reviews)
    elif reviews:
        show_reviews(reviews, output())
    else:
        click.echo("there is no review; make one: r2med review new NAME --from TASK RUN")


@review_command.command("show", short_help="Show how far a project is.")
@_NAME
@json_option()
def show_project(name: str, as_json: bool) -> None:
    """Show how far the project NAME is: items, people, seconds, agreement so far, and what is unclear."""
    with ReviewStore.open(name) as store:
        progress = progress_of(store)
    if as_json:
        write_json(progress)
    else:
        show_progress(progress, output())


@review_command.command("invite", short_help="Print a link for a reviewer.")
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
        secret = invite(store, person, ADJUDICATOR if adjudicator else REVIEWER)
    click.echo(f"{url.rstrip('/')}{join_path(name, secret)}")
    click.echo("the link is shown this once; r2med serve must run for it to work", err=True)


@review_command.command("withdraw", short_help="Disable a reviewer's links.")
@_NAME
@click.argument("person")
def withdraw_person(name: str, person: str) -> None:
    """Let the links of PERSON open nothing any more; their decisions stay, what they had not begun goes to others."""
    with ReviewStore.open(name) as store:
        links, items = withdraw(store, person)
    released = f"; {counted(items, 'item')} went back to the others" if items else ""
    click.echo(f"{counted(links, 'link')} of {person} withdrawn{released}")


@review_command.command("agreement", short_help="Measure how far reviewers agree.", cls=ManyValues)
@_NAME
@click.option("--by", multiple=True, type=click.Choice(BREAKDOWNS), help="Break the figures down, too.")
@click.option("--labels", type=_FILE, metavar="FILE", help="Classes of questions, as `r2med label` writes them.")
@click.option("--format", "form", type=click.Choice(["md", "latex"]), help="Write Markdown or LaTeX.")
@json_option()
def show_agreement(name: str, by: tuple[str, ...], labels: Path | None, form: str | None, as_json: bool) -> None:
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
        agreement = review_agreement(store, classes)
    remark(agreement.notes)
    if as_json:
        write_json(agreement.as_dict())
    else:
        write_sections(form, f"Agreement in {name}", agreement_sections(agreement, by), agreement.notes)

"""Labels into and out of a review: `r2med review export`, `judge` and `import`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from r2med.cli.asking import asking, asking_options
from r2med.cli.options import ManyValues, json_option, remark, write_json
from r2med.errors import counted
from r2med.llm.llm_cards import find_model
from r2med.review.export_labels import FORMS, ExportSettings, export_labels
from r2med.review.label_imports import KINDS, OF_JUDGEMENTS, OF_REVIEW, ImportSettings, import_labels, parse_grades
from r2med.review.model_reviewer import ModelReviewer
from r2med.review.resolved_labels import RULES
from r2med.review.review_store import ReviewStore

_NAME = click.argument("name", metavar="NAME")
_OUT = click.Path(path_type=Path)


@click.command("export", short_help="Write the labels of a project.", cls=ManyValues)
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

    Judgements in TREC's, R2MED's or BEIR's form; `csv` has every single label, a row each; `task` writes a new
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
        write_json(done.as_dict())
        return
    click.echo(f"{counted(done.labels, 'label')} in {done.path}")
    if done.fingerprint:
        click.echo(
            f"{done.changed:,} changed, {done.added:,} new; fingerprint {done.fingerprint}, before {done.before}"
        )
        click.echo(f"see: r2med run bm25 --tasks {done.path}", err=True)


@click.command("judge", short_help="Label every item by a language model.", cls=ManyValues)
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
    and is no label. Replies are kept: stopped at any moment, the same command goes on and pays for nothing twice.

    \b
    Examples:
      r2med review judge pilot --llm gpt-4o --dry-run
      r2med review judge pilot --llm gpt-4o --max-cost 5
    """
    with ReviewStore.open(name) as store, asking(dry_run=dry_run, **settings) as engine:
        reviewer = ModelReviewer(store, find_model(llm), person)
        if dry_run:
            guess = reviewer.estimate()
            _show_estimate(asdict(guess), as_json)
            return
        done = reviewer.judge(engine)
    if as_json:
        write_json(done.as_dict())
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


def _show_estimate(guess: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(guess)
        return
    cost = "unknown" if guess["cost"] is None else f"about ${guess['cost']:.4f}"
    click.echo(f"{guess['requests']:,} requests, {guess['cached']:,} answered already; cost: {cost}")


@click.command("import", short_help="Add labels from a file.")
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
    that are no items of the review are counted and left out.

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
        write_json(done.as_dict())
        return
    for reviewer, count in done.reviewers.items():
        click.echo(f"{reviewer}: {counted(count, 'label')}")
    if done.unknown:
        click.echo(f"{done.unknown:,} labels are of no item of {name}, the first in {done.first_unknown}", err=True)
    if done.skipped:
        click.echo(f"{done.skipped:,} answers are cancelled, discarded or drafts and left out", err=True)

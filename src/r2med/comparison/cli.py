"""`r2med compare`: is one system better than another?"""

from __future__ import annotations

from collections.abc import Sequence

import click

from r2med.cli.options import ManyValues, json_option, remark, write_json
from r2med.comparison.study import compare, plan_queries
from r2med.comparison.tables import comparison_csv, comparison_sections, plan_sections
from r2med.data.tasks import resolve
from r2med.measure.metrics import Measure
from r2med.render.sections import write_sections
from r2med.render.table import output
from r2med.runs.ledger import Ledger
from r2med.translation.drop import language_drops, show_drops

_POINTS = 2.0  # the difference that is planned for where none is named


@click.command("compare", cls=ManyValues)
@click.argument("systems", nargs=-1, required=True, metavar="A B [C ...]")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all they share).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to compare by.")
@click.option("--languages", is_flag=True, help="Each system by itself: what asking in other languages costs it.")
@click.option("--by-task", is_flag=True, help="Of several pairs, show each by task, too.")
@click.option("--plan", is_flag=True, help="How many queries a difference needs to be shown with 80% power.")
@click.option(
    "--difference",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="POINTS",
    help="The difference to plan for, of 100 points.  [default: 2]",
)
@click.option("--format", "form", type=click.Choice(["md", "latex", "csv"]), help="Write Markdown, LaTeX or CSV.")
@json_option()
def compare_command(
    systems: tuple[str, ...], tasks: tuple[str, ...], measure: str, form: str | None, as_json: bool,
    difference: float | None, **given: bool,
) -> None:  # fmt: skip
    """Is one system better than another, and how sure is that? Paired by query, from the runs of the ledger.

    A system is its spec or an alias, the id of one of its runs, or an experiment file, which stands for all its systems
    (FILE.toml:NAME for one of them). Two systems are compared task by task, more than two as a matrix of all pairs.

    Shown are a randomisation test (exact for up to 16 queries; corrected after Holm when there are several pairs), the
    difference with the 95% interval of what that test does not reject, a paired t-test, wins, ties and losses, the
    effect size, and the smallest difference that so many queries show with 80% power. Intervals are not corrected for
    several pairs or tasks.

    With --plan, nothing is compared: from the spread of the two systems' differences follows how many queries of the
    same kind would show a difference of --difference points with 80% power.

    With --languages, each system on translated tasks is compared with itself on their source, over the questions that
    both have.

    \b
    Examples:
      r2med compare bm25 bm25-classic
      r2med compare bm25 bm25-classic --plan --difference 2
      r2med compare bm25 bm25-classic "rrf(bm25, bm25-classic)" --tasks sample --measure Recall@100
    """
    if as_json and form:
        raise click.UsageError("--json and --format exclude each other")
    if difference is not None and not given["plan"]:
        raise click.UsageError("--difference belongs to --plan")
    if given["plan"] and (form == "csv" or given["by_task"]):
        raise click.UsageError("--plan shows every task anyway, and goes with --format md, --format latex and --json")
    if given["languages"]:
        if form or given["by_task"] or given["plan"]:
            raise click.UsageError("--languages goes with neither --format, --by-task nor --plan")
        _compare_languages(systems, tasks, str(Measure.parse(measure)), as_json)
        return
    if len(systems) < 2 and not systems[0].endswith(".toml"):
        raise click.UsageError("name at least two systems")
    with Ledger() as ledger:
        names = [task.name for task in resolve(tasks)]
        comparisons = compare(ledger, systems, str(Measure.parse(measure)), names)
    remark(dict.fromkeys(note for one in comparisons for note in one.notes))
    if given["plan"]:
        plans = [plan_queries(one, (difference or _POINTS) / 100) for one in comparisons]
        if as_json:
            write_json(plans)
        else:
            write_sections(form, "Plan", plan_sections(plans))
    elif as_json:
        write_json([one.as_dict() for one in comparisons])
    elif form == "csv":
        click.echo(comparison_csv(comparisons), nl=False)
    else:
        write_sections(form, "Comparison", comparison_sections(comparisons, measure, by_task=given["by_task"]))


def _compare_languages(systems: Sequence[str], tasks: Sequence[str], measure: str, as_json: bool) -> None:
    if not tasks:
        raise click.UsageError("--languages needs --tasks: the folder of the translations, or cure/es")
    with Ledger() as ledger:
        drops, notes = language_drops(ledger, systems, resolve(tasks), measure)
    remark(notes)
    if as_json:
        write_json([drop.as_dict() for drop in drops])
    elif drops:
        show_drops(drops, measure, output())

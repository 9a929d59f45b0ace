"""`r2med board`: published figures and local runs in one ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from r2med.cli.options import ManyValues, write_json
from r2med.data.published import KINDS
from r2med.data.tasks import GROUPS, resolve
from r2med.errors import R2medError
from r2med.leaderboard.board import board
from r2med.leaderboard.factors import factor_sections, study_factors
from r2med.measure.metrics import Measure
from r2med.pipeline.named_runs import name_here
from r2med.render.scores.model import ABOVE, DETAILS, Board, View
from r2med.render.scores.text import FORMATS, show_board
from r2med.render.sections import write_sections
from r2med.render.table import output
from r2med.runs.ledger import Ledger, RecordedName
from r2med.translation.drop import LanguageDrop, language_drops, show_drops, tasks_of, translated_tasks

_GROUPS = ("full", "nano", "sample", "custom", "custom-nano")
DETAILS_BY_OPTION = {name.replace(" ", "-"): name for name in DETAILS if name != ABOVE}
_LINES = 25  # lines of a table that a reader takes in


@click.command("board", cls=ManyValues)
@click.option("--group", type=click.Choice(_GROUPS), default="full", show_default=True, help="Which board.")
@click.option("--tasks", multiple=True, metavar="NAME|PATH...", help="Only these tasks; folders have their own board.")
@click.option("--family", default="", metavar="FAMILY", help="Only the tasks of a family, such as clinical-case.")
@click.option("--kind", type=click.Choice(KINDS), default=None, help="Only systems of a kind.")
@click.option("--retriever", default="", metavar="NAME", help="Only systems with this retriever, such as bm25 or nv.")
@click.option("--llm", default="", metavar="NAME", help="Only systems with this language model, such as gpt-4o.")
@click.option("--reranker", default="", metavar="NAME", help="Only systems with this reranker.")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to rank by.")
@click.option("--own", "only", flag_value="own", help="Only runs of the ledger.")
@click.option("--published", "only", flag_value="published", help="Only published figures.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME...",
    help="Only what these published (paper, page, ...); own for your runs.",
)
@click.option("--ci", "intervals", is_flag=True, help="Show 95% intervals of own runs (bootstrap over queries).")
@click.option(
    "--columns",
    multiple=True,
    type=click.Choice(["cost", *DETAILS_BY_OPTION]),
    help="What else to show: costs of own runs, what is reranked, how many tokens were read, intervals of ranks,"
    " what is known of training data.",
)
@click.option("--factors", is_flag=True, help="In place of the rows: what their differences are due to.")
@click.option("--baseline", default="", metavar="SYSTEM", help="Mark own systems that differ significantly from this.")
@click.option("--find", default="", metavar="WORDS", help="Only systems in whose name or parts all words occur.")
@click.option(
    "--sort",
    default="rank",
    metavar="COLUMN",
    help="rank, name, average, interval (by its lower end), seconds, dollars, a task or family:FAMILY.",
)
@click.option("--ascending", is_flag=True, help="The other way round.")
@click.option("--oracles/--no-oracles", default=True, help="Whether to list systems that were shown the answers.")
@click.option(
    "--limit", type=click.IntRange(0), help=f"How many lines; 0 for all (default: {_LINES} on a terminal, else all)."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "md", "latex", "csv", "json"]),
    default="terminal",
    show_default=True,
)
def board_command(
    group: str, tasks: tuple[str, ...], measure: str, kind: str | None, only: str | None, columns: tuple[str, ...],
    limit: int | None, form: str, factors: bool, **given: Any,
) -> None:  # fmt: skip
    """Every published result with your own runs beside it, ranked by the average.

    Own systems are marked. A system that lacks a task is listed without a rank, an oracle never has one. Sources that
    disagree about a system are kept apart and marked ≠, with the difference where it is ten points or more.

    --columns ranks shows the ranks that the figures leave possible (95%), and the probability of being above the next
    system: of own runs by their queries; of published figures by their spread over tasks alone (~). --factors shows how
    much of the variance is due to task, retriever, language model, method and their interactions, and the mean of each.

    \b
    Examples:
      r2med board --limit 20
      r2med board --kind base --retriever bm25 --measure Recall@100
      r2med board --retriever diver --columns first-stage tokens
      r2med board --group sample --own --ci --columns cost
      r2med board --group sample --own --columns ranks
      r2med board --source paper --factors
      r2med board --tasks path/to/your/folder --ci
      r2med board --group sample --format latex --baseline bm25 > table.tex
    """
    named = resolve(tasks)
    groups = sorted({task.group for task in named}) or [group]
    if len(groups) > 1:
        raise R2medError(f"a board has tasks of one group, these are of {', '.join(groups)}")
    view = View(
        group=groups[0],
        tasks=tuple(task.name for task in named),
        measure=str(Measure.parse(measure)),
        kind=kind or "",
        own=only != "published",
        published=only != "own",
        limit=(_LINES if form == "terminal" else 0) if limit is None else limit,
        cost="cost" in columns,
        details=tuple(DETAILS_BY_OPTION[name] for name in columns if name in DETAILS_BY_OPTION),
        **given,
    )
    if factors:
        _show_factors(replace(view, limit=0), form)
        return
    with Ledger() as ledger:
        ranking = board(ledger, replace(view, baseline=view.baseline and name_here(ledger, view.baseline)))
        drops = _drops(ledger, ranking)
        ranking = replace(ranking, drops=[drop.as_dict() for drop in drops])
    if form != "terminal":
        click.echo(FORMATS[form]([ranking]), nl=False)
        return
    show_board(ranking, output())
    if drops:
        show_drops(drops, ranking.measure, output())
    if not ranking.lines:
        click.echo("nothing to show; r2med run SYSTEM --tasks GROUP fills the board with your own runs", err=True)


def _show_factors(view: View, form: str) -> None:
    if form == "csv":
        raise click.UsageError("--factors goes with --format md, latex and json")
    with Ledger() as ledger:
        study = study_factors(board(ledger, view))
    if form == "json":
        write_json(study)
    else:
        write_sections(None if form == "terminal" else form, "Factors", factor_sections(study))


def _drops(ledger: Ledger, ranking: Board) -> list[LanguageDrop]:
    """Return what the systems of a board lose on those of its tasks that are translations."""
    translated = translated_tasks(tasks_of(ranking.tasks)) if ranking.group not in GROUPS else []
    systems = [RecordedName(line.name) for line in ranking.lines if line.own and not line.oracle]
    return language_drops(ledger, systems, translated, ranking.measure)[0] if translated and systems else []

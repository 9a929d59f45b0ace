"""`r2med compare`: is one system better than another?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from r2med.cli.options import ManyValues, json_option, output, remark, write_json
from r2med.data.task_names import task_names
from r2med.data.tasks import resolve
from r2med.diagnose.compare import compare
from r2med.diagnose.language_drop import language_drops
from r2med.measure.metrics import Measure
from r2med.measure.significance import p_text
from r2med.render.grid import Figure, Table, key, numbers, percent
from r2med.render.language_tables import show_drops
from r2med.runs.ledger import Ledger

if TYPE_CHECKING:
    from r2med.diagnose.compare import Comparison
    from r2med.measure.significance import Difference
    from r2med.render.grid import Cell

_HEADINGS = ("diff", "95% interval", "p (rand)", "p (t)", "win/tie/loss", "effect", "detectable", "queries")


@click.command("compare", cls=ManyValues)
@click.argument("systems", nargs=-1, required=True, metavar="A B [C ...]")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all they share).")
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="What to compare by.")
@click.option("--languages", is_flag=True, help="Each system by itself: what asking in other languages costs it.")
@json_option()
def command(systems: tuple[str, ...], tasks: tuple[str, ...], metric: str, languages: bool, as_json: bool) -> None:
    """Is one system better than another, and how sure is that? Paired by query, from the runs of the ledger.

    A system is its spec or an alias, the id of one of its runs, or an experiment file, which stands for all its systems
    (FILE.toml:NAME for one of them). Every pair is compared: a randomisation test (exact for up to 16
    queries; corrected after Holm when there are several pairs), the difference with the 95% interval of what that test
    does not reject, a paired t-test, wins, ties and losses, the effect size, and the smallest difference that so many
    queries could show.

    With --languages, each system on translated tasks is compared with itself on their source, over the questions that
    both have.

    \b
    Examples:
      r2med compare bm25 bm25-classic
      r2med compare bm25 bm25-classic "rrf(bm25, bm25-classic)" --tasks sample --metric Recall@100
    """
    if languages:
        _compare_languages(systems, tasks, str(Measure.parse(metric)), as_json)
        return
    if len(systems) < 2 and not systems[0].endswith(".toml"):
        raise click.UsageError("name at least two systems")
    with Ledger() as ledger:
        names = [task.name for task in resolve(tasks)]
        found = compare(ledger, systems, str(Measure.parse(metric)), names)
    remark(found[0].notes)
    if as_json:
        write_json([each.as_dict() for each in found])
    else:
        _show(found, metric)


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


def _show(found: Sequence[Comparison], metric: str) -> None:
    console = output()
    names = task_names(found[0].tasks)
    for each in found:
        console.print(f"{each.b}  minus  {each.a}", style="bold")
        table = Table(key(f"{metric} x 100"), *numbers(*_HEADINGS))
        for task, value in each.tasks.items():
            table.add(*_row(names[task], value))
        for family, value in each.families.items():
            table.add(*_row(f"all {family}", value))
        if len(each.tasks) > 1:
            table.rule()
            table.add(*_row("all tasks", each.overall), style="bold")
        table.show(console)
        console.print(each.verdict)
        if len(each.tasks) > 1:
            console.print(_by_task(each, names))
        for sentence in _incomplete(each):
            console.print(sentence)
        console.print()


def _row(name: str, value: Difference) -> list[Cell]:
    low, high = percent(value.low, sign="+"), percent(value.high, sign="+")
    return [
        name,
        percent(value.mean, sign="+"),
        Figure(f"{low.wide} to {high.wide}", f"{low.narrow} to {high.narrow}"),
        p_text(value.randomisation),
        p_text(value.t_test),
        f"{value.wins}/{value.ties}/{value.losses}",
        f"{value.effect:+.2f}",
        percent(value.detectable),
        str(value.queries),
    ]


def _incomplete(each: Comparison) -> list[str]:
    """What a reader must know before the verdict is quoted."""
    return [
        f"{count} of {each.overall.queries} queries of {name} were incomplete: it was not fully measured."
        for name, count in zip((each.a, each.b), each.incomplete, strict=True)
        if count
    ]


def _by_task(found: Comparison, names: Mapping[str, str]) -> str:
    """On which tasks alone there is a difference, for so many looks."""
    shown = ", ".join(names[task] for task in found.differing_tasks) or "none of them"
    return f"By task, after Holm over {len(found.tasks)} tasks, a difference is shown on: {shown}."

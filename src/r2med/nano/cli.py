"""`r2med nano`: make nano sets, look at their candidate lists, and compare them with their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from r2med.cli.execution import executor_option, one_executor
from r2med.cli.options import ManyValues, json_option, write_json
from r2med.formatting import percent
from r2med.measure.metrics import DEFAULT, Measure
from r2med.nano.agreement import Agreement, Interval, agree
from r2med.nano.builder import build
from r2med.nano.profile import KINDS, MEASURES, Profiles, SetProfile, best, profile
from r2med.nano.recipe import Recipe
from r2med.pipeline.evaluate import Options
from r2med.pipeline.executor.local import Executor
from r2med.render.table import Table, key, messages, numbers, output
from r2med.runs.report import failure_lines


@click.group("nano")
def nano_command() -> None:
    """Small tasks made from large ones: build them, profile their candidate lists, compare them with their sources.

    \b
    Examples:
      r2med nano build path/to/folder --out my-nano --docs 1000
      r2med nano profile my-nano
      r2med nano agree my-nano path/to/folder --systems bm25 bm25-classic "rrf(bm25, bm25-classic)"
    """


@nano_command.command("build", short_help="Make a nano set from larger tasks.", cls=ManyValues)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to make; must not exist.")
@click.option("--docs", default=10_000, show_default=True, type=click.IntRange(1), help="Documents of each task.")
@click.option("--queries", default=200, show_default=True, type=click.IntRange(1), help="Queries, at the most.")
@click.option(
    "--policy", default="source-order", show_default=True, type=click.Choice(["source-order", "hard", "random"])
)
@click.option("--seed", type=int, help="Of --policy random (default: 0).")
@click.option("--dense", default="", metavar="SYSTEM", help="The system of the dense lists; none without it.")
@click.option("--hard-systems", multiple=True, metavar="SYSTEM...", help="Of --policy hard (default: bm25).")
@click.option("--drop-unjudged", is_flag=True, help="Leave out queries without a relevant document.")
@json_option()
def build_set(**given: Any) -> None:
    """Make a nano set with one split for each task that the sources (names, groups, folders) stand for.

    All relevant documents come first, then others: in the order of the source, the systems' hardest, or drawn.
    """
    if given["seed"] is not None and given["policy"] != "random":
        raise click.UsageError("--seed goes with --policy random")
    if given["hard_systems"] and given["policy"] != "hard":
        raise click.UsageError("--hard-systems goes with --policy hard")
    stated = {name: given[name] for name in ("queries", "policy", "dense", "drop_unjudged")}
    hard_systems = given["hard_systems"] or Recipe.hard_systems
    recipe = Recipe(documents=given["docs"], seed=given["seed"] or 0, hard_systems=hard_systems, **stated)
    built = build(list(given["sources"]), given["out"], recipe, Executor(messages()))
    for sentence in built.warnings:
        click.echo(f"warning: {sentence}", err=True)
    if given["as_json"]:
        write_json({"folder": str(built.folder), **built.manifest})
        return
    for split, entry in built.manifest["splits"].items():
        counts = [f"{entry['counts'][name]:,} {name}" for name in ("queries", "documents", "positives")]
        safeguards = f"{len(entry['safeguards']):,} safeguards"
        click.echo(f"{split}: {', '.join(counts)}, {safeguards}, from {entry['source']['name']}")
    lists = ", ".join(entry["config"] for entry in built.manifest["candidates"].values())
    click.echo(f"candidates: {lists}")
    click.echo(f"the nano set is in {built.folder}; see: r2med nano profile {built.folder}")


@nano_command.command("profile", short_help="Measure the candidate lists of nano sets.")
@click.argument("sets", nargs=-1, required=True, metavar="SET...")
@json_option()
def profile_sets(sets: tuple[str, ...], as_json: bool) -> None:
    """How the BM25, dense and hybrid candidates of nano sets do: `nano`, some of its tasks, or folders."""
    profiles = profile(sets, Executor(messages()))
    if as_json:
        write_json([set_profile.as_dict() for set_profile in profiles])
    else:
        for set_profile in profiles:
            show_profile(set_profile, output())


@nano_command.command("agree", short_help="Compare the order of systems on nano and source.", cls=ManyValues)
@click.argument("nano")
@click.argument("full")
@click.option("--systems", multiple=True, required=True, metavar="SYSTEM...", help="Two at least; more say more.")
@click.option("--measure", default="nDCG@10", show_default=True, help="What to compare by.")
@executor_option()
@json_option()
def compare(nano: str, full: str, systems: tuple[str, ...], measure: str, executor: str, as_json: bool) -> None:
    """How well a nano set stands for its source: the order of systems, how far scores shift, who changes places.

    Runs of the ledger are used again. Intervals come from drawing queries with replacement.
    """
    measures = tuple(dict.fromkeys([Measure.parse(measure), *DEFAULT]))
    with one_executor(executor) as opened:
        tasks, average, failures = agree(nano, full, systems, Options(measures=measures, executor=opened))
    if as_json:
        failed = {"failures": [failure.as_dict() for failure in failures]} if failures else {}
        write_json({"tasks": tasks, "average": average, **failed})
    else:
        for agreement in filter(None, (*tasks, average)):
            show_agreement(agreement, output())
    for line in failure_lines(failures):
        click.echo(line, err=True)
    if failures:
        raise click.exceptions.Exit(1)


def show_profile(profiles: SetProfile, console: Console) -> None:
    """Print a table per measure: tasks down, profiles across, next to the published figures."""
    beside = any(task.published for task in profiles.tasks)
    published = [f"publ. {name}" for name in KINDS.values()] if beside else []
    columns = numbers("queries", "docs", "positives", "pos/query", *KINDS.values(), "best", *published)
    averages, of_published = profiles.averages(), profiles.published_averages()
    for measure, title in MEASURES.items():
        console.print(f"{title}, {profiles.name}", style="bold")
        table = Table(key("task"), *columns)
        for task in profiles.tasks:
            counts = [f"{task.queries:,}", f"{task.documents:,}", f"{task.positives:,}"]
            cells = [*counts, f"{task.positives / task.queries:.2f}", *_figures(task.profiles, measure)]
            cells.append(KINDS[best(task.profiles, measure)])
            table.add(task.split, *cells, *(_figures(task.published, measure) if beside else ()))
        table.rule()
        for name, row in averages.items():
            cells = ["", "", "", "", *_figures(row, measure), KINDS.get(best(row, measure), "")]
            table.add(name, *cells, *(_figures(of_published.get(name, {}), measure) if beside else ()))
        table.show(console)
    if profiles.dense:
        console.print(f"dense: {profiles.dense}", style="dim")
    note = (
        "recall@100 is micro: relevant documents found over all relevant ones; a safeguard at rank 101 does not count."
    )
    console.print(f"{note} {sum(task.safeguards for task in profiles.tasks)} lists have one.", style="dim")


def _figures(profiles: Profiles, measure: str) -> list[str]:
    return [f"{getattr(profiles[kind], measure):.4f}" if kind in profiles else "-" for kind in KINDS]


def show_agreement(agreement: Agreement, console: Console) -> None:
    """Print the scores on both sets, their shifts, the agreement of the orders, and the pairs that flip."""
    heading = (
        f"{agreement.task}: {agreement.measure} x 100, {agreement.queries:,} queries of {agreement.queries_full:,}"
    )
    console.print(heading, style="bold")
    # Where the source has more queries, its figure over all of them stands beside the one that is compared.
    more = agreement.queries_full > agreement.queries
    names = ("full, same queries", f"full, all {agreement.queries_full:,}") if more else ("full",)
    table = Table(key("system"), *numbers("nano", *names, "shift", "95%"))
    for row in agreement.shifts:
        full = [percent(value) for value in (row.full, row.full_all)[: len(names)]]
        table.add(row.system, percent(row.nano), *full, *_signed(row.shift, row.interval))
    table.rule()
    table.add("mean shift", "", *("" for _ in names), *_signed(agreement.shift, agreement.shift_interval))
    table.show(console)
    for name, value, around in (
        ("Spearman", agreement.spearman, agreement.spearman_interval),
        ("Kendall", agreement.kendall, agreement.kendall_interval),
    ):
        within = f" [{around[0]:.2f}, {around[1]:.2f}]" if around else ""
        console.print(f"{name:9} {'-' if value is None else f'{value:.3f}'}{within}")
    if not agreement.flips:
        console.print(f"None of the {agreement.pairs} pairs of systems changes its order.")
        return
    console.print(f"{len(agreement.flips)} of {agreement.pairs} pairs of systems change their order:")
    table = Table(key("pair"), *numbers("lead on nano", "95%", "lead on full", "95%", ""))
    for flip in agreement.flips:
        leads = [*_signed(flip.nano, flip.nano_interval), *_signed(flip.full, flip.full_interval)]
        table.add(f"{flip.first} over {flip.second}", *leads, "clear" if flip.clear else "within chance")
    table.show(console)


def _signed(value: float, around: Interval) -> list[str]:
    low_high = f"[{100 * around[0]:+.2f}, {100 * around[1]:+.2f}]" if around else "-"
    return [f"{100 * value:+.2f}", low_high]

"""The tables of nano sets: the profile in the published layout, and the agreement with the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.formatting import percent
from r2med.nano.profile import KINDS, MEASURES, best
from r2med.render.table import Table, key, numbers

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.nano.agreement import Agreement, Interval
    from r2med.nano.profile import Profiles, SetProfile

_NOTE = "recall@100 is micro: relevant documents found over all relevant ones; a safeguard at rank 101 does not count."


def show_profile(found: SetProfile, console: Console) -> None:
    """Print a table per measure: tasks down, profiles across, next to the published figures."""
    for measure, title in MEASURES.items():
        console.print(f"{title}, {found.name}", style="bold")
        _profile_table(found, measure).show(console)
    if found.dense:
        console.print(f"dense: {found.dense}", style="dim")
    console.print(f"{_NOTE} {sum(task.safeguards for task in found.tasks)} lists have one.", style="dim")


def _profile_table(found: SetProfile, measure: str) -> Table:
    beside = any(task.published for task in found.tasks)
    published = [f"publ. {name}" for name in KINDS.values()] if beside else []
    counted = ["queries", "docs", "positives", "pos/query", *KINDS.values()]
    table = Table(key("task"), *numbers(*counted, "best", *published))
    for task in found.tasks:
        counts = [f"{task.queries:,}", f"{task.documents:,}", f"{task.positives:,}"]
        cells = [*counts, f"{task.positives / task.queries:.2f}", *_figures(task.profiles, measure)]
        cells.append(KINDS[best(task.profiles, measure)])
        table.add(task.split, *cells, *(_figures(task.published, measure) if beside else ()))
    table.rule()
    averages, known = found.averages(), found.published_averages()
    for name, row in averages.items():
        cells = ["", "", "", "", *_figures(row, measure), KINDS.get(best(row, measure), "")]
        table.add(name, *cells, *(_figures(known.get(name, {}), measure) if beside else ()))
    return table


def _figures(profiles: Profiles, measure: str) -> list[str]:
    return [f"{getattr(profiles[kind], measure):.4f}" if kind in profiles else "-" for kind in KINDS]


def show_agreement(found: Agreement, console: Console) -> None:
    """Print the scores on both sets, their shifts, the agreement of the orders, and the pairs that flip."""
    heading = f"{found.task}: {found.measure} x 100, {found.queries:,} queries of {found.queries_full:,}"
    console.print(heading, style="bold")
    # Where the source has more queries, its figure over all of them stands beside the one that is compared.
    more = found.queries_full > found.queries
    names = ("full, same queries", f"full, all {found.queries_full:,}") if more else ("full",)
    table = Table(key("system"), *numbers("nano", *names, "shift", "95%"))
    for row in found.shifts:
        full = [percent(value) for value in (row.full, row.full_all)[: len(names)]]
        table.add(row.system, percent(row.nano), *full, *_signed(row.shift, row.interval))
    table.rule()
    table.add("mean shift", "", *("" for _ in names), *_signed(found.shift, found.shift_interval))
    table.show(console)
    for name, value, around in (
        ("Spearman", found.spearman, found.spearman_interval),
        ("Kendall", found.kendall, found.kendall_interval),
    ):
        within = f" [{around[0]:.2f}, {around[1]:.2f}]" if around else ""
        console.print(f"{name:9} {'-' if value is None else f'{value:.3f}'}{within}")
    if not found.flips:
        console.print(f"None of the {found.pairs} pairs of systems changes its order.")
        return
    console.print(f"{len(found.flips)} of {found.pairs} pairs of systems change their order:")
    table = Table(key("pair"), *numbers("lead on nano", "95%", "lead on full", "95%", ""))
    for flip in found.flips:
        leads = [*_signed(flip.nano, flip.nano_interval), *_signed(flip.full, flip.full_interval)]
        table.add(f"{flip.first} over {flip.second}", *leads, "clear" if flip.clear else "within chance")
    table.show(console)


def _signed(value: float, around: Interval) -> list[str]:
    low_high = f"[{100 * around[0]:+.2f}, {100 * around[1]:+.2f}]" if around else "-"
    return [f"{100 * value:+.2f}", low_high]

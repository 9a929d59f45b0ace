"""The tables of nano sets: the profile in the published layout, and the agreement with the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from r2med.build.profile import KINDS, MEASURES, best

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from r2med.build.agreement import Agreement, Interval
    from r2med.build.profile import Profiles, SetProfile

_NOTE = "recall@100 is micro: relevant documents found over all relevant ones; a safeguard at rank 101 does not count."


def show_profile(found: SetProfile, console: Console) -> None:
    """Print a table a measure: tasks down, profiles across, the published figures beside."""
    for measure, title in MEASURES.items():
        console.print(f"{title}, {found.name}", style="bold", highlight=False, markup=False)
        console.print(_profile_table(found, measure))
    if found.dense:
        console.print(f"dense: {found.dense}", style="dim", markup=False)
    console.print(f"{_NOTE} {sum(task.safeguards for task in found.tasks)} lists have one.", style="dim")


def _profile_table(found: SetProfile, measure: str) -> Table:
    from rich.markup import escape

    beside = any(task.published for task in found.tasks)
    published = [f"publ. {name}" for name in KINDS.values()] if beside else []
    numbers = ["queries", "docs", "positives", "pos/query", *KINDS.values()]
    table = _table(["task"], [*numbers, "best", *published])
    for task in found.tasks:
        counts = [f"{task.queries:,}", f"{task.documents:,}", f"{task.positives:,}"]
        cells = [*counts, f"{task.positives / task.queries:.2f}", *_figures(task.profiles, measure)]
        cells.append(KINDS[best(task.profiles, measure)])
        table.add_row(escape(task.split), *cells, *(_figures(task.published, measure) if beside else ()))
    table.add_section()
    averages, known = found.averages(), found.published_averages()
    for name, row in averages.items():
        cells = ["", "", "", "", *_figures(row, measure), KINDS.get(best(row, measure), "")]
        table.add_row(name, *cells, *(_figures(known.get(name, {}), measure) if beside else ()))
    return table


def _figures(profiles: Profiles, measure: str) -> list[str]:
    return [f"{getattr(profiles[kind], measure):.4f}" if kind in profiles else "-" for kind in KINDS]


def show_agreement(found: Agreement, console: Console) -> None:
    """Print how systems do on both sets, how they shift, how their orders agree and who changes places."""
    from rich.markup import escape

    heading = f"{found.task}: {found.measure} x 100, {found.queries_nano:,} queries of {found.queries_full:,}"
    console.print(heading, style="bold", highlight=False, markup=False)
    table = _table(["system"], ["nano", "full", "shift", "95%"])
    for each in found.shifts:
        table.add_row(
            escape(each.system), _percent(each.nano), _percent(each.full), *_signed(each.shift, each.interval)
        )
    table.add_section()
    table.add_row("mean shift", "", "", *_signed(found.shift, found.shift_interval))
    console.print(table)
    for name, value, around in (
        ("Spearman", found.spearman, found.spearman_interval),
        ("Kendall", found.kendall, found.kendall_interval),
    ):
        within = f" [{around[0]:.2f}, {around[1]:.2f}]" if around else ""
        console.print(f"{name:9} {'-' if value is None else f'{value:.3f}'}{within}", markup=False, highlight=False)
    _show_flips(found, console)


def _show_flips(found: Agreement, console: Console) -> None:
    if not found.flips:
        console.print(f"None of the {found.pairs} pairs of systems changes its order.", highlight=False)
        return
    console.print(f"{len(found.flips)} of {found.pairs} pairs of systems change their order:", highlight=False)
    table = _table(["pair"], ["lead on nano", "95%", "lead on full", "95%", ""])
    from rich.markup import escape

    for flip in found.flips:
        leads = [*_signed(flip.nano, flip.nano_interval), *_signed(flip.full, flip.full_interval)]
        table.add_row(escape(f"{flip.first} over {flip.second}"), *leads, "clear" if flip.clear else "within chance")
    console.print(table)


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _signed(value: float, around: Interval) -> list[str]:
    low_high = rf"\[{100 * around[0]:+.2f}, {100 * around[1]:+.2f}]" if around else "-"
    return [f"{100 * value:+.2f}", low_high]


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table

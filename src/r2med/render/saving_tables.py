"""What a frontier and a tuning show on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.measure.significance import p_text, p_words
from r2med.render.grid import Figure, Table, key, numbers, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from r2med.diagnose.route_curves import Curve, RoutePair
    from r2med.diagnose.saving import Saving
    from r2med.diagnose.tuning import Fold, Tuned

_SHOWN = (0.1, 0.3, 0.5, 0.7)
"""The shares that a table has columns for."""


def show_saving(found: Saving, console: Console) -> None:
    """Print the systems with their prices, the routes between them, and what they say."""
    _show_systems(found, console)
    for pair in found.pairs:
        _show_pair(pair, console)
    for sentence in found.sentences:
        console.print(sentence, markup=False, highlight=False)


def _show_systems(found: Saving, console: Console) -> None:
    worth = {each.system for each in found.worth}
    table = Table(key("system"), *numbers(f"{found.measure} x 100", f"{found.by}/query", "frontier"))
    for each in found.systems:
        cost = each.cost(found.by)
        name = f"{each.system} (oracle)" if each.oracle else each.system
        price = "?" if cost is None else f"{cost:,.4g}"
        table.add(name, percent(each.score), price, "yes" if each.system in worth else "")
    table.show(console)


def _show_pair(pair: RoutePair, console: Console) -> None:
    console.print(f"\n{pair.cheap}  to  {pair.dear}", style="bold", markup=False, highlight=False)
    headings = [f"at {share:.0%}" for share in _SHOWN]
    table = Table(key("signal"), *numbers(*headings, "over chance", "95% interval", "p (Holm)"))
    for curve in pair.curves:
        table.add(curve.signal, *(percent(_at(curve, share)) for share in _SHOWN), *_advantage(curve))
    ends = pair.curves[0].points
    chance = [percent(ends[0].score + share * (ends[-1].score - ends[0].score)) for share in _SHOWN]
    table.rule()
    table.add("random choice", *chance, "", "", "")
    table.show(console)


def _at(curve: Curve, share: float) -> float:
    return next(point.score for point in curve.points if abs(point.share - share) < 1e-9)


def _advantage(curve: Curve) -> list[str | Figure]:
    found = curve.advantage
    return [percent(found.mean, sign="+"), ends_text(found.low, found.high), p_text(curve.corrected)]


def ends_text(low: float, high: float) -> Figure:
    """The ends of an interval of differences, x 100."""
    one, other = percent(low, sign="+"), percent(high, sign="+")
    return Figure(f"{one.wide} to {other.wide}", f"{one.narrow} to {other.narrow}")


def show_tuned(found: Tuned, console: Console) -> None:
    """Print what was chosen on each split and how it did on the other queries, and what that says."""
    routed = found.over_chance is not None
    headings = ("chosen by", "measured on", "as written", *(("sent on", "chance") if routed else ()))
    table = Table(key("chosen"), *numbers("splits", *headings))
    for chosen, count in found.choices.most_common():
        rows = [fold for fold in found.folds if fold.chosen == chosen]
        table.add(chosen, str(count), *_fold_cells(rows, routed=routed))
    table.rule()
    table.add("all splits", str(len(found.folds)), *_total_cells(found, routed=routed), style="bold")
    table.show(console)
    for sentence in tuned_sentences(found):
        console.print(sentence, markup=False, highlight=False)


def _total_cells(found: Tuned, *, routed: bool) -> list[str | Figure]:
    """The means over splits; of folds, which have every query once, those over all queries."""
    cells = _fold_cells(found.folds, routed=routed)
    if found.gain is not None:
        cells[1:3] = [percent(found.written + found.gain.mean), percent(found.written)]
    return cells


def _fold_cells(rows: Sequence[Fold], *, routed: bool) -> list[str | Figure]:
    def mean(name: str) -> float:
        return float(sum(getattr(row, name) for row in rows)) / len(rows)

    shown: list[str | Figure] = [percent(mean(name)) for name in ("by", "on", "untuned")]
    return [*shown, f"{mean('sent'):.0%}", percent(mean("random"))] if routed else shown


def tuned_sentences(found: Tuned) -> list[str]:
    """What a tuning says, in words."""
    said = [f"{found.measure} x 100. Split: {found.split}; {found.candidates} candidates."]
    said += [f"The option {name} does nothing here: no query's {found.measure} depends on it." for name in found.idle]
    if found.gain is not None:
        gain = found.gain
        words = p_words(gain.randomisation, at_floor=gain.at_floor)
        said.append(
            f"Tuned minus as written, on queries that were not chosen by: {100 * gain.mean:+.2f} points"
            f" (95% interval {100 * gain.low:+.2f} to {100 * gain.high:+.2f}, {words})."
        )
    else:
        said.append(_spread("Tuned minus as written, on the other half", found.gains))
    if found.over_chance is not None:
        said.append(_spread("Minus a random choice of as many queries", found.over_chance))
    said.append(f"On the queries it was chosen by, the chosen one looks {100 * found.optimism:.2f} points better.")
    said.append(f"Chosen by all queries: {found.best}")
    return said


def _spread(what: str, values: NDArray[np.float64]) -> str:
    better = int((values > 0).sum())
    return (
        f"{what}: {100 * values.mean():+.2f} points on average, standard deviation {100 * values.std(ddof=1):.2f},"
        f" from {100 * values.min():+.2f} to {100 * values.max():+.2f}; above 0 on {better} of {len(values)} splits."
    )

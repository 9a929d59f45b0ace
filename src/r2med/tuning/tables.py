"""Tables and sentences of a frontier and a tuning."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from r2med.formatting import p_text, p_words
from r2med.measure.significance import Difference
from r2med.render.table import Number, Table, key, numbers, percent, signed_interval, signed_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from r2med.tuning.routes import Curve, CurvePoint, RoutePair, Saving
    from r2med.tuning.study import Fold, Tuned

_SHOWN = (0.1, 0.3, 0.5, 0.7)  # the shares that a table has columns for


def show_saving(saving: Saving, console: Console) -> None:
    """Print the systems with their prices, the routes between them, and what they say."""
    worth = {system.system for system in saving.worth}
    heading = "$/query" if saving.by == "money" else f"{saving.by}/query"
    table = Table(key("system"), *numbers(f"{saving.measure} x 100", heading, "frontier"))
    for system in saving.systems:
        cost = system.cost(saving.by)
        name = f"{system.system} (oracle)" if system.oracle else system.system
        price = "?" if cost is None else f"{cost:,.4g}"
        table.add(name, percent(system.score), price, "yes" if system.system in worth else "")
    table.show(console)
    for pair in saving.pairs:
        _show_pair(pair, console)
    for sentence in saving.sentences:
        console.print(sentence, markup=False, highlight=False)


def _show_pair(pair: RoutePair, console: Console) -> None:
    console.print(f"\n{pair.cheap}  to  {pair.strong}", style="bold", markup=False, highlight=False)
    headings = [f"at {share:.0%}" for share in _SHOWN]
    table = Table(key("signal"), *numbers(*headings, "over chance", "95% interval", "p (Holm)"))
    for curve in pair.curves:
        gain, scores = curve.advantage, [percent(point.score) for point in _points(curve)]
        advantage = (signed_percent(gain.mean), signed_interval(gain), p_text(curve.corrected))
        table.add(curve.signal, *scores, *advantage)
    points = _points(pair.curves[0])
    table.rule()
    table.add("random choice", *(percent(point.random) for point in points), "", "", "")
    table.add("queries sent", *(f"{point.sent:.1%}" for point in points), "", "", "")
    table.show(console)


def _points(curve: Curve) -> list[CurvePoint]:
    """Return the points of the shares that the table has columns for."""
    return [point for share in _SHOWN for point in curve.points if abs(point.share - share) < 1e-9]


def show_tuned(tuned: Tuned, console: Console) -> None:
    """Print what was chosen on each split and how it did on the other queries, and what that says."""
    routed = tuned.over_chance is not None
    headings = ("chosen by", "measured on", "as written", *(("sent on", "chance") if routed else ()))
    table = Table(key("chosen"), *numbers("splits", *headings))
    for chosen, count in Counter(fold.chosen for fold in tuned.folds).most_common():
        rows = [fold for fold in tuned.folds if fold.chosen == chosen]
        table.add(chosen, str(count), *_fold_cells(tuned, rows))
    table.rule()
    table.add("all splits", str(len(tuned.folds)), *_fold_cells(tuned, tuned.folds), style="bold")
    table.show(console)
    for sentence in tuned_sentences(tuned):
        console.print(sentence, markup=False, highlight=False)


def _fold_cells(tuned: Tuned, rows: Sequence[Fold]) -> list[str | Number]:
    """Return the means over some splits, each with its weight."""
    cells: list[str | Number] = [percent(tuned.mean(name, rows)) for name in ("by", "on", "untuned")]
    if tuned.over_chance is None:
        return cells
    return [*cells, f"{tuned.mean('sent', rows):.0%}", percent(tuned.mean("random", rows))]


def tuned_sentences(tuned: Tuned) -> list[str]:
    """Return the conclusions of a tuning in words."""
    sentences = [f"{tuned.measure} x 100. Split: {tuned.split}; {tuned.candidates} candidates.", *tuned.warnings]
    if tuned.gain is None:
        row = "over its splits"
        gain = _spread("Tuned minus as written, on the other half", tuned.gains)
    else:
        row = "over the queries measured on its splits, each query of a task with the same weight"
        gain = _paired("Tuned minus as written, on queries that were not chosen by", tuned.gain)
    sentences.append(f"A row is the mean {row}.")
    sentences += [
        f"The option {name} does nothing here: no query's {tuned.measure} depends on it." for name in tuned.idle
    ]
    sentences.append(gain)
    if tuned.over_chance is not None:
        what = "Minus a random choice of as many queries"
        sentences.append(
            _spread(what, tuned.over_chance) if tuned.over_random is None else _paired(what, tuned.over_random)
        )
    looks = f"{100 * abs(tuned.optimism):.2f} points {'worse' if tuned.optimism < 0 else 'better'}"
    sentences.append(f"On the queries it was chosen by, the chosen one looks {looks}.")
    sentences.append(f"Chosen by all queries: {tuned.best}")
    return sentences


def _paired(what: str, gain: Difference) -> str:
    words = p_words(gain.randomisation, at_floor=gain.at_floor)
    interval = f"95% interval {100 * gain.low:+.2f} to {100 * gain.high:+.2f}"
    return f"{what}: {100 * gain.mean:+.2f} points ({interval}, {words})."


def _spread(what: str, values: NDArray[np.float64]) -> str:
    if len(values) == 1:
        return f"{what}: {100 * values[0]:+.2f} points on the one split there is, which has no spread."
    better = int((values > 0).sum())
    return (
        f"{what}: {100 * values.mean():+.2f} points on average, standard deviation {100 * values.std(ddof=1):.2f},"
        f" from {100 * values.min():+.2f} to {100 * values.max():+.2f}; above 0 on {better} of {len(values)} splits."
    )

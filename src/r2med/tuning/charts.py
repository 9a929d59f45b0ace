"""Charts of frontiers and routes: score against cost, and score by the share of queries sent on. Figures are x 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from r2med.errors import R2medError
from r2med.render.charts.chart import CHARTED, Panel, responsive
from r2med.render.charts.lines import ChartLine, LineChart
from r2med.render.charts.scatter import ScatterChart, ScatterPoint
from r2med.render.scores.model import BoardRow
from r2med.runs.ledger import Entry
from r2med.tuning.frontier import COSTS, Priced, bill, comparable, frontier, left_out
from r2med.tuning.routes import RoutePair, Saving

_PANELS = 3  # so many panels go side by side
_NAMED = 10  # so many systems of a frontier are all named; of more, only those on it


def frontier_chart(systems: Sequence[Priced], by: str, measure: str) -> ScatterChart | None:
    """Chart score against cost per query; None if no cost is known. Oracles and unknown costs are left out."""
    priced = sorted(comparable(systems, by), key=lambda pair: -pair[1].score)
    if not priced:
        return None
    best = frontier([system for _, system in priced], by)
    points: list[ScatterPoint] = []
    for cost, system in priced:
        named = len(priced) <= _NAMED or system in best
        number = 1 + sum(point.number is not None for point in points) if named else None
        points.append(ScatterPoint(system.system, cost, 100 * system.score, system in best, number))
    return ScatterChart(f"{measure} against {COSTS[by]}", COSTS[by], f"{measure} x 100", points)


def route_chart(found: Saving) -> LineChart:
    """Chart the routes between every two systems: the best signal with its interval, the others, and chance."""
    if not found.pairs:
        raise R2medError("there is no route to draw: no system is better than a cheaper one")
    panels = [(f"{pair.cheap} to {pair.strong}", _route_lines(pair)) for pair in found.pairs[:_PANELS]]
    return LineChart(
        f"{found.measure} of routes", "% of queries sent to the strong system", f"{found.measure} x 100", panels
    )


def _route_lines(pair: RoutePair) -> list[ChartLine]:
    best, *others = pair.curves
    x = [100 * point.sent for point in best.points]
    strong = best.points[-1].score
    low = [100 * (strong + point.difference.ends[0]) for point in best.points]
    high = [100 * (strong + point.difference.ends[1]) for point in best.points]
    lines = [ChartLine(best.signal, x, [100 * point.score for point in best.points], low, high)]
    lines += [ChartLine(curve.signal, x, [100 * point.score for point in curve.points]) for curve in others]
    chance = [100 * point.random for point in best.points]
    return [*lines, ChartLine("random choice", x, chance, straight=True)]


def frontier_panels(runs: Mapping[str, Mapping[str, Entry]], lines: Sequence[BoardRow], measure: str) -> list[Panel]:
    """Chart score against cost, for every way of counting in which local systems differ."""
    whole = [line for line in lines if line.own and line.average is not None and line.name in runs]
    priced = [
        Priced(line.name, line.average or 0.0, bill(list(runs[line.name].values())), line.oracle)
        for line in whole[:CHARTED]
    ]
    panels = []
    for by, unit in COSTS.items():
        chart = frontier_chart(priced, by, measure)
        if chart is not None and not chart.equal_costs:
            note = f"{measure} × 100 against {unit}. Filled: nothing better for as little. {left_out(priced, by)}"
            panels.append(Panel(f"Cost in {by}", note, responsive(chart), f"cost-{by}"))
    return panels

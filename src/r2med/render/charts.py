"""What every chart shows, described once: pages draw it as SVG (`chart_svg`), papers by matplotlib (`plots`).

Nothing depends on colour alone: marks differ in shape and filling, areas in their hatch. Figures are x 100.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.board.model import AVERAGE, Board, Line
from r2med.build.audit import Audit
from r2med.data.task_names import task_headings
from r2med.data.tasks import families
from r2med.diagnose.causes import Cause
from r2med.diagnose.compare import Comparison
from r2med.diagnose.frontier import COSTS, Priced, comparable, frontier
from r2med.diagnose.gap import Gap
from r2med.diagnose.route_curves import RoutePair
from r2med.diagnose.saving import Saving
from r2med.diagnose.score_series import ScoreSeries
from r2med.errors import R2medError
from r2med.measure.bootstrap import Interval
from r2med.measure.significance import Difference
from r2med.render.palette import HATCHES, Fill, fills
from r2med.render.scale import Scale, span

SHADES = 9
"""How many steps the heat map's scale has."""
_PANELS = 3
"""So many panels go side by side."""
_NAMED = 10
"""So many systems of a frontier are all named; of more, only those on it."""


class ChartPoint(NamedTuple):
    """A mark: whose it is, its figure and how far that may be off, and what it looks like."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    shape: str = "disc"
    """`disc`, `square`, `diamond` or `bar`, an upright line."""
    filled: bool = True
    tone: str = "own"
    """`own`, `pub` for published, or `soft` for what is no system: an oracle, chance."""

    def said(self, *, signed: bool = False) -> str:
        """The mark in words."""
        value = f"{self.value:+.2f}" if signed else f"{self.value:.2f}"
        known = self.low is not None and self.high is not None
        return f"{self.name}: {value}" + (f", 95% interval {self.low:.2f} to {self.high:.2f}" if known else "")


@dataclass(frozen=True)
class DotChart:
    """Figures with their intervals, a row each, the first on top."""

    title: str
    axis: str
    """What is counted along the axis."""
    points: Sequence[ChartPoint]
    differences: bool = False
    """Whether figures have signs and the line at 0 stands out."""
    heading: str = ""
    """What stands above the chart on paper."""

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        return f"{self.axis}. " + "; ".join(point.said(signed=self.differences) for point in self.points[:5]) + "."

    @property
    def scale(self) -> Scale:
        """A scale that holds every mark."""
        ends = [end for point in self.points for end in (point.value, point.low, point.high) if end is not None]
        return Scale(*span([*ends, 0.0] if self.differences else ends, from_zero=False))


class Series(NamedTuple):
    """What one filling stands for."""

    name: str
    fill: Fill
    values: Sequence[float]
    """A figure for each row."""
    intervals: Sequence[Interval] = ()


@dataclass(frozen=True)
class ShareChart:
    """Shares that make a whole, a bar a row, the first on top."""

    title: str
    axis: str
    rows: Sequence[str]
    series: Sequence[Series]

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        first = ", ".join(f"{series.name} {series.values[0]:.0f}%" for series in self.series) if self.rows else ""
        return f"{self.axis}. {self.rows[0]}: {first}." if self.rows else self.axis


@dataclass(frozen=True)
class BarChart:
    """Bars side by side: a group of them for each task, one a system, with intervals."""

    title: str
    axis: str
    groups: Sequence[str]
    series: Sequence[Series]
    rule: int
    """Before which group a line is drawn."""

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        return f"{self.axis} of {len(self.series)} systems on {', '.join(self.groups)}."


class ScatterPoint(NamedTuple):
    """A system by what it costs and what it scores."""

    name: str
    x: float
    y: float
    best: bool
    """Whether nothing is better for as little."""
    number: int | None
    """Under which it is named; None where it is not."""


@dataclass(frozen=True)
class ScatterChart:
    """Score against cost, with a stair along what nothing beats for as little."""

    title: str
    x_axis: str
    y_axis: str
    points: Sequence[ScatterPoint]
    """The best score first."""

    @property
    def stair(self) -> list[ScatterPoint]:
        """The points on the frontier, the cheapest first."""
        return sorted((point for point in self.points if point.best), key=lambda point: point.x)

    @property
    def named(self) -> list[ScatterPoint]:
        """The points with names, by their numbers."""
        return [point for point in self.points if point.number is not None]

    @property
    def unnamed(self) -> str:
        """What is said of the points without names."""
        others = len(self.points) - len(self.named)
        return f"{others} {'other' if others == 1 else 'others'}, not named: rings" if others else ""

    @property
    def equal_costs(self) -> bool:
        """Whether all cost the same, so that there is nothing to set the score against."""
        return len({point.x for point in self.points}) == 1

    @property
    def has_free(self) -> bool:
        """Whether something costs nothing, for which a logarithmic scale has no place."""
        return any(point.x <= 0 for point in self.points)

    @property
    def x_scale(self) -> Scale:
        """The scale of what is not free."""
        costs = [point.x for point in self.points if point.x > 0] or [1.0]
        return Scale(min(costs) / 1.6, max(costs) * 1.6, logarithmic=True)

    @property
    def y_scale(self) -> Scale:
        """The scale of scores."""
        return Scale(*span([point.y for point in self.points], from_zero=False))

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        best = "; ".join(f"{point.name} {point.y:.2f} at {point.x:.4g}" for point in self.stair)
        return f"{self.y_axis} against {self.x_axis}. Nothing is better for as little: {best}."


class HeatCell(NamedTuple):
    """A figure with the shade of its place in its column."""

    value: float
    shade: int
    """From 0 for the lowest to `SHADES` - 1."""


class HeatRow(NamedTuple):
    """A system of a heat map."""

    name: str
    cells: Sequence[HeatCell | None]
    """For each column; None where there is no figure."""


@dataclass(frozen=True)
class HeatMap:
    """Figures of systems by columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[HeatRow]

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        return f"{self.title}: {len(self.rows)} systems by {', '.join(self.columns)}."


class PairedPanel(NamedTuple):
    """One way to count, of several side by side."""

    axis: str
    marks: Sequence[Sequence[ChartPoint]]
    """For each row its marks, named by what they are of."""


@dataclass(frozen=True)
class PairedChart:
    """Several marks a row, the last two joined, counted in several ways side by side."""

    title: str
    rows: Sequence[str]
    panels: Sequence[PairedPanel]

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        marks = dict.fromkeys(point.name for panel in self.panels for row in panel.marks for point in row)
        return f"{', '.join(panel.axis for panel in self.panels)}: {'; '.join(marks)}, for {', '.join(self.rows)}."


Chart = DotChart | ShareChart | BarChart | ScatterChart | HeatMap | PairedChart


def line_point(line: Line, column: str, name: str = "") -> ChartPoint | None:
    """The mark of a board's line in one column; None where it has no figure."""
    value = line.value(column)
    if value is None:
        return None
    return _point(name or line.row.name, value, line.intervals.get(column), own=line.row.own, oracle=line.row.oracle)


def interval_point(name: str, found: Interval) -> ChartPoint:
    """The mark of a mean with its interval."""
    return _point(name, found.mean, found)


def _point(name: str, value: float, found: Interval | None, *, own: bool = True, oracle: bool = False) -> ChartPoint:
    low, high = (None, None) if found is None else (100 * found.low, 100 * found.high)
    shape, tone = ("diamond", "soft") if oracle else ("disc", "own") if own else ("diamond", "pub")
    return ChartPoint(f"{name} (oracle)" if oracle else name, 100 * value, low, high, shape, not oracle, tone)


def average_chart(series: ScoreSeries) -> DotChart:
    """Every system's average with its 95% interval, the best on top; oracles are hollow."""
    order = sorted(range(len(series.systems)), key=lambda place: -series.average[place].mean)
    points = [
        _point(name, series.average[place].mean, series.average[place], oracle=name in series.oracles)
        for place in order
        for name in (series.systems[place],)
    ]
    over = f"mean over {len(series.tasks)} {series.group} tasks"
    return DotChart("Averages of systems", f"{series.measure} x 100, {over}, 95% interval", points)


def task_chart(series: ScoreSeries) -> BarChart:
    """Bars for each task, one a system, with 95% intervals."""
    count = len(series.systems)
    if count > len(HATCHES):
        raise R2medError(f"{count} systems are too many for bars; name at most {len(HATCHES)}")
    columns = {**series.tasks, "mean": series.average}
    bars = []
    for place, (system, fill) in enumerate(zip(series.systems, fills(count), strict=True)):
        found = [column[place] for column in columns.values()]
        name = f"{system} (oracle)" if system in series.oracles else system
        bars.append(Series(name, fill, [100 * each.mean for each in found], found))
    groups = list(task_headings(list(columns)).values())
    return BarChart("Systems by task", f"{series.measure} x 100", groups, bars, len(series.tasks))


def difference_chart(found: Comparison, measure: str) -> DotChart:
    """B minus A by task, family and overall: filled where there is a difference after Holm."""
    headings = task_headings(list(found.tasks))
    names: Mapping[str, Callable[[str], str]]
    names = {"task": headings.__getitem__, "family": lambda name: f"all {families().get(name, name)}", "overall": str}
    shapes = {"task": "disc", "family": "square", "overall": "diamond"}
    points = [
        _difference_point(names[look.kind](look.name), look.found, shapes[look.kind], filled=look.sure)
        for look in found.looks()
    ]
    axis = f"difference in {measure} x 100, 95% interval; filled: shown after Holm"
    return DotChart(f"{found.b} minus {found.a}", axis, points, True, f"{found.b}  minus  {found.a}")


def stability_chart(found: Audit) -> DotChart:
    """How often each two systems keep their order if labels were as wrong as two label sets disagree."""
    change = next((each for each in found.changes if each.conclusions), None)
    if change is None:
        raise R2medError("there is no pair of systems whose order could be drawn; run two systems first")
    pairs = sorted(change.conclusions, key=lambda each: -each.stability)
    points = [
        ChartPoint(f"{each.first} over {each.second}", 100 * each.stability, filled=not each.flips) for each in pairs
    ]
    axis = f"order kept in % of {change.stability.simulations:,} simulations; filled: the same conclusion under both"
    heading = f"If labels were as wrong as {change.a} and {change.b} disagree"
    return DotChart("How stable the order of systems is", axis, points, heading=heading)


def against_chart(found: Sequence[Comparison], measure: str) -> DotChart:
    """Several systems minus one and the same, over all tasks."""
    points = [_difference_point(each.b, each.overall, filled=each.differs) for each in found]
    return DotChart(f"Differences from {found[0].a}", f"difference in {measure} x 100, 95% interval", points, True)


def _difference_point(name: str, found: Difference, shape: str = "disc", *, filled: bool) -> ChartPoint:
    return ChartPoint(name, 100 * found.mean, 100 * found.low, 100 * found.high, shape, filled)


def frontier_chart(systems: Sequence[Priced], by: str, measure: str) -> ScatterChart | None:
    """Score against cost a query; None where no cost is known. Oracles and unknown costs are left out."""
    known = sorted(comparable(systems, by), key=lambda pair: -pair[1].score)
    if not known:
        return None
    best = frontier([each for _, each in known], by)
    points: list[ScatterPoint] = []
    for cost, each in known:
        named = len(known) <= _NAMED or each in best
        number = 1 + sum(point.number is not None for point in points) if named else None
        points.append(ScatterPoint(each.system, cost, 100 * each.score, each in best, number))
    return ScatterChart(f"{measure} against {COSTS[by]}", COSTS[by], f"{measure} x 100", points)


class ChartLine(NamedTuple):
    """One curve: its points, and where the band around it lies."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    straight: bool = False
    """Whether it is what chance would give: drawn dashed."""


@dataclass(frozen=True)
class LineChart:
    """Curves over one axis, a panel for each set of them, side by side."""

    title: str
    x_axis: str
    y_axis: str
    panels: Sequence[tuple[str, Sequence[ChartLine]]]
    doubling: bool = False
    """Whether equal steps along the axis are doublings, marked at the points themselves."""

    @property
    def description(self) -> str:
        """The chart in a sentence."""
        shown = "; ".join(
            f"{name}: {', '.join(f'{line.name} {line.y[0]:.1f} to {line.y[-1]:.1f}' for line in lines)}"
            for name, lines in self.panels
        )
        return f"{self.y_axis} against {self.x_axis}. {shown}."


def route_chart(found: Saving) -> LineChart:
    """The routes between every two systems: the most telling signal with its interval, the others, and chance."""
    if not found.pairs:
        raise R2medError("there is no route to draw: no system is better than a cheaper one")
    panels = [(f"{pair.cheap} to {pair.dear}", _route_lines(pair)) for pair in found.pairs[:_PANELS]]
    return LineChart(
        f"{found.measure} of routes", "% of queries sent to the dear system", f"{found.measure} x 100", panels
    )


def _route_lines(pair: RoutePair) -> list[ChartLine]:
    best, *others = pair.curves
    x = [100 * point.sent for point in best.points]
    dear = best.points[-1].score
    low = [100 * (dear + point.difference.low) for point in best.points]
    high = [100 * (dear + point.difference.high) for point in best.points]
    lines = [ChartLine(best.signal, x, [100 * point.score for point in best.points], low, high)]
    lines += [ChartLine(curve.signal, x, [100 * point.score for point in curve.points]) for curve in others]
    chance = [100 * point.random for point in best.points]
    return [*lines, ChartLine("random choice", x, chance, straight=True)]


def cause_chart(shares: Mapping[str, Mapping[Cause, float]], axis: str) -> ShareChart:
    """The shares of causes, a bar a system; a cause has the same fill in every chart."""
    used = [cause for cause in Cause if any(row.get(cause, 0.0) for row in shares.values())]
    looks = dict(zip(Cause, fills(len(Cause)), strict=True))
    series = [
        Series(cause.value, looks[cause], [100 * row.get(cause, 0.0) for row in shares.values()]) for cause in used
    ]
    return ShareChart("What became of relevant documents", axis, list(shares), series)


def heat_map(board: Board, lines: Sequence[Line]) -> HeatMap:
    """Systems by tasks; shades go by place and not by figure, so that one outlier does not make all others alike."""
    columns = [column for column in board.columns if any(line.value(column) is not None for line in lines)]
    ranked = [line for line in lines if not line.row.oracle] or lines
    orders = {c: sorted({v for line in ranked if (v := line.value(c)) is not None}) for c in columns}
    headings = task_headings(board.tasks) | {AVERAGE: "mean"}

    def cell(line: Line, column: str) -> HeatCell | None:
        value, order = line.value(column), orders[column]
        return None if value is None else HeatCell(100 * value, shade_of(bisect_left(order, value), 0, len(order) - 1))

    rows = [HeatRow(line.row.name, [cell(line, column) for column in columns]) for line in lines]
    return HeatMap(f"{board.measure} x 100 of systems by tasks", [headings[column] for column in columns], rows)


def shade_of(value: float, low: float, high: float) -> int:
    """The step of the heat map's scale, from the lowest figure of a column to its highest.

    >>> shade_of(0.1, 0.1, 0.5), shade_of(0.5, 0.1, 0.5), shade_of(0.3, 0.3, 0.3)
    (0, 8, 4)
    """
    if high <= low:
        return SHADES // 2
    return max(0, min(SHADES - 1, int(SHADES * (value - low) / (high - low))))


_GAP_MARKS: Mapping[str, ChartPoint] = {
    "query-other": ChartPoint("query, other documents (chance)", 0, shape="bar", tone="soft"),
    "query-positive": ChartPoint("query, relevant documents", 0, filled=False),
    "answer-positive": ChartPoint("gold answer, relevant documents", 0, shape="diamond"),
}


def gap_chart(gaps: Sequence[Gap]) -> PairedChart:
    """For each task how near the query and the gold answer are to the relevant documents, by words and by meaning."""
    sides = {"overlap": "lexical overlap x 100", "similarity": f"cosine x 100 ({gaps[0].encoder})"}
    panels = [
        PairedPanel(
            axis,
            [
                [mark._replace(value=100 * near[pair].mean) for pair, mark in _GAP_MARKS.items() if pair in near]
                for near in (getattr(gap, side) for gap in gaps)
            ],
        )
        for side, axis in sides.items()
    ]
    return PairedChart("How near queries and answers are to relevant documents",
                       list(task_headings([gap.task for gap in gaps]).values()), panels)  # fmt: skip

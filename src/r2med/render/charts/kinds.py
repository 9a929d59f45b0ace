"""Descriptions of charts, which pages draw as SVG (`svg`) and papers by matplotlib (`plots`).

Nothing depends on colour alone: marks differ in shape and filling, areas in their hatch. Figures are x 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from r2med.data.labels import BAND, NEGATIVE, POSITIVE
from r2med.formatting import counted
from r2med.measure.figure import Figure
from r2med.render.charts.scale import Scale, span
from r2med.render.palette import Fill, fills

SHADES = 9
"""How many steps the heat map's scale has."""


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
        """Describe the mark in words."""
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
        """Describe the chart in a sentence."""
        return f"{self.axis}. " + "; ".join(point.said(signed=self.differences) for point in self.points[:5]) + "."

    @property
    def scale(self) -> Scale:
        """Return a scale that holds every mark."""
        ends = [end for point in self.points for end in (point.value, point.low, point.high) if end is not None]
        return Scale(*span([*ends, 0.0] if self.differences else ends, from_zero=False))


class Series(NamedTuple):
    """Meaning, fill and values of one part of the bars."""

    name: str
    fill: Fill
    values: Sequence[float]
    """A figure for each row."""
    intervals: Sequence[Figure] = ()


@dataclass(frozen=True)
class ShareChart:
    """Shares that make a whole, a bar a row, the first on top."""

    title: str
    axis: str
    rows: Sequence[str]
    series: Sequence[Series]

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
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
        """Describe the chart in a sentence."""
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
        """Return the points on the frontier, the cheapest first."""
        return sorted((point for point in self.points if point.best), key=lambda point: point.x)

    @property
    def named(self) -> list[ScatterPoint]:
        """Return the points with names, in the order of their numbers."""
        return [point for point in self.points if point.number is not None]

    @property
    def unnamed(self) -> str:
        """Return a remark on the points without names, if there are any."""
        others = len(self.points) - len(self.named)
        return f"{others} {'other' if others == 1 else 'others'}, not named: rings" if others else ""

    @property
    def equal_costs(self) -> bool:
        """Return whether all points cost the same, so that there is nothing to set the score against."""
        return len({point.x for point in self.points}) == 1

    @property
    def has_free(self) -> bool:
        """Return whether some point costs nothing, for which a logarithmic scale has no place."""
        return any(point.x <= 0 for point in self.points)

    @property
    def x_scale(self) -> Scale:
        """Return the scale of the costs above zero."""
        costs = [point.x for point in self.points if point.x > 0] or [1.0]
        return Scale(min(costs) / 1.6, max(costs) * 1.6, logarithmic=True)

    @property
    def y_scale(self) -> Scale:
        """Return the scale of scores."""
        return Scale(*span([point.y for point in self.points], from_zero=False))

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
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
        """Describe the chart in a sentence."""
        return f"{self.title}: {len(self.rows)} systems by {', '.join(self.columns)}."


class PairedPanel(NamedTuple):
    """One way to count, of several side by side."""

    axis: str
    marks: Sequence[Sequence[ChartPoint]]
    """For each row its marks, named by what they are of."""


@dataclass(frozen=True)
class PairedChart:
    """Rows of several marks, the last two joined, in panels side by side."""

    title: str
    rows: Sequence[str]
    panels: Sequence[PairedPanel]

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        marks = dict.fromkeys(point.name for panel in self.panels for row in panel.marks for point in row)
        return f"{', '.join(panel.axis for panel in self.panels)}: {'; '.join(marks)}, for {', '.join(self.rows)}."


Chart = DotChart | ShareChart | BarChart | ScatterChart | HeatMap | PairedChart


def interval_point(name: str, found: Figure) -> ChartPoint:
    """Return the mark of a mean with its interval."""
    return _point(name, found.value, found)


def _point(name: str, value: float, found: Figure | None, *, own: bool = True, oracle: bool = False) -> ChartPoint:
    low, high = (None, None) if found is None else (100 * end for end in found.ends)
    shape, tone = ("diamond", "soft") if oracle else ("disc", "own") if own else ("diamond", "pub")
    return ChartPoint(f"{name} (oracle)" if oracle else name, 100 * value, low, high, shape, not oracle, tone)


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
        """Describe the chart in a sentence."""
        shown = "; ".join(
            f"{name}: {', '.join(f'{line.name} {line.y[0]:.1f} to {line.y[-1]:.1f}' for line in lines)}"
            for name, lines in self.panels
        )
        return f"{self.y_axis} against {self.x_axis}. {shown}."


class FunnelStep(NamedTuple):
    """Questions left after a step."""

    name: str
    left: int
    why: str
    """What most of the others were dropped for; empty where none was."""


@dataclass(frozen=True)
class FunnelChart:
    """Questions left after each step, the first on top."""

    title: str
    steps: Sequence[FunnelStep]

    @property
    def most(self) -> int:
        """Return the length of the longest bar."""
        return max((step.left for step in self.steps), default=1) or 1

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        return "Questions left: " + ", ".join(f"{step.name} {step.left:,}" for step in self.steps) + "."


class UpSetColumn(NamedTuple):
    """Positives that exactly these members found."""

    members: tuple[bool, ...]
    """For each member of the chart whether it is one of them."""
    positives: int
    said: str


@dataclass(frozen=True)
class UpSetChart:
    """Overlap of the findings of members: a column for each combination, with dots for the members in it."""

    title: str
    axis: str
    members: Sequence[str]
    totals: Sequence[int]
    """How many each member found."""
    columns: Sequence[UpSetColumn]
    """The largest first."""
    rest: int
    """Positives of combinations that are not drawn."""

    @property
    def most(self) -> int:
        """Return the height of the highest column."""
        return max((column.positives for column in self.columns), default=1) or 1

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        return f"{self.axis}. " + "; ".join(f"{column.said}: {column.positives:,}" for column in self.columns[:5]) + "."


class ScoreBubble(NamedTuple):
    """Pairs with the same scores on both axes."""

    x: float
    y: float
    pairs: int
    verdict: str


@dataclass(frozen=True)
class ScoreChart:
    """Judged pairs by their scores on two axes, larger the more they are, with the cuts as lines."""

    title: str
    x_axis: str
    y_axis: str
    bubbles: Sequence[ScoreBubble]
    cut: tuple[float, float]
    """Where positives begin."""
    band: tuple[float, float]
    """Where the band begins."""
    ends: tuple[float, float]
    """The lowest and the highest score there is, or that the cuts are at."""

    @property
    def most(self) -> int:
        """Return the number of pairs in the largest bubble."""
        return max((bubble.pairs for bubble in self.bubbles), default=1)

    @property
    def counts(self) -> dict[str, int]:
        """Count pairs by verdict."""
        names = (POSITIVE, BAND, NEGATIVE)
        return {name: sum(each.pairs for each in self.bubbles if each.verdict == name) for name in names}

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        counts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items())
        return f"{counted(sum(self.counts.values()), 'pair')} by both scores: {counts}."


HealthChart = FunnelChart | UpSetChart | ScoreChart


class PairDot(NamedTuple):
    """Queries with the same two scores, as far as a drawing tells them apart."""

    a: float
    b: float
    """Scores from 0 to 1."""
    queries: int
    said: str
    href: str


@dataclass(frozen=True)
class PairScatter:
    """A's scores against B's, query by query; what lies above the diagonal B does better."""

    title: str
    x_axis: str
    y_axis: str
    dots: Sequence[PairDot]

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        above, below = (
            sum(dot.queries for dot in self.dots if (dot.b > dot.a if better else dot.b < dot.a))
            for better in (True, False)
        )
        return f"{self.y_axis} against {self.x_axis}: {above} queries above the diagonal, {below} below it."


FLOWS = ("both right", "broken", "fixed", "both wrong")
"""Every way from an answer without passages to the one with them."""


class Band(NamedTuple):
    """One flow of an alluvial chart: where it starts and ends from the top, and how wide it is, in shares of all."""

    name: str
    answers: int
    start: float
    end: float
    width: float


@dataclass(frozen=True)
class FlowRow:
    """An arm: how many answers went which way, in the order of `FLOWS`."""

    name: str
    counts: tuple[int, int, int, int]

    @property
    def total(self) -> int:
        """Return the number of all questions."""
        return sum(self.counts)

    @property
    def bands(self) -> list[Band]:
        """Return the flows from top to bottom: right above wrong on either side."""
        shares = dict(zip(FLOWS, (count / max(1, self.total) for count in self.counts), strict=True))
        counts = dict(zip(FLOWS, self.counts, strict=True))
        starts = _stacked(["both right", "broken", "fixed", "both wrong"], shares)
        ends = _stacked(["both right", "fixed", "broken", "both wrong"], shares)
        return [Band(name, counts[name], starts[name], ends[name], shares[name]) for name in FLOWS]


def _stacked(order: Sequence[str], shares: dict[str, float]) -> dict[str, float]:
    """Return the start of each flow when flows are stacked in an order."""
    return {name: sum(shares[other] for other in order[:place]) for place, name in enumerate(order)}


@dataclass(frozen=True)
class FlowChart:
    """Flows of right and wrong answers from without passages to with them, an alluvial diagram for each arm."""

    title: str
    axis: str
    rows: Sequence[FlowRow]

    @property
    def looks(self) -> dict[str, Fill]:
        """Return the fill of each flow."""
        return dict(zip(FLOWS, fills(len(FLOWS)), strict=True))

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        said = [f"{row.name}: {', '.join(f'{b.answers} {b.name}' for b in row.bands)}" for row in self.rows[:5]]
        return f"{self.axis}. {'; '.join(said)}."


class TrendPoint(NamedTuple):
    """A system by its retrieval and its right answers, with the interval of these."""

    name: str
    number: int
    x: float
    y: float
    low: float
    high: float


class Level(NamedTuple):
    """A line across, for what has no place along the axis."""

    name: str
    y: float


@dataclass(frozen=True)
class TrendChart:
    """Right answers against retrieval, a mark a system, with the fitted line."""

    title: str
    x_axis: str
    y_axis: str
    points: Sequence[TrendPoint]
    levels: Sequence[Level]
    slope: float | None
    """The rise of y for a rise of x by 1."""

    @property
    def x_scale(self) -> Scale:
        """Return a scale that holds every mark."""
        return Scale(*span([point.x for point in self.points], from_zero=False))

    @property
    def y_scale(self) -> Scale:
        """Return a scale that holds every interval and line."""
        ends = [end for point in self.points for end in (point.low, point.high)]
        return Scale(*span([*ends, *(level.y for level in self.levels)], from_zero=False))

    @property
    def line(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """Return the ends of the fitted line, over the range of the points."""
        if self.slope is None or len(self.points) < 2:
            return None
        x, y = (sum(getattr(point, side) for point in self.points) / len(self.points) for side in "xy")
        ends = [min(point.x for point in self.points), max(point.x for point in self.points)]
        first, last = ((end, y + self.slope * (end - x)) for end in ends)
        return first, last

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        said = "; ".join(f"{point.name} {point.y:.1f} at {point.x:.1f}" for point in self.points)
        return f"{self.y_axis} against {self.x_axis}. {said}."


RagChart = DotChart | FlowChart | TrendChart
CHARTED = 30
"""Lines that a chart has room for."""
_TITLE, _ANCHOR = "Causes of failure", "causes"


@dataclass(frozen=True)
class Panel:
    """A chart with what it shows in words."""

    title: str
    note: str
    chart: Markup
    name: str = ""
    """The anchor."""

"""Marks by two figures: systems by cost or retrieval and score, judged pairs and queries by two scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.data.labels import BAND, NEGATIVE, POSITIVE
from r2med.formatting import counted
from r2med.render.charts.chart import Chart, figure
from r2med.render.charts.drawing import (
    ChartPoint,
    Layout,
    axis,
    draw_mark,
    hint,
    mark_number,
    part,
    rungs,
    shortened,
    tag,
    words,
)
from r2med.render.charts.scale import Scale, number_corners, span


class ScatterPoint(NamedTuple):
    """A system by what it costs and what it scores."""

    name: str
    x: float
    y: float
    best: bool  # whether nothing is better for as little
    number: int | None  # under which it is named; None where it is not


@dataclass(frozen=True, eq=False)
class ScatterChart(Chart):
    """Score against cost, with a stair along what nothing beats for as little."""

    title: str
    x_axis: str
    y_axis: str
    points: Sequence[ScatterPoint]  # the best score first
    caption = "filled: nothing better for as little"

    @property
    def stair(self) -> list[ScatterPoint]:
        """Return the points on the frontier, the cheapest first."""
        return sorted((point for point in self.points if point.best), key=lambda point: point.x)

    @property
    def equal_costs(self) -> bool:
        """Return whether all points cost the same, so that there is nothing to set the score against."""
        return len({point.x for point in self.points}) == 1

    @property
    def has_free(self) -> bool:
        """Return whether some point costs nothing, for which a logarithmic scale has no place."""
        return any(point.x <= 0 for point in self.points)

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        best = "; ".join(f"{point.name} {point.y:.2f} at {point.x:.4g}" for point in self.stair)
        return f"{self.y_axis} against {self.x_axis}. Nothing is better for as little: {best}."

    def figures(self) -> list[Sequence[str]]:
        """Return scores and costs."""
        points = [(point.name, figure(point.y), f"{point.x:.4g}") for point in self.points]
        return [("", self.y_axis, self.x_axis), *points]

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw the frontier as a stair, systems on it filled, and a legend of numbers."""
        costs = [point.x for point in self.points if point.x > 0] or [1.0]
        left, right = (110 if self.has_free else 60), _right(layout)
        x = Scale(min(costs) / 1.6, max(costs) * 1.6, left, right, logarithmic=True)
        y = Scale(*span([point.y for point in self.points], from_zero=False), 290, 28)
        places = [(x(point.x) if point.x > 0 else 70.0, y(point.y)) for point in self.points]
        parts = _frame(self, x, y)
        parts += [words(70, 305, "free", class_="tick", text_anchor="middle")] if self.has_free else []
        (start, high), *steps = [places[self.points.index(point)] for point in self.stair]
        line = "".join(f"H{step:.1f}V{up:.1f}" for step, up in steps)
        parts.append(tag("path", d=f"M{start:.1f} {high:.1f}{line}H{right}", class_="stair"))
        corners = number_corners([(here, -up) for here, up in places])
        for point, (here, up), corner in zip(self.points, places, corners, strict=True):
            label = f"{point.name}: {self.y_axis} {point.y:.2f}, {point.x:.4g} {self.x_axis}"
            mark = draw_mark(ChartPoint(point.name, point.y, filled=point.best), here, up, 5)
            parts.append(part(label, mark, mark_number(point.number, here, up, corner)))
        named = [point for point in self.points if point.number is not None]
        legend = [(f"{point.number}  {shortened(point.name, 44)}", point.best) for point in named]
        if others := len(self.points) - len(named):
            legend.append((f"{counted(others, 'other')}, not named: rings", False))
        return _legend(layout, parts, [(line, "name best" if best else "name soft") for line, best in legend])


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


@dataclass(frozen=True, eq=False)
class TrendChart(Chart):
    """Right answers against retrieval, a mark a system, with the fitted line."""

    title: str
    x_axis: str
    y_axis: str
    points: Sequence[TrendPoint]
    levels: Sequence[Level]
    slope: float | None  # the rise of y for a rise of x by 1

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        points = "; ".join(f"{point.name} {point.y:.1f} at {point.x:.1f}" for point in self.points)
        return f"{self.y_axis} against {self.x_axis}. {points}."

    def figures(self) -> list[Sequence[str]]:
        """Return systems with their intervals, then the levels."""
        systems = [(p.name, *map(figure, (p.x, p.y, p.low, p.high))) for p in self.points]
        levels = [(level.name, *map(figure, (None, level.y, None, None))) for level in self.levels]
        return [("", self.x_axis, self.y_axis, "from", "to"), *systems, *levels]

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw a mark per system with its interval, the fitted line, and horizontal lines for closed and gold."""
        right = _right(layout)
        x = Scale(*span([point.x for point in self.points], from_zero=False), 60, right)
        ends = [end for point in self.points for end in (point.low, point.high)]
        y = Scale(*span([*ends, *(level.y for level in self.levels)], from_zero=False), 290, 28)
        parts = _frame(self, x, y)
        for level in self.levels:
            parts.append(tag("line", x1=50, x2=right, y1=y(level.y), y2=y(level.y), class_="zero"))
            parts.append(words(right, y(level.y) - 4, level.name, class_="tick", text_anchor="end"))
        if self.slope is not None and len(self.points) > 1:
            middle, mean = (sum(getattr(point, side) for point in self.points) / len(self.points) for side in "xy")
            low, high = min(point.x for point in self.points), max(point.x for point in self.points)
            starts, stops = (y(mean + self.slope * (end - middle)) for end in (low, high))
            parts.append(tag("path", d=f"M{x(low):.1f} {starts:.1f}L{x(high):.1f} {stops:.1f}", class_="stair"))
        corners = number_corners([(x(point.x), -y(point.y)) for point in self.points])
        for point, corner in zip(self.points, corners, strict=True):
            here, up = x(point.x), y(point.y)
            spread = tag("line", x1=here, x2=here, y1=y(point.low), y2=y(point.high), class_="range own")
            disc = draw_mark(ChartPoint(point.name, point.y), here, up, 5)
            text = f"{point.name}: {point.y:.2f}, 95% interval {point.low:.2f} to {point.high:.2f}, at {point.x:.2f}"
            parts.append(part(text, spread, disc, mark_number(point.number, here, up, corner)))
        legend = [(f"{point.number}  {shortened(point.name, 44)}", "name") for point in self.points]
        return _legend(layout, parts, legend)


class ScoreBubble(NamedTuple):
    """Pairs with the same scores on both axes."""

    x: float
    y: float
    pairs: int
    verdict: str


_OTHER = ChartPoint("", 0, filled=False, tone="soft")
_VERDICTS = {
    POSITIVE: ChartPoint("", 0, shape="diamond"),
    BAND: ChartPoint("", 0, shape="square", filled=False, tone="pub"),
}


@dataclass(frozen=True, eq=False)
class ScoreChart(Chart):
    """Judged pairs by their scores on two axes, larger the more they are, with the cuts as lines."""

    title: str
    x_axis: str
    y_axis: str
    bubbles: Sequence[ScoreBubble]
    cut: tuple[float, float]  # where positives begin
    band: tuple[float, float]  # where the band begins
    ends: tuple[float, float]  # the lowest and the highest score there is, or that the cuts are at

    @property
    def counts(self) -> dict[str, int]:
        """Count pairs by verdict."""
        names = (POSITIVE, BAND, NEGATIVE)
        return {name: sum(bubble.pairs for bubble in self.bubbles if bubble.verdict == name) for name in names}

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        counts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items())
        return f"{counted(sum(self.counts.values()), 'pair')} by both scores: {counts}."

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw marks by both scores, their area by the number of pairs, and the cuts as lines."""
        low, high = self.ends
        room, right = 0.2 * (high - low), layout.width - (10 if layout.above else 340)
        x, y = Scale(low - room, high + room, 50, right), Scale(low - room, high + room, 290, 28)
        parts = _frame(self, x, y)
        for (at_x, at_y), look in ((self.cut, "cut"), (self.band, "cut band")):
            corner = f"M{x(at_x) - 4:.1f} 28V{y(at_y) + 4:.1f}H{right}"
            parts.append(tag("path", d=corner, class_=look))
        most = max((bubble.pairs for bubble in self.bubbles), default=1)
        for bubble in sorted(self.bubbles, key=lambda bubble: -bubble.pairs):
            point, radius = _VERDICTS.get(bubble.verdict, _OTHER), 5 + 17 * (bubble.pairs / most) ** 0.5
            mark = draw_mark(point, x(bubble.x), y(bubble.y), radius)
            look = "cell on-dark" if point.filled and radius > 9 else "cell"
            number = words(x(bubble.x), y(bubble.y) + 4, f"{bubble.pairs:,}", class_=look)
            parts.append(part(f"{bubble.verdict}, {bubble.x:g} and {bubble.y:g}: {bubble.pairs:,} pairs", mark, number))
        left, top = (4, 336) if layout.above else (right + 28, 36)
        for row, (name, count) in enumerate(self.counts.items()):
            parts.append(draw_mark(_VERDICTS.get(name, _OTHER), left + 6, top + 19 * row + 9))
            parts.append(words(left + 18, top + 19 * row + 13, f"{name}: {count:,} pairs", class_="name"))
        for row, (look, text) in enumerate((("cut", "cut of positives"), ("cut band", "cut of the band")), 3):
            middle = top + 19 * row + 9
            parts.append(tag("path", d=f"M{left} {middle}H{left + 13}", class_=look))
            parts.append(words(left + 18, middle + 4, text, class_="name"))
        return max(334, top + 19 * 5 + 4), parts


class PairDot(NamedTuple):
    """Queries with the same two scores, as far as a drawing tells them apart."""

    a: float
    b: float  # scores from 0 to 1
    queries: int
    label: str
    href: str


_LARGEST = 11.0  # the radius of the mark with the most queries


@dataclass(frozen=True, eq=False)
class PairScatter(Chart):
    """A's scores against B's, query by query; what lies above the diagonal B does better."""

    title: str
    x_axis: str
    y_axis: str
    dots: Sequence[PairDot]

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        above = sum(dot.queries for dot in self.dots if dot.b > dot.a)
        below = sum(dot.queries for dot in self.dots if dot.b < dot.a)
        return f"{self.y_axis} against {self.x_axis}: {above} queries above the diagonal, {below} below it."

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw marks whose area grows with their queries: filled above the diagonal, hollow below, a square on it."""
        left, right, top, bottom = 40, layout.width - 14, 24, layout.width - 14
        x, y = Scale(0, 100, left, right), Scale(0, 100, bottom, top)
        parts = [words(4, 12, shortened(self.y_axis, 46), class_="tick"), axis(x, float(top), float(bottom))]
        parts += rungs(y, x(0), x(100), 5)
        parts.append(tag("line", x1=x(0), x2=x(100), y1=y(0), y2=y(100), class_="stair"))
        label = shortened(self.x_axis, 46)
        parts.append(words((x(0) + x(100)) / 2, y(0) + 32, label, class_="tick", text_anchor="middle"))
        # The smaller ones lie on top, so that each can be reached.
        for dot in sorted(self.dots, key=lambda dot: -dot.queries):
            equal = dot.a == dot.b
            shape, tone = ("square", "soft") if equal else ("disc", "own")
            look = ChartPoint("", 0, shape=shape, filled=dot.b > dot.a, tone=tone)
            mark = draw_mark(look, x(100 * dot.a), y(100 * dot.b), min(_LARGEST, 3.4 * dot.queries**0.5))
            link = {"href": dot.href, "aria_label": dot.label, "tabindex": -1, "class_": "dot"}
            parts.append(tag("a", hint(dot.label), mark, **link))
        return y(0) + 40, parts


def _right(layout: Layout) -> float:
    """Return the right end of the axis, beside or above the legend."""
    return layout.width - (10 if layout.above else 360)


def _frame(chart: ScatterChart | TrendChart | ScoreChart, x: Scale, y: Scale) -> list[str]:
    label = words((x.end + 50) / 2, 324, chart.x_axis, class_="tick", text_anchor="middle")
    return [axis(x, 28, 290), label, words(4, 12, chart.y_axis, class_="tick"), *rungs(y, 50, x.end)]


def _legend(layout: Layout, parts: list[str], lines: Sequence[tuple[str, str]]) -> tuple[float, list[str]]:
    """Add the names of numbered marks beside the chart or below it; return the height of all."""
    left, top = (4, 336) if layout.above else (layout.width - 338, 28)
    legend = [words(left, top + 19 * row + 13, text, class_=look) for row, (text, look) in enumerate(lines)]
    return max(330, top + 19 * len(lines) + 4), [*parts, *legend]

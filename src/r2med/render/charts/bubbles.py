"""Things counted by two scores, in marks that grow with their number: judged pairs, and queries of two systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.data.labels import BAND, NEGATIVE, POSITIVE
from r2med.formatting import counted
from r2med.render.charts.chart import Chart
from r2med.render.charts.drawing import (
    ChartPoint,
    Layout,
    axis,
    draw_bubble,
    draw_mark,
    hint,
    part,
    rungs,
    shortened,
    tag,
    words,
)
from r2med.render.charts.scale import Scale


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
        parts = [words(4, 12, self.y_axis, class_="tick"), axis(x, 28, 290)]
        parts.append(words((right + 50) / 2, 324, self.x_axis, class_="tick", text_anchor="middle"))
        parts += rungs(y, 50, right)
        for (at_x, at_y), look in ((self.cut, "cut"), (self.band, "cut band")):
            corner = f"M{x(at_x) - 4:.1f} 28V{y(at_y) + 4:.1f}H{right}"
            parts.append(tag("path", d=corner, class_=look))
        most = max((bubble.pairs for bubble in self.bubbles), default=1)
        for bubble in sorted(self.bubbles, key=lambda bubble: -bubble.pairs):
            point, radius = _VERDICTS.get(bubble.verdict, _OTHER), 5 + 17 * (bubble.pairs / most) ** 0.5
            mark = draw_bubble(point, x(bubble.x), y(bubble.y), radius)
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
            mark = draw_bubble(look, x(100 * dot.a), y(100 * dot.b), min(_LARGEST, 3.4 * dot.queries**0.5), 1.7)
            link = {"href": dot.href, "aria_label": dot.label, "tabindex": -1, "class_": "dot"}
            parts.append(tag("a", hint(dot.label), mark, **link))
        return y(0) + 40, parts

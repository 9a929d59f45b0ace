"""The queries of two systems as a scatter, A's score against B's, every mark a link to its queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.render.chart_layout import Layout, draw_mark
from r2med.render.charts import ChartPoint
from r2med.render.scale import Scale, tick_text
from r2med.render.svg import axis, hint, shortened, tag, words

SQUARE = Layout("square", 340, 0, 38, 42)
"""One layout for every width: the chart is as wide as a phone, and not much wider elsewhere."""
_LARGEST = 11.0
"""The radius of the mark with the most queries."""


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
        """The chart in a sentence."""
        above, below = (
            sum(dot.queries for dot in self.dots if (dot.b > dot.a if better else dot.b < dot.a))
            for better in (True, False)
        )
        return f"{self.y_axis} against {self.x_axis}: {above} queries above the diagonal, {below} below it."


def draw_pairs(chart: PairScatter, layout: Layout) -> tuple[float, list[str]]:
    """Marks whose area grows with their queries: filled above the diagonal, hollow below, a square on it."""
    x, y = Scale(0, 100, 40, layout.width - 14), Scale(0, 100, layout.width - 14, 24)
    bottom = y(0)
    parts = [words(4, 12, shortened(chart.y_axis, 46), class_="tick"), axis(x, y(100), bottom)]
    for tick in y.ticks():
        parts.append(tag("line", x1=x(0), x2=x(100), y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(words(x(0) - 5, y(tick) + 4, tick_text(tick), class_="tick", text_anchor="end"))
    parts.append(tag("line", x1=x(0), x2=x(100), y1=bottom, y2=y(100), class_="stair"))
    label = shortened(chart.x_axis, 46)
    parts.append(words((x(0) + x(100)) / 2, bottom + 32, label, class_="tick", text_anchor="middle"))
    # The smaller ones lie on top, so that each can be reached.
    for dot in sorted(chart.dots, key=lambda dot: -dot.queries):
        look = ChartPoint("", 0, shape="square" if dot.a == dot.b else "disc", filled=dot.b > dot.a)
        radius = min(_LARGEST, 3.4 * dot.queries**0.5)
        mark = _mark(look, x(100 * dot.a), y(100 * dot.b), radius)
        parts.append(tag("a", hint(dot.said), mark, href=dot.href, aria_label=dot.said, tabindex=-1, class_="dot"))
    return bottom + 40, parts


def _mark(look: ChartPoint, x: float, y: float, radius: float) -> str:
    if look.shape != "square":
        return draw_mark(look, x, y, radius)
    side = 1.7 * radius
    return tag("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, class_="mark soft hollow")

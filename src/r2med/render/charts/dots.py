"""Rows of marks: figures with their intervals, and several marks a row in panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.render.charts.chart import Chart, figure
from r2med.render.charts.drawing import ChartPoint, Layout, axis, draw_mark, part, tag, whisker, words
from r2med.render.charts.scale import Scale, legend_columns, span


@dataclass(frozen=True, eq=False)
class DotChart(Chart):
    """Figures with their intervals, a row each, the first on top.

    >>> DotChart("Scores", "nDCG@10 x 100", [ChartPoint("bm25", 36.06, 30.1, 41.5)]).figures()
    [('', 'nDCG@10 x 100', 'from', 'to'), ('bm25', '36.06', '30.10', '41.50')]
    """

    title: str
    axis: str  # what is counted along the axis
    points: Sequence[ChartPoint]
    differences: bool = False  # whether figures have signs and the line at 0 stands out
    heading: str = ""

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        return f"{self.axis}. " + "; ".join(point.describe(signed=self.differences) for point in self.points[:5]) + "."

    @property
    def caption(self) -> str:
        """Return what is counted along the axis."""
        return self.axis

    def figures(self) -> list[Sequence[str]]:
        """Return the figures with the ends of their intervals."""
        sign = "+" if self.differences else ""
        rows = [(p.name, *(figure(value, sign) for value in (p.value, p.low, p.high))) for p in self.points]
        return [("", self.axis, "from", "to"), *rows]

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw a row per figure: its name, the mark with its interval, the figure."""
        layout = layout.fitted([point.name for point in self.points])
        ends = [end for point in self.points for end in (point.value, point.low, point.high) if end is not None]
        low, high = span([*ends, 0.0] if self.differences else ends, from_zero=False)
        scale = Scale(low, high, layout.label + 12, layout.width - (12 if layout.above else 58))
        bottom = 8 + layout.row * len(self.points)
        rows = [axis(scale, 4, bottom, zero=self.differences)]
        for place, point in enumerate(self.points):
            top = 8 + layout.row * place
            y = top + (layout.row - 10 if layout.above else layout.row / 2)
            value = f"{point.value:+.2f}".replace("-", "\N{MINUS SIGN}") if self.differences else f"{point.value:.2f}"
            rows.append(
                part(
                    point.describe(signed=self.differences),
                    tag("rect", x=0, y=top, width=layout.width, height=layout.row),
                    layout.name_of(y, point.name),
                    whisker(point, scale, y),
                    words(layout.width, y - 13 if layout.above else y + 4, value, class_="value", text_anchor="end"),
                    class_="row",
                )
            )
        return bottom + 22, rows


class PairedPanel(NamedTuple):
    """One way to count, of several side by side."""

    axis: str
    marks: Sequence[Sequence[ChartPoint]]  # for each row its marks, named by what they are of


@dataclass(frozen=True, eq=False)
class PairedChart(Chart):
    """Rows of several marks, the last two joined, in panels side by side."""

    title: str
    rows: Sequence[str]
    panels: Sequence[PairedPanel]

    @property
    def legend(self) -> dict[str, ChartPoint]:
        """Return a mark of each kind, by its name."""
        return {point.name: point for panel in self.panels for row in panel.marks for point in row}

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        axes = ", ".join(panel.axis for panel in self.panels)
        return f"{axes}: {'; '.join(self.legend)}, for {', '.join(self.rows)}."

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw the panels side by side, below a legend."""
        layout = layout.fitted(self.rows)
        columns = legend_columns(list(self.legend), layout.width // 7)
        parts = []
        for place, mark in enumerate(self.legend.values()):
            x, y = 10.0 + (layout.width - 20) / columns * (place % columns), 12.0 + 20 * (place // columns)
            parts += [draw_mark(mark, x, y), words(x + 12, y + 4, mark.name, class_="name")]
        top = 12 + 20 * -(-len(self.legend) // columns)
        bottom = top + 8 + layout.row * len(self.rows)
        middles = [top + 4 + layout.row * (row + 0.5) for row in range(len(self.rows))]
        parts += [layout.name_of(y, name) for y, name in zip(middles, self.rows, strict=True)]
        wide = (layout.width - layout.label) / len(self.panels)
        for number, panel in enumerate(self.panels):
            left = layout.label + wide * number + 16
            most = max((point.value for points in panel.marks for point in points), default=1.0)
            scale = Scale(0.0, 1.05 * most, left, left + wide - 32)
            parts += [axis(scale, top, bottom), tag("line", x1=left, x2=left, y1=top, y2=bottom, class_="zero")]
            label = words(left + wide / 2 - 16, bottom + 34, panel.axis, class_="tick", text_anchor="middle")
            parts.append(label)
            for y, points in zip(middles, panel.marks, strict=True):
                ends = [scale(point.value) for point in points[-2:]]
                parts.append(tag("line", x1=min(ends), x2=max(ends), y1=y, y2=y, class_="range soft") if ends else "")
                parts += [part(point.describe(), draw_mark(point, scale(point.value), y)) for point in points]
        return bottom + 42, parts

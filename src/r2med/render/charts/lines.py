"""Curves over one axis, in panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

from r2med.render.charts.chart import Chart
from r2med.render.charts.drawing import Layout, axis, part, rungs, shortened, tag, words
from r2med.render.charts.scale import Scale, legend_columns, span
from r2med.render.palette import shades

_DASHES = ("", "10 3", "4 2", "12 3 3 3", "2 2", "16 6", "6 6")
"""Patterns of strokes: curves differ in them as well as in their shades."""


class ChartLine(NamedTuple):
    """One curve: its points, and where the band around it lies."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    straight: bool = False  # whether it is what chance would give: drawn dotted


@dataclass(frozen=True, eq=False)
class LineChart(Chart):
    """Curves over one axis, a panel for each set of them, side by side; a name looks the same in every panel."""

    title: str
    x_axis: str
    y_axis: str
    panels: Sequence[tuple[str, Sequence[ChartLine]]]
    doubling: bool = False  # whether equal steps along the axis are doublings, marked at the points themselves

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        panels = "; ".join(
            f"{name}: {', '.join(f'{line.name} {line.y[0]:.1f} to {line.y[-1]:.1f}' for line in lines)}"
            for name, lines in self.panels
        )
        return f"{self.y_axis} against {self.x_axis}. {panels}."

    @property
    def caption(self) -> str:
        """Return what is counted along the axis."""
        return self.x_axis

    @property
    def looks(self) -> dict[str, dict[str, str]]:
        """Return the stroke of each curve by its name."""
        lines = {line.name: line for _, several in self.panels for line in several}
        drawn = [name for name, line in lines.items() if not line.straight]
        looks = {name: {"stroke": "#666666", "stroke_dasharray": "1.5 3"} for name in lines}
        for name, color, dash in zip(drawn, shades(len(drawn) + 3), cycle(_DASHES), strict=False):
            looks[name] = {"stroke": color} | ({"stroke_dasharray": dash} if dash else {})
        return looks

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw the panels, and below them a legend."""
        looks, wide = self.looks, layout.width / len(self.panels)
        parts = [words(4, 12, self.y_axis, class_="tick")]
        for number, (title, lines) in enumerate(self.panels):
            left, right = wide * number + 44, wide * (number + 1) - 24
            steps = [value for line in lines for value in line.x]
            values = [value for line in lines for several in (line.y, line.low, line.high) for value in several]
            x = Scale(min(steps), max(steps), left, right, logarithmic=self.doubling)
            y = Scale(*span(values, from_zero=False), 270, 48)
            parts.append(words(left, 34, shortened(title, int(wide / 6.6)), class_="name"))
            parts += [axis(x, 48, 270, ticks=sorted(set(steps)) if self.doubling else ()), *rungs(y, left, right)]
            for line in lines:
                if line.low:
                    edge = [*zip(line.x, line.high, strict=True), *reversed([*zip(line.x, line.low, strict=True)])]
                    area = {"d": f"{_path(edge, x, y)}z", "fill": looks[line.name]["stroke"], "opacity": "0.15"}
                    parts.append(tag("path", **area))
                path = _path([*zip(line.x, line.y, strict=True)], x, y)
                curve = tag("path", d=path, class_="curve", **looks[line.name])
                parts.append(part(f"{line.name}: {line.y[0]:.1f} to {line.y[-1]:.1f}", curve))
        columns = legend_columns(list(looks), layout.width // 7)
        for place, (name, look) in enumerate(looks.items()):
            left, row = 4 + layout.width / columns * (place % columns), 304 + 20 * (place // columns)
            parts.append(tag("path", d=f"M{left:.1f} {row}H{left + 30:.1f}", class_="curve", **look))
            parts.append(words(left + 38, row + 4, name, class_="name"))
        return 300 + 20 * -(-len(looks) // columns), parts


def _path(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    return "M" + "L".join(f"{x(here):.1f} {y(up):.1f}" for here, up in points)

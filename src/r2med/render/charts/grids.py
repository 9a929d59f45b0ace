"""Rows by columns: figures in shades, and which members found what together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.render.charts.chart import Chart, figure
from r2med.render.charts.drawing import ChartPoint, Layout, draw_mark, part, shortened, tag, words
from r2med.render.charts.scale import Scale

SHADES = 9
"""How many steps the heat map's scale has."""


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


@dataclass(frozen=True, eq=False)
class HeatMap(Chart):
    """Figures of systems by columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[HeatRow]

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        return f"{self.title}: {len(self.rows)} systems by {', '.join(self.columns)}."

    def figures(self) -> list[Sequence[str]]:
        """Return the figures of every system."""
        rows = [(row.name, *(figure(cell and cell.value) for cell in row.cells)) for row in self.rows]
        return [("", *self.columns), *rows]

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw a shaded cell per figure."""
        layout = layout.fitted([row.name for row in self.rows])
        left = 0 if layout.above else layout.label + 8
        wide = (layout.width - left) / max(1, len(self.columns))
        # Where columns are narrow, every other heading stands lower, so that each has the room of two.
        heads = [14 + 12 * (layout.above and place % 2) for place in range(len(self.columns))]
        parts = [
            words(left + wide * (place + 0.5), y, shortened(column, 12), class_="tick head")
            for place, (column, y) in enumerate(zip(self.columns, heads, strict=True))
        ]
        row_height, top = (40, 36) if layout.above else (24, 22)
        for place, row in enumerate(self.rows):
            y = top + row_height * place + (16 if layout.above else 0)
            parts.append(layout.name_of(y + (8 if layout.above else 12), row.name))
            for number, cell in enumerate(row.cells):
                if cell is not None:
                    x = left + wide * number
                    box = tag("rect", x=x, y=y, width=wide - 2, height=22, rx=3, class_=f"h{cell.shade}")
                    text = words(x + wide / 2 - 1, y + 15, f"{cell.value:.1f}", class_=f"cell t{cell.shade}")
                    parts.append(part(f"{row.name}, {self.columns[number]}: {cell.value:.2f}", box, text))
        return top + 4 + row_height * len(self.rows), parts


class UpSetColumn(NamedTuple):
    """Positives that exactly these members found."""

    members: tuple[bool, ...]
    """For each member of the chart whether it is one of them."""
    positives: int
    label: str


@dataclass(frozen=True, eq=False)
class UpSetChart(Chart):
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
    def description(self) -> str:
        """Describe the chart in a sentence."""
        columns = "; ".join(f"{column.label}: {column.positives:,}" for column in self.columns[:5])
        return f"{self.axis}. {columns}."

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw columns above a table of dots, a row per member."""
        names = [f"{name} ({total:,})" for name, total in zip(self.members, self.totals, strict=True)]
        layout = layout.fitted(names)
        left, row = layout.label + 20, 38 if layout.above else 24
        step = min(44.0, (layout.width - left - 10) / max(1, len(self.columns)))
        most = max((column.positives for column in self.columns), default=1) or 1
        height = Scale(0.0, float(most), 170, 38)
        bottom = 176 + row * len(names)
        middles = [188 + row * place + (10 if layout.above else 0) for place in range(len(names))]
        parts = [words(0, 12, self.axis, class_="tick")]
        parts += [layout.name_of(y, name) for y, name in zip(middles, names, strict=True)]
        for place, column in enumerate(self.columns):
            x, top = left + step * (place + 0.5), height(column.positives)
            inside = [y for y, member in zip(middles, column.members, strict=True) if member]
            dots = [draw_mark(ChartPoint("", 0, tone="own" if y in inside else "none"), x, y, 5) for y in middles]
            line = tag("line", x1=x, x2=x, y1=min(inside), y2=max(inside), class_="joined") if len(inside) > 1 else ""
            bar = tag("rect", x=x - step * 0.32, y=top, width=step * 0.64, height=170 - top, class_="bar")
            number = words(x, top - 5, f"{column.positives:,}", class_="value", text_anchor="middle")
            parts.append(part(f"{column.label}: {column.positives:,}", bar, number, line, *dots))
        if self.rest:
            parts.append(words(left, bottom + 14, f"{self.rest:,} of rarer combinations are not drawn", class_="tick"))
        return bottom + (22 if self.rest else 8), parts

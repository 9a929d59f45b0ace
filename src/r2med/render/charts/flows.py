"""Flows of answers: what became of each between two conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.render.charts.chart import Chart
from r2med.render.charts.drawing import Layout, fill_legend, filled, part, words
from r2med.render.palette import fills

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
        right, broken, fixed, wrong = (count / max(1, self.total) for count in self.counts)
        starts = (0.0, right, right + broken, right + broken + fixed)
        ends = (0.0, right + fixed, right, right + broken + fixed)
        rows = zip(FLOWS, self.counts, starts, ends, (right, broken, fixed, wrong), strict=True)
        return [Band(*facts) for facts in rows]


@dataclass(frozen=True, eq=False)
class FlowChart(Chart):
    """Flows of right and wrong answers from without passages to with them, an alluvial diagram for each arm."""

    title: str
    axis: str
    rows: Sequence[FlowRow]

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        rows = [f"{row.name}: {', '.join(f'{b.answers} {b.name}' for b in row.bands)}" for row in self.rows[:5]]
        return f"{self.axis}. {'; '.join(rows)}."

    def figures(self) -> list[Sequence[str]]:
        """Return the answers that went each way."""
        return [("", *FLOWS), *((row.name, *map(str, row.counts)) for row in self.rows)]

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw a diagram for each arm, one below the other, below a legend."""
        layout = layout.fitted([row.name for row in self.rows])
        left, right = (30 if layout.above else layout.label + 60), layout.width - 30
        looks = dict(zip(FLOWS, fills(len(FLOWS)), strict=True))
        top, parts = fill_legend(looks, layout, layout.width // 170 if layout.above else len(looks))
        top, high = top + 6, 78
        step = high + (36 if layout.above else 22)
        for number, row in enumerate(self.rows):
            y = top + step * number + (18 if layout.above else 0)
            parts.append(layout.name_of(y + (8 if layout.above else high / 2), row.name))
            for band in sorted(row.bands, key=lambda band: -band.width):
                if band.answers:
                    outline = _outline(left, right, y + high * band.start, y + high * band.end, high * band.width)
                    text = f"{row.name}: {band.name} {band.answers} of {row.total}"
                    parts.append(part(text, filled("path", looks[band.name], layout, d=outline)))
                    if band.width >= 0.12:
                        for x, edge, anchor in ((left - 6, band.start, "end"), (right + 6, band.end, "start")):
                            middle = y + high * (edge + band.width / 2) + 4
                            parts.append(words(x, middle, str(band.answers), class_="tick", text_anchor=anchor))
        bottom = top + step * len(self.rows)
        parts.append(words(left, bottom + 4, "without passages", class_="tick"))
        parts.append(words(right, bottom + 4, "with passages", class_="tick", text_anchor="end"))
        return bottom + 14, parts


def _outline(left: float, right: float, start: float, end: float, width: float) -> str:
    """Return the outline of a flow from one side to the other."""
    middle, low, deep = (left + right) / 2, start + width, end + width
    return (
        f"M{left:.1f} {start:.1f}C{middle:.1f} {start:.1f} {middle:.1f} {end:.1f} {right:.1f} {end:.1f}"
        f"V{deep:.1f}C{middle:.1f} {deep:.1f} {middle:.1f} {low:.1f} {left:.1f} {low:.1f}z"
    )

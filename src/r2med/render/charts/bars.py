"""Bars and bands: shares of a whole, groups side by side, funnels, columns over a table of dots, flows of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.measure.figure import Figure
from r2med.render.charts.chart import Chart, figure
from r2med.render.charts.drawing import (
    ChartPoint,
    Layout,
    axis,
    draw_mark,
    fill_legend,
    filled,
    part,
    rungs,
    shortened,
    tag,
    words,
)
from r2med.render.charts.scale import Scale, legend_columns, span
from r2med.render.palette import Fill, fills


class Series(NamedTuple):
    """Meaning, fill and values of one part of the bars."""

    name: str
    fill: Fill
    values: Sequence[float]  # a figure for each row
    intervals: Sequence[Figure] = ()


@dataclass(frozen=True, eq=False)
class ShareChart(Chart):
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

    @property
    def caption(self) -> str:
        """Return what the shares are of."""
        return self.axis

    def figures(self) -> list[Sequence[str]]:
        """Return the shares, a column per part."""
        rows = [(name, *(figure(part.values[row]) for part in self.series)) for row, name in enumerate(self.rows)]
        return [("", *(series.name for series in self.series)), *rows]

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw a bar per row below a legend, with shares that have room for their figures."""
        layout = layout.fitted(self.rows)
        scale = Scale(0, 100, 4 if layout.above else layout.label + 12, layout.width - 20)
        in_line = layout.width // 170 if layout.above else max(1, len(self.series))
        top, parts = fill_legend({series.name: series.fill for series in self.series}, layout, in_line)
        row_height = 42 if layout.above else 26
        bottom = top + row_height * len(self.rows)
        parts.append(axis(scale, top, bottom))
        for row, name in enumerate(self.rows):
            y, done = top + row_height * row + (18 if layout.above else 3), 0.0
            parts.append(layout.name_of(y + (8 if layout.above else 10), name))
            for series in self.series:
                share = series.values[row]
                left, right = scale(done), scale(done + share)
                done += share
                bar = filled("rect", series.fill, layout, x=left, y=y, width=max(0.0, right - left - 1), height=20)
                look = "cell on-dark" if series.fill.dark else "cell on-light"
                number = words((left + right) / 2, y + 14, f"{share:.0f}", class_=look) if right - left >= 20 else ""
                parts.append(part(f"{name}: {series.name} {share:.1f}%", bar, number))
        return bottom + 22, parts


@dataclass(frozen=True, eq=False)
class BarChart(Chart):
    """Bars side by side: a group of them for each task, one a system, with intervals."""

    title: str
    axis: str
    groups: Sequence[str]
    series: Sequence[Series]
    rule: int  # before which group a line is drawn

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        return f"{self.axis} of {len(self.series)} systems on {', '.join(self.groups)}."

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw bars for each group below a legend, one per series, with 95% intervals."""
        looks = {series.name: series.fill for series in self.series}
        top, parts = fill_legend(looks, layout, legend_columns(list(looks), layout.width // 7))
        top, bottom, left = top + 26, top + 240, 44.0
        high = max(interval.percents[2] for series in self.series for interval in series.intervals)
        y = Scale(0.0, span([0.0, high])[1], bottom, top)
        parts += [words(4, top - 12, self.axis, class_="tick"), *rungs(y, left, layout.width)]
        wide = (layout.width - left) / len(self.groups)
        bar = 0.84 * wide / len(self.series)
        for group, name in enumerate(self.groups):
            start = left + wide * (group + 0.5) - bar * len(self.series) / 2
            for place, series in enumerate(self.series):
                value, interval, x = series.values[group], series.intervals[group], start + bar * (place + 0.5)
                _, low, high = interval.percents
                text = f"{series.name}, {name}: {value:.2f}, 95% interval {low:.2f} to {high:.2f}"
                place_of_bar = {"x": x - bar / 2, "y": y(value), "width": bar, "height": bottom - y(value)}
                box = filled("rect", series.fill, layout, **place_of_bar)
                # White below black is seen on dark bars as on light ones.
                line = f"M{x:.1f} {y(low):.1f}V{y(high):.1f}"
                spread = [tag("path", d=line, class_=look) for look in ("spread back", "spread")]
                parts.append(part(text, box, *spread))
            middle = left + wide * (group + 0.5)
            parts.append(words(middle, bottom + 15, name, class_="tick", text_anchor="middle"))
        rule = left + wide * self.rule
        parts.append(tag("line", x1=rule, x2=rule, y1=top, y2=bottom, class_="stair"))
        return bottom + 22, parts


class FunnelStep(NamedTuple):
    """Questions left after a step."""

    name: str
    left: int
    why: str  # what most of the others were dropped for; empty where none was


@dataclass(frozen=True, eq=False)
class FunnelChart(Chart):
    """Questions left after each step, the first on top."""

    title: str
    steps: Sequence[FunnelStep]
    caption = "questions left, and what most others were dropped for"

    @property
    def description(self) -> str:
        """Describe the chart in a sentence."""
        return "Questions left: " + ", ".join(f"{step.name} {step.left:,}" for step in self.steps) + "."

    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Draw bars that grow shorter, with the questions left and why others were dropped."""
        layout = layout.fitted([step.name for step in self.steps])
        left, row = layout.label + 12, layout.row + 6
        most = max((step.left for step in self.steps), default=1) or 1
        scale = Scale(0.0, float(most), left, layout.width - (120 if layout.above else 300))
        parts = []
        for place, step in enumerate(self.steps):
            y = 8 + row * (place + (0.5 if layout.above else 0))
            middle = y + (row / 2 if not layout.above else row / 2 - 6)
            end = scale(step.left)
            bar = tag("rect", x=left, y=middle - 8, width=max(1.0, end - left), height=16, class_="bar")
            number = words(end + 6, middle + 4, f"{step.left:,}", class_="value")
            why = words(end + 60, middle + 4, shortened(step.why, 34), class_="tick") if step.why else ""
            text = f"{step.name}: {step.left:,} left" + (f"; dropped: {step.why}" if step.why else "")
            name = layout.name_of(middle, step.name)
            parts.append(part(text, name, bar, number, "" if layout.above else why))
        return 16 + row * (len(self.steps) + (0.5 if layout.above else 0)), parts


class UpSetColumn(NamedTuple):
    """Positives that exactly these members found."""

    members: tuple[bool, ...]  # for each member of the chart whether it is one of them
    positives: int
    label: str


@dataclass(frozen=True, eq=False)
class UpSetChart(Chart):
    """Overlap of the findings of members: a column for each combination, with dots for the members in it."""

    title: str
    axis: str
    members: Sequence[str]
    totals: Sequence[int]  # how many each member found
    columns: Sequence[UpSetColumn]
    """The largest first."""
    rest: int  # positives of combinations that are not drawn

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
    def bands(self) -> list[Band]:
        """Return the flows from top to bottom: right above wrong on either side."""
        right, broken, fixed, wrong = (count / max(1, sum(self.counts)) for count in self.counts)
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
                    text = f"{row.name}: {band.name} {band.answers} of {sum(row.counts)}"
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

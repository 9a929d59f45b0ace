"""The charts of a study of answers as SVG: flows and trends."""

from __future__ import annotations

from dataclasses import replace

from r2med.render.charts.kinds import ChartPoint, FlowChart, TrendChart
from r2med.render.charts.layout import (
    Layout,
    axis,
    draw_mark,
    filled,
    hatch_name,
    hatches,
    mark_number,
    part,
    shortened,
    tag,
    words,
)
from r2med.render.charts.scale import number_corners, tick_text


def draw_flows(chart: FlowChart, layout: Layout) -> tuple[float, list[str]]:
    """Draw an alluvial diagram for each arm, one below the other."""
    layout = layout.fitted([row.name for row in chart.rows])
    left, right = (30 if layout.above else layout.label + 60), layout.width - 30
    looks = chart.looks
    parts = [hatches(list(looks.values()), layout)]
    in_line = layout.width // 170 if layout.above else len(looks)
    for place, (name, fill) in enumerate(looks.items()):
        x, y = 4 + (layout.width - 20) / in_line * (place % in_line), 4 + 20 * (place // in_line)
        parts.append(filled(fill, layout, x=x, y=y, width=13, height=13))
        parts.append(words(x + 18, y + 11, name, class_="name"))
    top, high = 14 + 20 * -(-len(looks) // in_line), 78
    step = high + (36 if layout.above else 22)
    for number, row in enumerate(chart.rows):
        y = top + step * number + (18 if layout.above else 0)
        parts.append(layout.name_of(y + (8 if layout.above else high / 2), row.name))
        for band in sorted(row.bands, key=lambda band: -band.width):
            if band.answers:
                shape = _band(left, right, y + high * band.start, y + high * band.end, high * band.width)
                said = f"{row.name}: {band.name} {band.answers} of {row.total}"
                fill = looks[band.name]
                drawn = tag("path", d=shape, class_="filled", fill=fill.color)
                hatch = tag("path", d=shape, fill=f"url(#{hatch_name(fill, layout)})") if fill.hatch else ""
                parts.append(part(said, drawn, hatch))
                if band.width >= 0.12:
                    for x, edge, anchor in ((left - 6, band.start, "end"), (right + 6, band.end, "start")):
                        middle = y + high * (edge + band.width / 2) + 4
                        parts.append(words(x, middle, str(band.answers), class_="tick", text_anchor=anchor))
    bottom = top + step * len(chart.rows)
    parts.append(words(left, bottom + 4, "without passages", class_="tick"))
    parts.append(words(right, bottom + 4, "with passages", class_="tick", text_anchor="end"))
    return bottom + 14, parts


def _band(left: float, right: float, start: float, end: float, width: float) -> str:
    """Return the outline of a flow from one side to the other."""
    middle = (left + right) / 2
    return (
        f"M{left:.1f} {start:.1f}C{middle:.1f} {start:.1f} {middle:.1f} {end:.1f} {right:.1f} {end:.1f}"
        f"v{width:.1f}C{middle:.1f} {end + width:.1f} {middle:.1f} {start + width:.1f} {left:.1f} {start + width:.1f}z"
    )


def draw_trend(chart: TrendChart, layout: Layout) -> tuple[float, list[str]]:
    """Draw a mark per system with its interval, the fitted line, and horizontal lines for closed and gold."""
    right = layout.width - 10 if layout.above else 500
    x, y = replace(chart.x_scale, start=60, end=right), replace(chart.y_scale, start=290, end=28)
    parts = [axis(x, 28, 290), words((right + 50) / 2, 324, chart.x_axis, class_="tick", text_anchor="middle")]
    parts.append(words(4, 12, chart.y_axis, class_="tick"))
    for tick in y.ticks():
        parts.append(tag("line", x1=50, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(words(44, y(tick) + 4, tick_text(tick), class_="tick", text_anchor="end"))
    for level in chart.levels:
        parts.append(tag("line", x1=50, x2=right, y1=y(level.y), y2=y(level.y), class_="zero"))
        parts.append(words(right, y(level.y) - 4, level.name, class_="tick", text_anchor="end"))
    if chart.line is not None:
        (x1, y1), (x2, y2) = chart.line
        parts.append(tag("path", d=f"M{x(x1):.1f} {y(y1):.1f}L{x(x2):.1f} {y(y2):.1f}", class_="stair"))
    corners = number_corners([(x(point.x), -y(point.y)) for point in chart.points])
    for point, corner in zip(chart.points, corners, strict=True):
        low, high, here = y(point.low), y(point.high), x(point.x)
        spread = tag("line", x1=here, x2=here, y1=low, y2=high, class_="range own")
        disc = draw_mark(ChartPoint(point.name, point.y), here, y(point.y), 5)
        number = mark_number(point.number, here, y(point.y), corner)
        said = f"{point.name}: {point.y:.2f}, 95% interval {point.low:.2f} to {point.high:.2f}, at {point.x:.2f}"
        parts.append(part(said, spread, disc, number))
    left, top = (4, 336) if layout.above else (522, 28)
    for row, point in enumerate(chart.points):
        line = f"{point.number}  {shortened(point.name, 44)}"
        parts.append(words(left, top + 19 * row + 13, line, class_="name"))
    return max(330, top + 19 * len(chart.points) + 4), parts

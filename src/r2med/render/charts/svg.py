"""Charts as SVG for pages, in three layouts, each with its figures as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import Any

from markupsafe import Markup

from r2med.formatting import harmless
from r2med.render.charts.flow_svg import draw_flows, draw_trend
from r2med.render.charts.kinds import (
    ChartPoint,
    DotChart,
    FlowChart,
    FunnelChart,
    HeatMap,
    PairScatter,
    ScatterChart,
    ScatterPoint,
    ScoreChart,
    ShareChart,
    TrendChart,
    UpSetChart,
)
from r2med.render.charts.layout import (
    MIDDLE,
    NARROW,
    WIDE,
    Layout,
    axis,
    draw_mark,
    drawing,
    filled,
    hatches,
    hint,
    mark_number,
    part,
    shortened,
    tag,
    words,
)
from r2med.render.charts.scale import Scale, number_corners, tick_text
from r2med.render.html import STYLE, static
from r2med.render.palette import LIGHT

Lines = Sequence[Sequence[str]]


def chart_figures(chart: object) -> Lines:
    """Return the head of the table and its lines; nothing for a chart that is not of rows and figures.

    >>> from r2med.render.charts.kinds import ChartPoint
    >>> chart_figures(DotChart("Scores", "nDCG@10 x 100", [ChartPoint("bm25", 36.06, 30.1, 41.5)]))
    [('', 'nDCG@10 x 100', 'from', 'to'), ('bm25', '36.06', '30.10', '41.50')]
    """
    if isinstance(chart, DotChart):
        sign = "+" if chart.differences else ""
        return [
            ("", chart.axis, "from", "to"),
            *((p.name, _figure(p.value, sign), _figure(p.low, sign), _figure(p.high, sign)) for p in chart.points),
        ]
    if isinstance(chart, ShareChart):
        columns = zip(*(series.values for series in chart.series), strict=True)
        lines = [(name, *map(_figure, values)) for name, values in zip(chart.rows, columns, strict=True)]
        return [("", *(series.name for series in chart.series)), *lines]
    if isinstance(chart, ScatterChart):
        points = [(point.name, _figure(point.y), f"{point.x:.4g}") for point in chart.points]
        return [("", chart.y_axis, chart.x_axis), *points]
    if isinstance(chart, FlowChart):
        flows = [(row.name, *(str(band.answers) for band in row.bands)) for row in chart.rows]
        return [("", *chart.looks), *flows]
    if isinstance(chart, TrendChart):
        systems = [(p.name, *map(_figure, (p.x, p.y, p.low, p.high))) for p in chart.points]
        levels = [(level.name, _figure(None), _figure(level.y), _figure(None), _figure(None)) for level in chart.levels]
        return [("", chart.x_axis, chart.y_axis, "from", "to"), *systems, *levels]
    if isinstance(chart, HeatMap):
        lines = [(row.name, *(_figure(cell and cell.value) for cell in row.cells)) for row in chart.rows]
        return [("", *chart.columns), *lines]
    return []


def _figure(value: float | None, sign: str = "") -> str:
    return "\N{EN DASH}" if value is None else f"{value:{sign}.2f}".replace("-", "\N{MINUS SIGN}")


def figures_table(chart: object) -> str:
    """Write the table as markup, behind a line that opens it; nothing if there is none."""
    lines = chart_figures(chart)
    if not lines:
        return ""
    head, *rows = lines
    heads = tag("tr", *(tag("th", escape(harmless(text)) or "&#8203;", scope="col") for text in head))
    body = [
        tag(
            "tr",
            tag("th", escape(harmless(row[0])), scope="row"),
            *(tag("td", escape(text), class_="n") for text in row[1:]),
        )
        for row in rows
    ]
    table = tag("table", tag("thead", heads), tag("tbody", *body))
    scroll = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Figures of the chart")
    return tag("details", tag("summary", "Figures as a table"), scroll, class_="figures")


SQUARE = Layout("square", 340, 0, 38, 42)
"""One layout for every width: the chart is as wide as a phone, and not much wider elsewhere."""
_LARGEST = 11.0
"""The radius of the mark with the most queries."""


def draw_pairs(chart: PairScatter, layout: Layout) -> tuple[float, list[str]]:
    """Draw marks whose area grows with their queries: filled above the diagonal, hollow below, a square on it."""
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


PageChart = (
    DotChart
    | ShareChart
    | ScatterChart
    | HeatMap
    | FunnelChart
    | UpSetChart
    | ScoreChart
    | FlowChart
    | TrendChart
    | PairScatter
)
"""The charts that pages show."""


class _Described:
    """A chart that is known again by all that it says."""

    def __init__(self, chart: PageChart) -> None:
        self.chart, self._text = chart, repr(chart)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Described) and other._text == self._text


def responsive(chart: PageChart) -> Markup:
    """Draw a chart in three layouts, of which the style sheet shows the one that fits, with its figures as a table."""
    return _in_all_layouts(_Described(chart))


@lru_cache(maxsize=128)
def _in_all_layouts(described: _Described) -> Markup:
    """Draw once in all layouts: a page that is requested again shows the same charts."""
    drawings = [draw(described.chart, layout) for layout in (WIDE, MIDDLE, NARROW)]
    return Markup(tag("div", *drawings, figures_table(described.chart), class_="charts"))


def single(chart: PairScatter) -> Markup:
    """Draw a chart in one layout, which suits every width."""
    return Markup(tag("div", draw(chart, SQUARE), class_="charts"))


def draw(chart: PageChart, layout: Layout = WIDE) -> str:
    """Draw a chart as SVG."""
    pen: Callable[[Any, Layout], tuple[float, list[str]]] = _PENS[type(chart)]
    height, parts = pen(chart, layout)
    return drawing((layout.width, height), chart.title, chart.description, *parts, layout=layout.name)


def standalone(chart: PageChart) -> str:
    """Draw a chart as a file that needs no page around it: in the light colours, by the rules of pages."""
    rules = static(STYLE).partition("/* charts */")[2].partition("/* end of charts */")[0]
    colors = ";".join(f"--{name}:{color}" for name, color in LIGHT.items())
    style = tag("style", f"svg{{{colors};background:var(--card)}}{rules}")
    return draw(chart).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1)


def _dots(chart: DotChart, layout: Layout) -> tuple[float, list[str]]:
    layout = layout.fitted([point.name for point in chart.points])
    scale = replace(chart.scale, start=layout.label + 12, end=layout.width - (12 if layout.above else 58))
    bottom = 8 + layout.row * len(chart.points)
    rows = [axis(scale, 4, bottom, zero=chart.differences)]
    for place, point in enumerate(chart.points):
        top = 8 + layout.row * place
        y = top + (layout.row - 10 if layout.above else layout.row / 2)
        value = f"{point.value:+.2f}".replace("-", "\N{MINUS SIGN}") if chart.differences else f"{point.value:.2f}"
        rows.append(
            part(
                point.said(signed=chart.differences),
                tag("rect", x=0, y=top, width=layout.width, height=layout.row),
                layout.name_of(y, point.name),
                whisker(point, scale, y),
                words(layout.width, y - 13 if layout.above else y + 4, value, class_="value", text_anchor="end"),
                class_="row",
            )
        )
    return bottom + 22, rows


def whisker(point: ChartPoint, scale: Scale, y: float, radius: float = 4.5) -> str:
    """Draw a mark with its interval."""
    parts = []
    if point.low is not None and point.high is not None:
        left, right = scale(point.low), scale(point.high)
        facts = {"class_": f"range {point.tone}"}
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, **facts))
        parts += [tag("line", x1=end, x2=end, y1=y - 4, y2=y + 4, **facts) for end in (left, right)]
    return "".join([*parts, draw_mark(point, scale(point.value), y, radius)])


def _heat(chart: HeatMap, layout: Layout) -> tuple[float, list[str]]:
    layout = layout.fitted([row.name for row in chart.rows])
    left = 0 if layout.above else layout.label + 8
    wide = (layout.width - left) / max(1, len(chart.columns))
    # Where columns are narrow, every other heading stands lower, so that each has the room of two.
    heads = [14 + 12 * (layout.above and place % 2) for place in range(len(chart.columns))]
    parts = [
        words(left + wide * (place + 0.5), y, shortened(column, 12), class_="tick head")
        for place, (column, y) in enumerate(zip(chart.columns, heads, strict=True))
    ]
    row_height, top = (40, 36) if layout.above else (24, 22)
    for place, row in enumerate(chart.rows):
        y = top + row_height * place + (16 if layout.above else 0)
        parts.append(layout.name_of(y + (8 if layout.above else 12), row.name))
        for number, cell in enumerate(row.cells):
            if cell is not None:
                x = left + wide * number
                box = tag("rect", x=x, y=y, width=wide - 2, height=22, rx=3, class_=f"h{cell.shade}")
                text = words(x + wide / 2 - 1, y + 15, f"{cell.value:.1f}", class_=f"cell t{cell.shade}")
                parts.append(part(f"{row.name}, {chart.columns[number]}: {cell.value:.2f}", box, text))
    return top + 4 + row_height * len(chart.rows), parts


def _scatter(chart: ScatterChart, layout: Layout) -> tuple[float, list[str]]:
    right = layout.width - 10 if layout.above else 500
    x = replace(chart.x_scale, start=110 if chart.has_free else 60, end=right)
    y = replace(chart.y_scale, start=290, end=28)

    def place(point: ScatterPoint) -> float:
        return x(point.x) if point.x > 0 else 70.0

    parts = [axis(x, 28, 290), words((right + 50) / 2, 324, chart.x_axis, class_="tick", text_anchor="middle")]
    parts.append(words(4, 12, chart.y_axis, class_="tick"))
    parts += [words(70, 305, "free", class_="tick", text_anchor="middle")] if chart.has_free else []
    for tick in y.ticks():
        parts.append(tag("line", x1=50, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(words(44, y(tick) + 4, tick_text(tick), class_="tick", text_anchor="end"))
    steps = [f"H{place(point):.1f}V{y(point.y):.1f}" for point in chart.stair[1:]]
    first = chart.stair[0]
    parts.append(tag("path", d=f"M{place(first):.1f} {y(first.y):.1f}{''.join(steps)}H{right}", class_="stair"))
    corners = number_corners([(place(point), -y(point.y)) for point in chart.points])
    for point, corner in zip(chart.points, corners, strict=True):
        label = f"{point.name}: {chart.y_axis} {point.y:.2f}, {point.x:.4g} {chart.x_axis}"
        mark = draw_mark(ChartPoint(point.name, point.y, filled=point.best), place(point), y(point.y), 5)
        parts.append(part(label, mark, mark_number(point.number, place(point), y(point.y), corner)))
    left, top = (4, 336) if layout.above else (522, 28)
    legend = [(f"{point.number}  {shortened(point.name, 44)}", point.best) for point in chart.named]
    legend += [(chart.unnamed, False)] if chart.unnamed else []
    for row, (line, best) in enumerate(legend):
        parts.append(words(left, top + 19 * row + 13, line, class_="name best" if best else "name soft"))
    return max(330, top + 19 * len(legend) + 4), parts


def _shares(chart: ShareChart, layout: Layout) -> tuple[float, list[str]]:
    layout = layout.fitted(chart.rows)
    scale = Scale(0, 100, 4 if layout.above else layout.label + 12, layout.width - 20)
    in_line = layout.width // 170 if layout.above else max(1, len(chart.series))
    width, parts = (layout.width - 20) / in_line, [hatches([series.fill for series in chart.series], layout)]
    for place, series in enumerate(chart.series):
        x, y = 4 + width * (place % in_line), 4 + 20 * (place // in_line)
        parts.append(filled(series.fill, layout, x=x, y=y, width=13, height=13))
        parts.append(words(x + 18, y + 11, series.name, class_="name"))
    top, row_height = 8 + 20 * -(-len(chart.series) // in_line), 42 if layout.above else 26
    bottom = top + row_height * len(chart.rows)
    parts.append(axis(scale, top, bottom))
    for row, name in enumerate(chart.rows):
        y, done = top + row_height * row + (18 if layout.above else 3), 0.0
        parts.append(layout.name_of(y + (8 if layout.above else 10), name))
        for series in chart.series:
            share = series.values[row]
            left, right = scale(done), scale(done + share)
            done += share
            bar = filled(series.fill, layout, x=left, y=y, width=max(0.0, right - left - 1), height=20)
            look = "cell on-dark" if series.fill.dark else "cell on-light"
            number = words((left + right) / 2, y + 14, f"{share:.0f}", class_=look) if right - left >= 20 else ""
            parts.append(part(f"{name}: {series.name} {share:.1f}%", bar, number))
    return bottom + 22, parts


def _funnel(chart: FunnelChart, layout: Layout) -> tuple[float, list[str]]:
    layout = layout.fitted([step.name for step in chart.steps])
    left, row = layout.label + 12, layout.row + 6
    scale = Scale(0.0, float(chart.most), left, layout.width - (120 if layout.above else 300))
    parts = []
    for place, step in enumerate(chart.steps):
        y = 8 + row * (place + (0.5 if layout.above else 0))
        middle = y + (row / 2 if not layout.above else row / 2 - 6)
        bar = tag("rect", x=left, y=middle - 8, width=max(1.0, scale(step.left) - left), height=16, class_="bar")
        number = words(scale(step.left) + 6, middle + 4, f"{step.left:,}", class_="value")
        why = words(scale(step.left) + 60, middle + 4, shortened(step.why, 34), class_="tick") if step.why else ""
        why = "" if layout.above else why
        said = f"{step.name}: {step.left:,} left" + (f"; dropped: {step.why}" if step.why else "")
        parts.append(part(said, layout.name_of(middle, step.name), bar, number, why))
    return 16 + row * (len(chart.steps) + (0.5 if layout.above else 0)), parts


def _upset(chart: UpSetChart, layout: Layout) -> tuple[float, list[str]]:
    names = [f"{name} ({total:,})" for name, total in zip(chart.members, chart.totals, strict=True)]
    layout = layout.fitted(names)
    left, row = layout.label + 20, 38 if layout.above else 24
    step = min(44.0, (layout.width - left - 10) / max(1, len(chart.columns)))
    height = Scale(0.0, float(chart.most), 170, 38)
    bottom = 176 + row * len(names)
    parts = [words(0, 12, chart.axis, class_="tick")]
    parts += [layout.name_of(188 + row * place + (10 if layout.above else 0), name) for place, name in enumerate(names)]
    for place, column in enumerate(chart.columns):
        x, top = left + step * (place + 0.5), height(column.positives)
        inside = [188 + row * r + (10 if layout.above else 0) for r, member in enumerate(column.members) if member]
        dots = [
            draw_mark(ChartPoint("", 0, tone="own" if y in inside else "none"), x, y, 5)
            for y in (188 + row * r + (10 if layout.above else 0) for r in range(len(names)))
        ]
        line = tag("line", x1=x, x2=x, y1=min(inside), y2=max(inside), class_="joined") if len(inside) > 1 else ""
        bar = tag("rect", x=x - step * 0.32, y=top, width=step * 0.64, height=170 - top, class_="bar")
        number = words(x, top - 5, f"{column.positives:,}", class_="value", text_anchor="middle")
        parts.append(part(f"{column.said}: {column.positives:,}", bar, number, line, *dots))
    if chart.rest:
        parts.append(words(left, bottom + 14, f"{chart.rest:,} of rarer combinations are not drawn", class_="tick"))
    return bottom + (22 if chart.rest else 8), parts


_VERDICT_LOOKS = {"positive": ("diamond", "own", True), "band": ("square", "pub", False)}


def _scores(chart: ScoreChart, layout: Layout) -> tuple[float, list[str]]:
    low, high = chart.ends
    room, right = 0.2 * (high - low), layout.width - 10 if layout.above else 520
    x, y = Scale(low - room, high + room, 50, right), Scale(low - room, high + room, 290, 28)
    parts = [words(4, 12, chart.y_axis, class_="tick"), axis(x, 28, 290)]
    parts.append(words((right + 50) / 2, 324, chart.x_axis, class_="tick", text_anchor="middle"))
    for tick in y.ticks():
        parts.append(tag("line", x1=50, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(words(44, y(tick) + 4, tick_text(tick), class_="tick", text_anchor="end"))
    for (at_x, at_y), look in ((chart.cut, "cut"), (chart.band, "cut band")):
        corner = f"M{x(at_x) - 4:.1f} 28V{y(at_y) + 4:.1f}H{right}"
        parts.append(tag("path", d=corner, class_=look))
    for bubble in sorted(chart.bubbles, key=lambda each: -each.pairs):
        shape, tone, filled = _VERDICT_LOOKS.get(bubble.verdict, ("disc", "soft", False))
        radius = 5 + 17 * (bubble.pairs / chart.most) ** 0.5
        mark = _bubble(ChartPoint("", 0, shape=shape, filled=filled, tone=tone), x(bubble.x), y(bubble.y), radius)
        look = "cell on-dark" if filled and radius > 9 else "cell"
        number = words(x(bubble.x), y(bubble.y) + 4, f"{bubble.pairs:,}", class_=look)
        said = f"{bubble.verdict}, {bubble.x:g} and {bubble.y:g}: {bubble.pairs:,} pairs"
        parts.append(part(said, mark, number))
    left, top = (4, 336) if layout.above else (548, 36)
    for row, (name, count) in enumerate(chart.counts.items()):
        shape, tone, filled = _VERDICT_LOOKS.get(name, ("disc", "soft", False))
        parts.append(draw_mark(ChartPoint("", 0, shape=shape, filled=filled, tone=tone), left + 6, top + 19 * row + 9))
        parts.append(words(left + 18, top + 19 * row + 13, f"{name}: {count:,} pairs", class_="name"))
    for row, (look, text) in enumerate((("cut", "cut of positives"), ("cut band", "cut of the band")), 3):
        middle = top + 19 * row + 9
        parts.append(tag("path", d=f"M{left} {middle}H{left + 13}", class_=look))
        parts.append(words(left + 18, middle + 4, text, class_="name"))
    return max(334, top + 19 * 5 + 4), parts


def _bubble(point: ChartPoint, x: float, y: float, radius: float) -> str:
    """Draw a mark of any size."""
    look = f"mark {point.tone}{'' if point.filled else ' hollow'}"
    if point.shape == "disc":
        return tag("circle", cx=x, cy=y, r=radius, class_=look)
    if point.shape == "square":
        side = 1.8 * radius
        return tag("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, class_=look)
    wide = 1.25 * radius
    corners = f"{wide:.1f} {wide:.1f}l{-wide:.1f} {wide:.1f}l{-wide:.1f} {-wide:.1f}"
    return tag("path", d=f"M{x:.1f} {y - wide:.1f}l{corners}z", class_=look)


_PENS: dict[type, Callable[[Any, Layout], tuple[float, list[str]]]] = {
    FlowChart: draw_flows,
    TrendChart: draw_trend,
    DotChart: _dots,
    ShareChart: _shares,
    ScatterChart: _scatter,
    HeatMap: _heat,
    FunnelChart: _funnel,
    UpSetChart: _upset,
    ScoreChart: _scores,
    PairScatter: draw_pairs,
}

"""The figures behind a chart as a table, for who wants to read them or cannot see the chart."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from r2med.render.charts import DotChart, HeatMap, ScatterChart, ShareChart
from r2med.render.rag_charts import FlowChart, TrendChart
from r2med.render.svg import tag
from r2med.text.unprintable import harmless

Lines = Sequence[Sequence[str]]


def chart_figures(chart: object) -> Lines:
    """The head of the table and its lines; nothing for a chart that is not of rows and figures.

    >>> from r2med.render.charts import ChartPoint
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
    """The table as markup, behind a line that opens it; nothing where there is none."""
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

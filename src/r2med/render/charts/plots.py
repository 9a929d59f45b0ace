"""Charts as figures for papers and slides, as PNG, SVG or PDF: readable at column width and in greyscale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from r2med.errors import R2medError, require_extra
from r2med.formatting import harmless
from r2med.measure.figure import Figure as Mean
from r2med.render.charts.kinds import (
    BarChart,
    ChartPoint,
    DotChart,
    FlowChart,
    FunnelChart,
    LineChart,
    PairedChart,
    ScatterChart,
    ScatterPoint,
    ScoreChart,
    ShareChart,
    TrendChart,
    TrendPoint,
    UpSetChart,
)
from r2med.render.charts.scale import Corner, Scale, legend_columns, number_corners, tick_text
from r2med.render.charts.svg import standalone
from r2med.render.palette import LIGHT, Fill, shades
from r2med.store.files import draft_file, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from r2med.render.charts.kinds import HealthChart, RagChart

PaperChart = (
    DotChart
    | ShareChart
    | BarChart
    | ScatterChart
    | PairedChart
    | FunnelChart
    | UpSetChart
    | ScoreChart
    | FlowChart
    | TrendChart
    | LineChart
)
"""The charts that papers show."""
WIDTH = 6.5
"""Inches: the text width of most papers."""
ENDINGS = (".png", ".svg", ".pdf")
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": LIGHT["line"],
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    # A spec may hold a dollar sign, which is no formula.
    "text.parse_math": False,
    # The same figure is the same file, and its words can be searched and edited.
    "svg.hashsalt": "r2med",
    "svg.fonttype": "none",
}
_SMALL: Any = {"textcoords": "offset points", "fontsize": 6.5}
_SHAPES = {"disc": "o", "square": "s", "diamond": "D", "bar": "|"}


def draw(chart: PaperChart) -> Figure:
    """Draw a chart as a figure."""
    return _PENS[type(chart)](chart)


def save(chart: PaperChart, path: Path) -> None:
    """Write a chart in the format of the file's ending."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise R2medError(f"{path}: a figure ends in {', '.join(ENDINGS)}")
    figure = draw(chart)
    import matplotlib

    facts: dict[str, Any] = {"Title": harmless(chart.title)}
    facts |= {"Date": None} if ending == ".svg" else {}
    with draft_file(path, parents=True) as draft, matplotlib.rc_context(_STYLE):
        figure.savefig(draft, format=ending[1:], dpi=300, metadata=facts)
        if ending == ".svg":
            _describe(Path(draft), chart)


def _describe(file: Path, chart: PaperChart) -> None:
    """Add a description to an SVG file, for screen readers."""
    before, start, after = file.read_text("utf-8").partition("<svg ")
    head, title, rest = after.partition("</title>")
    described = f"{title}\n <desc>{escape(harmless(chart.description))}</desc>"
    file.write_text(f'{before}{start}role="img" {head}{described}{rest}', "utf-8")


@contextmanager
def _drawing(height: float, columns: int = 1, **options: Any) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """Yield a figure with axes side by side, in the style of all figures."""
    require_extra("plots", "matplotlib")
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False, **options)[0]
        yield figure, list(axes)


def _label(name: str, width: int = 34) -> str:
    return fill(name, width, break_on_hyphens=False)


def _mark(axes: Axes, point: ChartPoint, x: float, y: float) -> Any:
    """Draw a mark; returns what a legend needs."""
    size = 9.0 if point.shape == "bar" else 5.5
    color = LIGHT[point.tone]
    look: Any = {"markersize": size, "color": color, "markerfacecolor": color if point.filled else "white", "zorder": 3}
    return axes.plot(x, y, _SHAPES[point.shape], **look)[0]


def _names(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows of a figure, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(-0.6, len(labels) - 0.35)
    axes.grid(axis="y", visible=False)


def _across(axes: Axes, scale: Scale) -> None:
    axes.set_xlim(scale.low, scale.high)
    axes.set_xticks(scale.ticks(), [tick_text(tick) for tick in scale.ticks()])


def _dots(chart: DotChart) -> Figure:
    """Draw marks with intervals, one per row; those that are not differences with their figures."""
    points = list(reversed(chart.points))
    row_height = 0.21 if chart.differences else 0.3
    with _drawing((0.9 if chart.differences else 0.55) + row_height * len(points)) as (figure, (axes,)):
        if chart.differences:
            axes.axvline(0, color="0.3", linewidth=0.9)
        for row, point in enumerate(points):
            if point.low is not None and point.high is not None:
                caps: Any = {"capsize": 0 if chart.differences else 2.5, "linewidth": 1.2, "color": LIGHT[point.tone]}
                spread = [[max(0.0, point.value - point.low)], [max(0.0, point.high - point.value)]]
                axes.errorbar(point.value, row, xerr=spread, **caps)
            _mark(axes, point, point.value, row)
            if not chart.differences:
                axes.annotate(f"{point.value:.1f}", (point.value, row), (0, 5), **_SMALL, ha="center")
        _names(axes, [_label(point.name) for point in points])
        _across(axes, chart.scale)
        axes.set_xlabel(chart.axis)
        axes.set_title(_label(chart.heading, 90), loc="left")
        return figure


def _fill_style(look: Fill) -> dict[str, Any]:
    return {"color": look.color, "hatch": look.hatch, "edgecolor": look.line, "linewidth": 0.3}


def _bars(chart: BarChart) -> Figure:
    """Draw bars for each group, one per series, with 95% intervals."""
    from matplotlib.patheffects import withStroke

    count = len(chart.series)
    whisker = {"elinewidth": 0.8, "ecolor": "black", "path_effects": [withStroke(linewidth=2, foreground="white")]}
    with _drawing(2.6 + 0.14 * count) as (figure, (axes,)):
        width = 0.84 / count
        for place, series in enumerate(chart.series):
            where = [group + (place - (count - 1) / 2) * width for group in range(len(chart.groups))]
            spread, label = _errors(series.intervals), _label(series.name, 70)
            axes.bar(
                where, series.values, width, yerr=spread, error_kw=whisker, label=label, **_fill_style(series.fill)
            )
        axes.set_xticks(range(len(chart.groups)), chart.groups)
        axes.axvline(chart.rule - 0.5, color="0.6", linewidth=0.8, linestyle=":")
        axes.grid(axis="x", visible=False)
        axes.set_ylabel(chart.axis)
        figure.legend(loc="outside upper center", ncols=legend_columns([series.name for series in chart.series]))
        return figure


def _errors(found: Sequence[Mean]) -> list[list[float]]:
    """Return the distances of the intervals' ends below and above the means, x 100."""
    below = [100 * max(0.0, each.value - each.ends[0]) for each in found]
    return [below, [100 * max(0.0, each.ends[1] - each.value) for each in found]]


def _scatter(chart: ScatterChart) -> Figure:
    """Draw score against cost: the frontier as a stair, systems on it filled, names beside."""
    with _drawing(3.1) as (figure, (axes,)):
        right = _cost_axis(axes, chart)
        stair = [(point.x, point.y) for point in chart.stair]
        stair.append((right, stair[-1][1]))
        axes.step(*zip(*stair, strict=True), where="post", color="0.6", linewidth=1.1, linestyle="--", zorder=1)
        marks = {}
        corners = _corners([(chart.x_scale(max(point.x, chart.x_scale.low)), point.y) for point in chart.points], chart)
        for point, corner in zip(chart.points, corners, strict=True):
            marks[point.name] = _mark(axes, ChartPoint(point.name, point.y, filled=point.best), point.x, point.y)
            if point.number is not None:
                _number(axes, point, corner)
        axes.set_xlabel(f"{chart.x_axis}; filled: nothing better for as little")
        axes.set_ylabel(chart.y_axis)
        scale = chart.y_scale
        axes.set_ylim(scale.low, scale.high)
        axes.set_yticks(scale.ticks(), [tick_text(tick) for tick in scale.ticks()])
        handles = [marks[point.name] for point in chart.named]
        labels = [f"{point.number}  {_label(point.name, 28)}" for point in chart.named]
        figure.legend(handles, labels, loc="outside right upper", title=chart.unnamed or None)
        return figure


def _corners(marks: Sequence[tuple[float, float]], chart: ScatterChart | TrendChart) -> list[Corner]:
    """Choose the corners of the numbers of marks, by share of the width and figure, in points of a figure."""
    high = replace(chart.y_scale, start=0.0, end=185.0)
    return number_corners([(300 * share, high(y)) for share, y in marks])


def _number(axes: Axes, point: ScatterPoint | TrendPoint, corner: Corner) -> None:
    """Write a mark's number into its corner."""
    at, side = (5 * corner.x, 3 if corner.y > 0 else -8), "left" if corner.x > 0 else "right"
    axes.annotate(str(point.number), (point.x, point.y), at, **_SMALL, ha=side)


def _cost_axis(axes: Axes, chart: ScatterChart) -> float:
    """Set a logarithmic axis with room for what is free; return its right end."""
    scale = chart.x_scale
    ticks, left = scale.ticks(), scale.low
    if all(point.x <= 0 for point in chart.points):
        axes.set_xlim(-0.05, 1.0)
        axes.set_xticks([0], ["free"])
        return 1.0
    if chart.has_free:
        axes.set_xscale("symlog", linthresh=left, linscale=0.5)
        left, ticks = -0.3 * left, [0.0, *ticks]
    else:
        axes.set_xscale("log")
    axes.set_xlim(left, scale.high)
    axes.set_xticks(ticks, [tick_text(tick) if tick else "free" for tick in ticks])
    axes.set_xticks([], minor=True)
    return scale.high


def _pairs(chart: PairedChart) -> Figure:
    """Draw the panels side by side, under one legend."""
    with _drawing(1.3 + 0.24 * len(chart.rows), len(chart.panels), sharey=True) as (figure, axes):
        marks: dict[str, Any] = {}
        for panel, beside in zip(chart.panels, axes, strict=True):
            rows = list(reversed(panel.marks))
            for row, points in enumerate(rows):
                ends = [point.value for point in points[-2:]]
                beside.plot(ends, [row] * len(ends), color="0.7", linewidth=1.6, zorder=1)
                for point in points:
                    marks[point.name] = _mark(beside, point, point.value, row)
            _names(beside, list(reversed(chart.rows)))
            _across(beside, Scale(0.0, 1.05 * max(point.value for points in rows for point in points)))
            beside.set_xlabel(panel.axis)
        figure.legend(list(marks.values()), list(marks), loc="outside upper center", ncols=legend_columns(list(marks)))
        return figure


def _shares(chart: ShareChart) -> Figure:
    """Draw bars of shares, one per row."""
    count = len(chart.rows)
    with _drawing(1.1 + 0.32 * count) as (figure, (axes,)):
        left = [0.0] * count
        for series in chart.series:
            shares = list(reversed(series.values))
            axes.barh(range(count), shares, 0.68, left=left, label=series.name, **_fill_style(series.fill))
            left = [one + other for one, other in zip(left, shares, strict=True)]
        _names(axes, [_label(name) for name in reversed(chart.rows)])
        _across(axes, Scale(0.0, 100.0))
        axes.set_xlabel(chart.axis)
        figure.legend(loc="outside upper center", ncols=legend_columns([series.name for series in chart.series]))
        return figure


def _funnel(chart: FunnelChart) -> Figure:
    """Draw bars that grow shorter, with the questions left and why others were dropped."""
    steps = list(reversed(chart.steps))
    with _drawing(0.7 + 0.28 * len(steps)) as (figure, (axes,)):
        axes.barh(range(len(steps)), [step.left for step in steps], 0.72, color=LIGHT["own"])
        for row, step in enumerate(steps):
            text = f"{step.left:,}" + (f"   dropped: {_label(step.why, 60)}" if step.why else "")
            axes.annotate(text, (step.left, row), (4, 0), **_SMALL, va="center")
        _names(axes, [step.name for step in steps])
        _across(axes, Scale(0.0, 1.45 * chart.most))
        axes.set_xlabel("questions left")
        return figure


def _upset(chart: UpSetChart) -> Figure:
    """Draw columns above a table of dots, a row per member."""
    from matplotlib.figure import Figure

    require_extra("plots", "matplotlib")
    import matplotlib

    count, rows = len(chart.columns), len(chart.members)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, 1.9 + 0.26 * rows), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[6, 1.0 + rows])
        above.bar(range(count), [column.positives for column in chart.columns], 0.6, color=LIGHT["own"])
        for place, column in enumerate(chart.columns):
            above.annotate(f"{column.positives:,}", (place, column.positives), (0, 2), **_SMALL, ha="center")
            inside = [rows - 1 - row for row, member in enumerate(column.members) if member]
            below.plot([place] * rows, range(rows), "o", color=LIGHT["line"], markersize=6)
            below.plot([place] * len(inside), inside, "o-", color=LIGHT["own"], markersize=6, linewidth=1.5)
        names = [f"{_label(n)} ({t:,})" for n, t in zip(chart.members, chart.totals, strict=True)]
        _names(below, list(reversed(names)))
        above.set_ylabel(_label(chart.axis, 18))
        above.set_ylim(0, 1.15 * chart.most)
        above.tick_params(bottom=False)
        for axes in (above, below):
            axes.grid(axis="x", visible=False)
        below.set_xticks([])
        below.set_xlim(-0.6, max(count, 4) - 0.4)
        below.spines[:].set_visible(False)
        below.set_xlabel(f"{chart.rest:,} positives of rarer combinations are not drawn" if chart.rest else "")
        return figure


_VERDICT_MARKS = {"positive": ("D", "own", True), "band": ("s", "pub", False), "negative": ("o", "soft", False)}


def _scores(chart: ScoreChart) -> Figure:
    """Draw marks by both scores, their area by the number of pairs, and the cuts as lines."""
    low, high = chart.ends
    with _drawing(3.6) as (figure, (axes,)):
        for bubble in sorted(chart.bubbles, key=lambda each: -each.pairs):
            shape, tone, filled = _VERDICT_MARKS[bubble.verdict]
            size = 18 + 900 * bubble.pairs / chart.most
            look: Any = {"facecolors": LIGHT[tone] if filled else "white", "edgecolors": LIGHT[tone], "zorder": 3}
            axes.scatter(bubble.x, bubble.y, s=size, marker=shape, **look)
            light = "white" if filled and size > 130 else "black"
            axes.annotate(f"{bubble.pairs:,}", (bubble.x, bubble.y), **_BUBBLE, color=light)
        for (x, y), style in ((chart.cut, "-"), (chart.band, ":")):
            room = 0.15 * (high - low)
            axes.plot([x - 0.04, x - 0.04, high + room], [high + room, y - 0.04, y - 0.04], style, color="0.2")
        ticks = Scale(low, high).ticks()
        for line in (axes.xaxis, axes.yaxis):
            line.set_ticks([tick for tick in ticks if tick.is_integer()] or ticks)
        for side in (axes.set_xlim, axes.set_ylim):
            side(low - 0.2 * (high - low), high + 0.2 * (high - low))
        axes.set_xlabel(chart.x_axis)
        axes.set_ylabel(chart.y_axis)
        handles = [_verdict_handle(axes, name, number) for name, number in chart.counts.items()]
        lines = [axes.plot([], [], style, color="0.2", label=label)[0] for style, label in _CUT_LINES]
        figure.legend(handles=[*handles, *lines], loc="outside right upper", title="pairs")
        return figure


_BUBBLE: Any = {"ha": "center", "va": "center", "fontsize": 6.5, "zorder": 4}
_CUT_LINES = (("-", "cut of positives"), (":", "cut of the band"))


def _verdict_handle(axes: Axes, name: str, number: int) -> Any:
    shape, tone, filled = _VERDICT_MARKS[name]
    face = LIGHT[tone] if filled else "white"
    look: Any = {"color": LIGHT[tone], "markerfacecolor": face, "label": f"{name}: {number:,}"}
    return axes.plot([], [], shape, **look)[0]


def _area_style(look: Fill) -> dict[str, Any]:
    """Return the style of an area that is not a bar, whose colour matplotlib calls by another name."""
    style = _fill_style(look)
    return {"facecolor": style.pop("color"), **style}


def _flows(chart: FlowChart) -> Figure:
    """Draw an alluvial diagram for each arm, one below the other."""
    from matplotlib.patches import Patch, PathPatch
    from matplotlib.path import Path as Outline

    moves = [Outline.MOVETO, *[Outline.CURVE4] * 3, Outline.LINETO, *[Outline.CURVE4] * 3]
    with _drawing(0.7 + 0.85 * len(chart.rows)) as (figure, (axes,)):
        for number, row in enumerate(reversed(chart.rows)):
            top = 1.25 * number + 1
            for band in sorted(row.bands, key=lambda band: -band.width):
                if band.answers:
                    start, end = top - band.start, top - band.end
                    below = [(1, end - band.width), (0.5, end - band.width), (0.5, start - band.width)]
                    corners = [(0, start), (0.5, start), (0.5, end), (1, end), *below, (0, start - band.width)]
                    axes.add_patch(PathPatch(Outline(corners, moves), **_area_style(chart.looks[band.name])))
                    if band.width >= 0.1:
                        axes.annotate(str(band.answers), (0, start - band.width / 2), (-4, -2), **_SMALL, ha="right")
                        axes.annotate(str(band.answers), (1, end - band.width / 2), (4, -2), **_SMALL, ha="left")
        axes.set_xlim(-0.12, 1.12)
        axes.set_ylim(-0.1, 1.25 * len(chart.rows))
        axes.set_yticks(
            [1.25 * n + 0.5 for n in range(len(chart.rows))], [_label(r.name) for r in reversed(chart.rows)]
        )
        axes.set_xticks([0, 1], ["without passages", "with passages"])
        axes.grid(visible=False)
        handles = [Patch(label=name, **_area_style(fill)) for name, fill in chart.looks.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=legend_columns(list(chart.looks)))
        return figure


def _trend(chart: TrendChart) -> Figure:
    """Draw a mark per system with its interval, the fitted line, and horizontal lines for closed and gold."""
    with _drawing(3.1) as (figure, (axes,)):
        for level in chart.levels:
            axes.axhline(level.y, color="0.5", linewidth=0.9, linestyle=":")
            axes.annotate(level.name, (1, level.y), (-2, 2), xycoords=("axes fraction", "data"), **_SMALL, ha="right")
        if chart.line is not None:
            axes.plot(*zip(*chart.line, strict=True), color="0.6", linewidth=1.1, linestyle="--", zorder=1)
        marks = []
        corners = _corners([(chart.x_scale(point.x), point.y) for point in chart.points], chart)
        for point, corner in zip(chart.points, corners, strict=True):
            spread = [[max(0.0, point.y - point.low)], [max(0.0, point.high - point.y)]]
            axes.errorbar(point.x, point.y, yerr=spread, capsize=2.5, linewidth=1.2, color=LIGHT["own"])
            marks.append(_mark(axes, ChartPoint(point.name, point.y), point.x, point.y))
            _number(axes, point, corner)
        _across(axes, chart.x_scale)
        scale = chart.y_scale
        axes.set_ylim(scale.low, scale.high)
        axes.set_xlabel(chart.x_axis)
        axes.set_ylabel(chart.y_axis)
        labels = [f"{point.number}  {_label(point.name, 28)}" for point in chart.points]
        figure.legend(marks, labels, loc="outside right upper")
        return figure


_DASHES: Any = ("solid", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)), (0, (8, 3)), (0, (3, 3)))


def _lines(chart: LineChart) -> Figure:
    """Draw curves that differ in dashes as well as shades; a name looks the same in every panel."""
    names = list(dict.fromkeys(line.name for _, lines in chart.panels for line in lines if not line.straight))
    tones = shades(len(names) + 3)
    looks: dict[str, Any] = {
        name: {"color": tones[place], "linestyle": _DASHES[place % len(_DASHES)]} for place, name in enumerate(names)
    }
    with _drawing(2.9, len(chart.panels)) as (figure, axes):
        marks: dict[str, Any] = {}
        for (title, lines), beside in zip(chart.panels, axes, strict=True):
            for line in lines:
                look = looks.get(line.name, {"color": "0.4", "linestyle": ":"})
                if line.low:
                    beside.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.15, linewidth=0)
                marks.setdefault(line.name, beside.plot(line.x, line.y, linewidth=1.3, **look)[0])
            beside.set_title(_label(title, 90 // len(chart.panels)), loc="left")
            if chart.doubling:
                marked = sorted({x for line in lines for x in line.x})
                beside.set_xscale("log", base=2)
                beside.set_xticks(marked, [f"{x:,.0f}" for x in marked])
                beside.minorticks_off()
        axes[0].set_ylabel(chart.y_axis)
        # Under one of the panels: a label of the whole figure would be drawn over the legend.
        axes[(len(axes) - 1) // 2].set_xlabel(chart.x_axis)
        figure.legend(list(marks.values()), list(marks), loc="outside lower center", ncols=legend_columns(list(marks)))
        return figure


_PENS: dict[type, Callable[[Any], Figure]] = {
    FlowChart: _flows,
    TrendChart: _trend,
    DotChart: _dots,
    ShareChart: _shares,
    BarChart: _bars,
    ScatterChart: _scatter,
    PairedChart: _pairs,
    FunnelChart: _funnel,
    UpSetChart: _upset,
    ScoreChart: _scores,
    LineChart: _lines,
}


def check_chart_files(place: Path) -> None:
    """Refuse figures that could not be drawn before anything is computed."""
    if not place.suffix:
        return
    if place.suffix.lower() not in ENDINGS:
        raise R2medError(f"{place}: figures end in {', '.join(ENDINGS)}; a name without an ending is a folder")
    require_extra("plots", "matplotlib")


def save_charts(charts: Mapping[str, HealthChart | RagChart], place: Path) -> list[Path]:
    """Write charts by their names: DIR/arms.svg and so on, or NAME-arms.png and so on for NAME.png."""
    written = []
    for name, chart in charts.items():
        if place.suffix:
            file = place.with_name(f"{place.stem}-{name}{place.suffix}")
            save(chart, file)
        else:
            file = place / f"{name}.svg"
            write_file(file, standalone(chart), parents=True)
        written.append(file)
    return written

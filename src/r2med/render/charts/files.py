"""Charts as files for papers and slides: SVG as drawn, and PNG and PDF of the same drawing, painted by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import click

from r2med.errors import R2medError, require_extra
from r2med.formatting import harmless
from r2med.render.charts.chart import Chart, draw
from r2med.render.charts.drawing import PAPER, STROKES, tag, words
from r2med.render.html import STYLE, static
from r2med.render.palette import LIGHT
from r2med.store.files import draft_file, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 468
"""Points: the text width of most papers."""
ENDINGS = (".png", ".svg", ".pdf")
_HATCHES = {stroke: 4 * sign for sign, stroke in STROKES.items()}
_SHAPES = ("line", "rect", "circle", "path", "text")
_PLACES = ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height")
_UNIT = WIDTH / PAPER.width  # points in a unit of a drawing


def save(chart: Chart, path: Path) -> None:
    """Write a chart in the format of the file's ending."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise R2medError(f"{path}: a figure ends in {', '.join(ENDINGS)}")
    svg = paper_svg(chart)
    if ending == ".svg":
        write_file(path, svg, parents=True)
        return
    figure = paint(svg)
    import matplotlib

    with draft_file(path, parents=True) as draft, matplotlib.rc_context({"hatch.linewidth": 0.5, "pdf.fonttype": 42}):
        figure.savefig(draft, format=ending[1:], dpi=300, metadata={"Title": harmless(chart.title)})


def save_charts(charts: Mapping[str, Chart], place: Path) -> list[Path]:
    """Write charts by their names: DIR/arms.svg and so on, or NAME-arms.png and so on for NAME.png."""
    files = {
        name: place.with_name(f"{place.stem}-{name}{place.suffix}") if place.suffix else place / f"{name}.svg"
        for name in charts
    }
    for name, chart in charts.items():
        save(chart, files[name])
    return list(files.values())


def check_chart_file(option: str, path: Path) -> None:
    """Refuse the file of a figure that could not be drawn before anything is computed."""
    if path.suffix.lower() not in ENDINGS:
        raise click.UsageError(f"{option} must end in {', '.join(ENDINGS)}")
    if path.suffix.lower() != ".svg":
        require_extra("plots", "matplotlib")


def check_chart_files(place: Path) -> None:
    """Refuse a place for figures, a folder or a name with an ending, where they could not be drawn."""
    if place.suffix.lower() not in ("", *ENDINGS):
        raise R2medError(f"{place}: figures end in {', '.join(ENDINGS)}; a name without an ending is a folder")
    if place.suffix.lower() not in ("", ".svg"):
        require_extra("plots", "matplotlib")


def paper_svg(chart: Chart) -> str:
    """Draw a chart as a file that needs no page around it, in the light colours, with what it shows below it."""
    style = tag("style", "".join(f"{selector}{{{rule}}}" for selector, rule in _style_rules()))
    svg = draw(chart, PAPER)
    box = re.search(r'viewBox="0 0 \S+ ([\d.]+)" width="\S+" height="\S+"', svg)
    low, high = (-24 if chart.heading else 0), float(box[1]) if box else 0.0
    parts = [words(4, -8, chart.heading, class_="name best")] if chart.heading else []
    if chart.caption:
        high += 20
        parts.append(words(PAPER.width / 2, high - 6, chart.caption, class_="tick", text_anchor="middle"))
    size = f'viewBox="-4 {low} {PAPER.width + 8} {high - low:g}" width="{WIDTH}pt" height="{(high - low) * _UNIT:g}pt"'
    svg = svg.replace(box[0], size, 1) if box else svg
    svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace("</desc>", f"</desc>{style}", 1)
    return svg.removesuffix("</svg>") + "".join(parts) + "</svg>"


@cache
def _style_rules() -> list[tuple[str, str]]:
    """Return the rules of the style sheet for charts, colours written out, the more special ones last."""
    text = static(STYLE).partition("/* charts */")[2].partition("/* end of charts */")[0]
    text = re.sub(r"var\(--([\w-]+)\)", lambda name: LIGHT[name[1]], text)
    rules = [(selector.strip(), rule) for several, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", text)
             for selector in several.split(",") if ":" not in selector]  # fmt: skip
    return [("svg", f"background:{LIGHT['card']}"), *sorted(rules, key=lambda pair: pair[0].count("."))]


def paint(svg: str) -> Figure:
    """Paint a drawing as a figure of matplotlib: of SVG it knows what charts are drawn with."""
    require_extra("plots", "matplotlib")
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(re.sub(' xmlns="[^"]*"', "", svg))
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    figure = Figure(figsize=(WIDTH / 72, height * _UNIT / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, left + width), ylim=(top + height, top))
    axes.set_axis_off()
    hatches = {
        f"url(#{pattern.get('id')})": (_HATCHES[pattern[0].attrib["d"]], pattern[0].get("stroke"))
        for pattern in root.iter("pattern")
    }
    hidden = {shape for pattern in root.iter("pattern") for shape in pattern}
    shapes = (shape for shape in root.iter() if shape.tag in _SHAPES and shape not in hidden)
    for order, element in enumerate(shapes):
        look = {**_look(element), **element.attrib}
        _paint(axes, element, look, hatches.get(look.get("fill", "")), order)
    return figure


def _look(element: ElementTree.Element) -> dict[str, str]:
    """Return what the style sheet says of an element; its selectors are of classes and of the element's kind."""
    classes = {element.tag, "chart", *element.get("class", "").split()}
    look: dict[str, str] = {}
    for selector, rule in _style_rules():
        if ">" not in selector and set(re.split(r"[ .]+", selector.strip(". "))) <= classes:
            look |= dict(re.findall(r"([\w-]+)\s*:\s*([^;]+)", rule))
    return look


def _paint(
    axes: Axes, element: ElementTree.Element, look: Mapping[str, str], hatch: tuple[str, str | None] | None, order: int
) -> None:
    from matplotlib import patches
    from matplotlib.path import Path as Outline

    if element.tag == "text":
        from matplotlib.patheffects import withStroke

        size = float(re.sub(r"[^\d.].*", "", look.get("font-size", look["font"]))) * _UNIT
        anchor = {"middle": "center", "end": "right"}.get(look.get("text-anchor", ""), "left")
        x, y, weight = element.attrib["x"], element.attrib["y"], look.get("font-weight", "")
        text = axes.text(
            float(x), float(y), element.text or "", fontsize=size, color=look["fill"], ha=anchor, va="baseline",
            weight="bold" if weight >= "6" else "normal", zorder=order,
            parse_math=False,  # a spec may hold a dollar sign, which is not a formula
        )  # fmt: skip
        if "stroke" in look:
            halo = float(look["stroke-width"].removesuffix("px")) * _UNIT
            text.set_path_effects([withStroke(linewidth=halo, foreground=look["stroke"])])
        return
    number = {name: float(value) for name, value in element.attrib.items() if name in _PLACES}
    fill, stroke = look.get("fill", "none"), look.get("stroke", "none")
    if element.tag in ("rect", "path") and not {"class", "fill"} & set(element.keys()):
        return  # what a pointer can reach
    width = float(look.get("stroke-width", 1)) * _UNIT
    dashes = [float(part) * _UNIT / width for part in look.get("stroke-dasharray", "").split()]
    style: dict[str, Any] = {"facecolor": fill, "edgecolor": stroke, "linewidth": width, "zorder": order}
    style |= {"alpha": float(look["opacity"])} if "opacity" in look else {}
    style |= {"linestyle": (0, dashes)} if dashes else {}
    if hatch is not None:
        style |= {"facecolor": "none", "hatch": hatch[0], "edgecolor": hatch[1], "linewidth": 0}
    if element.tag == "circle":
        axes.add_patch(patches.Circle((number["cx"], number["cy"]), number["r"], **style))
    elif element.tag == "rect":
        axes.add_patch(patches.Rectangle((number["x"], number["y"]), number["width"], number["height"], **style))
    else:
        line = f"M{number.get('x1')} {number.get('y1')}L{number.get('x2')} {number.get('y2')}"
        corners, codes = _outline(element.get("d", line))
        axes.add_patch(patches.PathPatch(Outline(corners, codes), **style))


def _outline(text: str) -> tuple[list[Sequence[float]], list[int]]:
    """Return the corners of an SVG path and matplotlib's codes; commands are those that charts use."""
    corners: list[Sequence[float]] = []
    codes: list[int] = []
    x = y = 0.0
    for command, values in re.findall(r"([A-Za-z])([^A-Za-z]*)", text):
        numbers = [float(value) for value in values.split()]
        if command in "zZ":
            corners.append((x, y))
            codes.append(79)
            continue
        match command, numbers:
            case "H", [right]:
                places = [(right, y)]
            case "V", [down]:
                places = [(x, down)]
            case _:
                places = list(zip(numbers[::2], numbers[1::2], strict=True))
        corners += places
        codes += [{"M": 1, "C": 4}.get(command, 2)] * len(places)
        x, y = places[-1]
    return corners, codes

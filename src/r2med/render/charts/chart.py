"""What every kind of chart can do: say what it shows, be drawn as SVG in a layout, and list its figures.

Nothing depends on colour alone: marks differ in shape and filling, areas in their hatch. Figures are x 100.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from markupsafe import Markup

from r2med.formatting import harmless
from r2med.render.charts.drawing import MIDDLE, NARROW, SQUARE, WIDE, Layout, attribute_text, hint, tag

CHARTED = 30
"""Lines that a chart has room for."""


class Chart(ABC):
    """A chart. Equal charts say the same, so that drawings can be cached."""

    title: str
    heading: str = ""  # what stands above the chart on paper

    @property
    @abstractmethod
    def description(self) -> str:
        """Describe the chart in a sentence."""

    @property
    def caption(self) -> str:
        """Return what stands below the chart on paper, where no title of an axis does."""
        return ""

    @abstractmethod
    def draw(self, layout: Layout) -> tuple[float, list[str]]:
        """Return the height of the drawing, and its parts as SVG."""

    def figures(self) -> list[Sequence[str]]:
        """Return the head of a table of the figures and its lines; nothing for a chart that is not of rows."""
        return []

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class Panel:
    """A chart with what it shows in words."""

    title: str
    note: str
    chart: Markup
    name: str = ""  # the anchor


def figure(value: float | None, sign: str = "") -> str:
    """Write a figure for a chart's table."""
    return "\N{EN DASH}" if value is None else f"{value:{sign}.2f}".replace("-", "\N{MINUS SIGN}")


@lru_cache(maxsize=128)
def responsive(chart: Chart) -> Markup:
    """Draw a chart in three layouts, of which the style sheet shows the one that fits, with its figures as a table."""
    drawings = [draw(chart, layout) for layout in (WIDE, MIDDLE, NARROW)]
    return Markup(tag("div", *drawings, figures_table(chart), class_="charts"))


def single(chart: Chart) -> Markup:
    """Draw a chart in one layout, which suits every width."""
    return Markup(tag("div", draw(chart, SQUARE), class_="charts"))


def draw(chart: Chart, layout: Layout = WIDE) -> str:
    """Draw a chart as SVG that scales with its place.

    It is a group and not an image: a screen reader that meets an image does not go on to the titles of its parts.
    """
    height, parts = chart.draw(layout)
    box = f"0 0 {layout.width} {attribute_text(float(height))}"
    facts = {"class_": f"chart {layout.name}", "viewBox": box, "width": layout.width, "height": height}
    texts = [hint(chart.title), tag("desc", escape(harmless(chart.description)))]
    return tag("svg", *texts, *parts, **facts, role="group", aria_label=chart.title)


def figures_table(chart: Chart) -> str:
    """Write the figures as a table, behind a line that opens it; nothing if there are none."""
    lines = [[escape(harmless(text)) for text in line] for line in chart.figures()]
    if not lines:
        return ""
    head = tag("tr", *(tag("th", text or "&#8203;", scope="col") for text in lines[0]))
    body = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", text, class_="n") for text in row))
        for name, *row in lines[1:]
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body))
    scroll = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Figures of the chart")
    return tag("details", tag("summary", "Figures as a table"), scroll, class_="figures")

"""Parts of SVG drawings that every chart is made of: elements with every value escaped, axes, marks, fills, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from r2med.formatting import harmless
from r2med.measure.figure import Figure
from r2med.render.charts.scale import Corner, Scale, tick_text
from r2med.render.palette import Fill


class ChartPoint(NamedTuple):
    """A mark: whose it is, its figure and how far that may be off, and what it looks like."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    shape: str = "disc"  # `disc`, `square`, `diamond` or `bar`, an upright line
    filled: bool = True
    tone: str = "own"  # `own`, `pub` for published, or `soft` for what is no system: an oracle, chance

    def describe(self, *, signed: bool = False) -> str:
        """Describe the mark in words."""
        value = f"{self.value:+.2f}" if signed else f"{self.value:.2f}"
        if self.low is None or self.high is None:
            return f"{self.name}: {value}"
        return f"{self.name}: {value}, 95% interval {self.low:.2f} to {self.high:.2f}"


def system_point(
    name: str, value: float, interval: Figure | None, *, own: bool = True, oracle: bool = False
) -> ChartPoint:
    """Return the mark of a system: local or published, hollow if it is an oracle."""
    low, high = (None, None) if interval is None else interval.percents[1:]
    shape, tone = ("diamond", "soft") if oracle else ("disc", "own") if own else ("diamond", "pub")
    return ChartPoint(f"{name} (oracle)" if oracle else name, 100 * value, low, high, shape, not oracle, tone)


def tag(name: str, *children: str, **attributes: object) -> str:
    """Write an element; an attribute is written with hyphens for underscores, `class_` as `class`. Children are markup.

    >>> tag("circle", r=2.5, class_="dot")
    '<circle r="2.5" class="dot"/>'
    """
    written = "".join(
        f' {key if key in _CAMEL else key.rstrip("_").replace("_", "-")}="{escape(harmless(attribute_text(value)))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


_CAMEL = ("viewBox", "patternUnits")


def attribute_text(value: object) -> str:
    """Write a value of an attribute, numbers with at most two digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def words(x: float, y: float, content: str, **attributes: object) -> str:
    """Write a line of text at a place.

    >>> words(1, 2, "a < b")
    '<text x="1" y="2">a &lt; b</text>'
    """
    return tag("text", escape(harmless(content)), x=x, y=y, **attributes)


def hint(content: str) -> str:
    """Write a title, which browsers show under the pointer and screen readers read."""
    return tag("title", escape(harmless(content)))


def part(title: str, *children: str, class_: str = "part") -> str:
    """Group a part of a drawing that a reader can reach by itself."""
    return tag("g", hint(title), *children, class_=class_, role="img")


def shortened(text: str, most: int) -> str:
    """Shorten a text to at most so many characters, by leaving out its middle.

    >>> shortened("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def axis(scale: Scale, top: float, bottom: float, *, zero: bool = False, ticks: Sequence[float] = ()) -> str:
    """Draw upright lines at round figures, or given ones, named below; the one at 0 stands out where it matters."""
    parts = []
    for tick in ticks or scale.ticks():
        x, strong = scale(tick), zero and abs(tick) < 1e-12
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="zero" if strong else "grid"))
        name = f"{tick:,.0f}" if ticks else tick_text(tick)
        parts.append(words(x, bottom + 15, name, class_="tick", text_anchor="middle"))
    return "".join(parts)


def rungs(scale: Scale, left: float, right: float, gap: float = 6) -> list[str]:
    """Draw level lines at round figures with their names at the left."""
    return [
        part
        for tick in scale.ticks()
        for part in (
            tag("line", x1=left, x2=right, y1=scale(tick), y2=scale(tick), class_="grid"),
            words(left - gap, scale(tick) + 4, tick_text(tick), class_="tick", text_anchor="end"),
        )
    ]


class Layout(NamedTuple):
    """Positions of the parts of a chart, for a place of some width."""

    name: str
    width: int
    label: int  # the width of the place for names at the left; 0 where names stand above their rows
    row: int
    characters: int  # as many as the place for a name holds

    @property
    def above(self) -> bool:
        """Return whether names stand above their rows."""
        return not self.label

    def fitted(self, names: Sequence[str]) -> Layout:
        """Return the layout with no more room for names than these need, if they stand beside their rows."""
        longest = max((min(len(name), self.characters) for name in names), default=0)
        return self if self.above else self._replace(label=min(self.label, max(40, round(_LETTER * longest))))

    def name_of(self, y: float, text: str) -> str:
        """Write a row's name, beside its middle at `y` or above it."""
        if self.above:
            return words(4, y - 13, shortened(text, self.characters), class_="name")
        return words(self.label, y + 4, shortened(text, self.characters), class_="name", text_anchor="end")


_LETTER = 8.0  # about as wide as a letter of a name becomes
WIDE = Layout("wide", 860, 320, 22, 40)
MIDDLE = Layout("middle", 600, 0, 38, 76)
NARROW = Layout("narrow", 340, 0, 38, 42)
SQUARE = Layout("square", 340, 0, 38, 42)
PAPER = Layout("paper", 780, 300, 22, 40)
"""For cards of a wide page, of a tablet, and of a phone, where letters have the same size; for a chart as wide as a
phone everywhere, and not much wider elsewhere; and for the text width of a paper."""
STROKES = {
    "/": "M-1 1L1 -1M0 6L6 0M5 7L7 5",
    "\\": "M-1 5L1 7M0 0L6 6M5 -1L7 1",
    ".": "M3 2.3v1.4",
    "x": "M0 6L6 0M0 0L6 6",
    "-": "M0 3H6",
    "+": "M0 3H6M3 0V6",
}
"""What is drawn for each hatch, on a tile of 6 x 6."""


def draw_mark(point: ChartPoint, x: float, y: float, radius: float = 4.5) -> str:
    """Draw a mark at a place, as large as a disc of a radius."""
    look = f"mark {point.tone}{'' if point.filled else ' hollow'}"
    if point.shape == "disc":
        return tag("circle", cx=x, cy=y, r=radius, class_=look)
    if point.shape == "bar":
        return tag("path", d=f"M{x:.1f} {y - 6:.1f}V{y + 6:.1f}", class_=look)
    if point.shape == "square":
        half = radius * 8 / 9
        return tag("rect", x=x - half, y=y - half, width=2 * half, height=2 * half, class_=look)
    half = radius * 11 / 9
    right, left = f"L{x + half:.1f} {y:.1f}", f"L{x - half:.1f} {y:.1f}"
    return tag("path", d=f"M{x:.1f} {y - half:.1f}{right}L{x:.1f} {y + half:.1f}{left}z", class_=look)


def whisker(point: ChartPoint, scale: Scale, y: float, radius: float = 4.5) -> str:
    """Draw a mark with its interval."""
    parts = []
    if point.low is not None and point.high is not None:
        left, right = scale(point.low), scale(point.high)
        facts = {"class_": f"range {point.tone}"}
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, **facts))
        parts += [tag("line", x1=end, x2=end, y1=y - 4, y2=y + 4, **facts) for end in (left, right)]
    return "".join([*parts, draw_mark(point, scale(point.value), y, radius)])


def mark_number(number: int | None, x: float, y: float, corner: Corner) -> str:
    """Write the number of the mark at a place, in one of its corners; nothing for a mark without one."""
    if number is None:
        return ""
    right, above = corner
    anchor = "start" if right > 0 else "end"
    return words(x + 8 * right, y + (-5 if above > 0 else 13), str(number), class_="tick number", text_anchor=anchor)


def filled(shape: str, fill: Fill, layout: Layout, **place: object) -> str:
    """Draw a `rect` or `path` in a colour and its hatch."""
    hatch = tag(shape, **place, fill=f"url(#{_hatch_name(fill, layout)})") if fill.hatch else ""
    return tag(shape, **place, class_="filled", fill=fill.color) + hatch


def fill_legend(fills: Mapping[str, Fill], layout: Layout, columns: int) -> tuple[float, list[str]]:
    """Define the hatches of fills and name them in a legend above a chart; return where the legend ends."""
    width = (layout.width - 20) / columns
    patterns = [
        tag("pattern", tag("path", d=STROKES[fill.hatch[0]], class_="stroke", stroke=fill.line),
            id=_hatch_name(fill, layout), width=6, height=6, patternUnits="userSpaceOnUse")
        for fill in fills.values() if fill.hatch
    ]  # fmt: skip
    parts = [tag("defs", *patterns) if patterns else ""]
    for place, (name, fill) in enumerate(fills.items()):
        x, y = 4 + width * (place % columns), 4 + 20 * (place // columns)
        parts.append(filled("rect", fill, layout, x=x, y=y, width=13, height=13))
        parts.append(words(x + 18, y + 11, name, class_="name"))
    return 8 + 20 * -(-len(fills) // columns), parts


def _hatch_name(fill: Fill, layout: Layout) -> str:
    """Return the name of a pattern, which differs between the layouts of a page."""
    return f"hatch-{layout.name}-{fill.color.removeprefix('#')}"

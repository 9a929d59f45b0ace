"""Small parts of SVG drawings: elements with every value escaped, and whole drawings that say what they show."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from r2med.formatting import harmless
from r2med.render.charts.kinds import ChartPoint
from r2med.render.charts.scale import Corner, Scale, tick_text
from r2med.render.palette import Fill


def tag(name: str, *children: str, **attributes: object) -> str:
    """Write an element; an attribute is written with hyphens for underscores, `class_` as `class`. Children are markup.

    >>> tag("circle", r=2.5, class_="dot")
    '<circle r="2.5" class="dot"/>'
    """
    written = "".join(f' {_name(key)}="{escape(harmless(_value(value)))}"' for key, value in attributes.items())
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def _name(key: str) -> str:
    return key if key in ("viewBox", "patternUnits") else key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
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


def drawing(size: tuple[float, float], title: str, description: str, *children: str, layout: str) -> str:
    """Write a whole drawing that scales with its place, and says what it shows.

    It is a group and not an image: a screen reader that meets an image does not go on to the titles of its parts.
    """
    width, height = size
    box = f"0 0 {_value(float(width))} {_value(float(height))}"
    facts = {"class_": f"chart {layout}", "viewBox": box, "width": width, "height": height}
    words_of = [hint(title), tag("desc", escape(harmless(description)))]
    return tag("svg", *words_of, *children, **facts, role="group", aria_label=title)


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


def axis(scale: Scale, top: float, bottom: float, *, zero: bool = False) -> str:
    """Draw upright lines at round figures with their names below; the one at 0 stands out where it matters."""
    parts = []
    for tick in scale.ticks():
        x, strong = scale(tick), zero and abs(tick) < 1e-12
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="zero" if strong else "grid"))
        parts.append(words(x, bottom + 15, tick_text(tick), class_="tick", text_anchor="middle"))
    return "".join(parts)


class Layout(NamedTuple):
    """Positions of the parts of a chart, for a place of some width."""

    name: str
    width: int
    label: int
    """The width of the place for names at the left; 0 where names stand above their rows."""
    row: int
    characters: int
    """As many as the place for a name holds."""

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


_LETTER = 8.0
"""About as wide as a letter of a name becomes."""
WIDE = Layout("wide", 860, 320, 22, 40)
MIDDLE = Layout("middle", 600, 0, 38, 76)
NARROW = Layout("narrow", 340, 0, 38, 42)
"""For cards of a wide page, of a tablet, and of a phone: letters have the same size in all of them."""
_STROKES = {
    "/": "M-1 1L1 -1M0 6L6 0M5 7L7 5",
    "\\": "M-1 5L1 7M0 0L6 6M5 -1L7 1",
    ".": "M3 2.3v1.4",
    "x": "M0 6L6 0M0 0L6 6",
    "-": "M0 3H6",
    "+": "M0 3H6M3 0V6",
}
"""What is drawn for each hatch, on a tile of 6 x 6."""


def draw_mark(point: ChartPoint, x: float, y: float, radius: float = 4.5) -> str:
    """Draw a mark at a place."""
    look = f"mark {point.tone}{'' if point.filled else ' hollow'}"
    if point.shape == "disc":
        return tag("circle", cx=x, cy=y, r=radius, class_=look)
    if point.shape == "square":
        return tag("path", d=f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z", class_=look)
    return tag("path", d=f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", class_=look)


def mark_number(number: int | None, x: float, y: float, corner: Corner) -> str:
    """Write the number of the mark at a place, in one of its corners; nothing for a mark without one."""
    if number is None:
        return ""
    anchor = "start" if corner.x > 0 else "end"
    at = (x + 8 * corner.x, y + (-5 if corner.y > 0 else 13))
    return words(*at, str(number), class_="tick number", text_anchor=anchor)


def filled(fill: Fill, layout: Layout, **box: float) -> str:
    """Draw a box in a colour and its hatch."""
    hatch = tag("rect", **box, fill=f"url(#{hatch_name(fill, layout)})") if fill.hatch else ""
    return tag("rect", **box, class_="filled", fill=fill.color) + hatch


def hatches(fills: list[Fill], layout: Layout) -> str:
    """Define the patterns of some fills, under names that differ between the layouts of a page."""
    made = []
    for fill in fills:
        if fill.hatch:
            shape = tag("path", d=_STROKES[fill.hatch[0]], class_="stroke", stroke=fill.line)
            name = hatch_name(fill, layout)
            made.append(tag("pattern", shape, id=name, width=6, height=6, patternUnits="userSpaceOnUse"))
    return tag("defs", *made) if made else ""


def hatch_name(fill: Fill, layout: Layout) -> str:
    """Return the name of a pattern, which differs between the layouts of a page."""
    return f"hatch-{layout.name}-{fill.color.removeprefix('#')}"

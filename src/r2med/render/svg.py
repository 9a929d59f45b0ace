"""Small parts of SVG drawings: elements with every value escaped, and whole drawings that say what they show."""

from __future__ import annotations

from html import escape

from r2med.render.scale import Scale, tick_text
from r2med.text.unprintable import harmless


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element; an attribute is written with hyphens for underscores, `class_` as `class`. Children are markup.

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
    """A line of text at a place.

    >>> words(1, 2, "a < b")
    '<text x="1" y="2">a &lt; b</text>'
    """
    return tag("text", escape(harmless(content)), x=x, y=y, **attributes)


def hint(content: str) -> str:
    """What a browser shows where the pointer rests, and a screen reader reads."""
    return tag("title", escape(harmless(content)))


def drawing(size: tuple[float, float], title: str, description: str, *children: str, layout: str) -> str:
    """A whole drawing that scales with its place, and says what it shows.

    It is a group and not an image: a screen reader that meets an image does not go on to the titles of its parts.
    """
    width, height = size
    box = f"0 0 {_value(float(width))} {_value(float(height))}"
    facts = {"class_": f"chart {layout}", "viewBox": box, "width": width, "height": height}
    words_of = [hint(title), tag("desc", escape(harmless(description)))]
    return tag("svg", *words_of, *children, **facts, role="group", aria_label=title)


def part(title: str, *children: str, class_: str = "part") -> str:
    """A part of a drawing that a reader can reach by itself."""
    return tag("g", hint(title), *children, class_=class_, role="img")


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, with what is left out in the middle.

    >>> shortened("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def axis(scale: Scale, top: float, bottom: float, *, zero: bool = False) -> str:
    """Upright lines at round figures with their names below; the one at 0 stands out where it matters."""
    parts = []
    for tick in scale.ticks():
        x, strong = scale(tick), zero and abs(tick) < 1e-12
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="zero" if strong else "grid"))
        parts.append(words(x, bottom + 15, tick_text(tick), class_="tick", text_anchor="middle"))
    return "".join(parts)

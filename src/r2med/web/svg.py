"""Small parts of SVG drawings: elements with every value escaped, and scales from figures to places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from r2med.render.case_screen import harmless


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


def drawing(width: float, height: float, label: str, *children: str, layout: str) -> str:
    """A whole drawing that scales with its place and says what it shows."""
    box = f"0 0 {_value(float(width))} {_value(float(height))}"
    facts = {"class_": f"chart {layout}", "viewBox": box, "width": width, "height": height}
    return tag("svg", *children, **facts, role="img", aria_label=label)


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, with what is left out in the middle.

    >>> shortened("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


@dataclass(frozen=True)
class Scale:
    """From figures to places on a line.

    >>> Scale(0, 10, 100, 200)(5)
    150.0
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a figure lies; what is beyond the ends lies at them."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, here = math.log10(low), math.log10(high), math.log10(here)
        share = (here - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round figures between the ends, five or so.

        >>> Scale(0, 42, 0, 1).ticks()
        [0.0, 10.0, 20.0, 30.0, 40.0]
        >>> Scale(0.02, 30, 0, 1, logarithmic=True).ticks()
        [0.1, 1.0, 10.0]
        """
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [10.0**power for power in powers]
        step = _step((self.high - self.low) / 6.5)
        first = math.ceil(self.low / step - 1e-9)
        return [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _step(least: float) -> float:
    """A round distance of at least so much."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))


def axis(scale: Scale, top: float, bottom: float, *, zero: bool = False) -> str:
    """Upright lines at round figures with their names below; the one at 0 stands out where it matters."""
    parts = []
    for tick in scale.ticks():
        x, strong = scale(tick), zero and abs(tick) < 1e-12
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="zero" if strong else "grid"))
        label = f"{tick:g}".replace("-", "\N{MINUS SIGN}") if abs(tick) >= 1e-4 else f"{tick:g}"
        parts.append(words(x, bottom + 15, label, class_="tick", text_anchor="middle"))
    return "".join(parts)


def span(values: Sequence[float], *, from_zero: bool = True) -> tuple[float, float]:
    """The ends of a scale that holds some figures with a little room."""
    low, high = (min(values, default=0.0), max(values, default=1.0))
    # Figures closer together than this cannot be told apart, and their scale would have no round steps.
    room = max(1e-6, 0.05 * (high - low or abs(high) or 1.0))
    return (0.0 if from_zero and low >= 0 else low - room), high + room

"""The colours of pages and figures, once: light and dark pages, fills that stay apart in greyscale, and hatches.

Fills are those of cividis, which differ in lightness as much as in hue, and each has a hatch of its own, so that
nothing depends on colour alone. Paper uses the light colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LIGHT: Mapping[str, str] = {
    "page": "#fbfbfa", "card": "#ffffff", "ink": "#1b1f24", "soft": "#59636e", "line": "#d9dee3", "hover": "#eef3f8",
    "accent": "#0b5c96", "own": "#0b5c96", "pub": "#9a5b00", "good": "#00664b", "bad": "#a63f00", "good-bg": "#e3f3ec",
    "query": "#ffe48a", "generated": "#bde3f7", "answer": "#f2cbe2",
    "h0": "#f2f6fa", "h1": "#dfeaf3", "h2": "#c9dcec", "h3": "#aecbe2", "h4": "#8db5d5", "h5": "#6a9bc5",
    "h6": "#477fb1", "h7": "#2a6399", "h8": "#10467b",
}  # fmt: skip
"""By the names that the style sheet uses; `h0` to `h8` are the steps of a heat map."""
DARK: Mapping[str, str] = {
    "page": "#11161c", "card": "#181f27", "ink": "#e7ecf1", "soft": "#a3afbb", "line": "#323d49", "hover": "#212b36",
    "accent": "#7cbcf0", "own": "#7cbcf0", "pub": "#f0b45c", "good": "#6fd3ae", "bad": "#ff9d66", "good-bg": "#173129",
    "query": "#6b5500", "generated": "#0f4a66", "answer": "#6a2a52",
    "h0": "#1c2631", "h1": "#1f3040", "h2": "#223c53", "h3": "#264a68", "h4": "#2c5b81", "h5": "#3a719e",
    "h6": "#558cb9", "h7": "#7daad0", "h8": "#aacbe6",
}  # fmt: skip
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
"""Patterns that distinguish filled areas without colour, by matplotlib's names."""
_CIVIDIS = (
    "#163770", "#32436d", "#45506c", "#555c6d", "#656870", "#757575", "#848279", "#958f77", "#a79d73",
    "#baac6d", "#ccba64", "#dfca57", "#f3db42",
)  # fmt: skip
"""From dark to light, in equal steps."""


class Fill(NamedTuple):
    """Style of an area: its colour, its hatch, and the colour of the hatch's lines."""

    color: str
    hatch: str
    line: str

    @property
    def dark(self) -> bool:
        """Return whether light text is read on it."""
        return self.line == "#ffffff"


def fills(count: int) -> list[Fill]:
    """Return so many fills from dark to light: light lines on dark ones, dark lines on light ones."""
    colors = shades(count)
    lines = ["#ffffff" if place < count / 2 else "#404040" for place in range(count)]
    return [Fill(*facts) for facts in zip(colors, HATCHES, lines, strict=False)]


def shades(count: int) -> list[str]:
    """Return so many colours from dark to light, all of them apart in greyscale.

    >>> shades(2)
    ['#163770', '#f3db42']
    """
    colors, last = [], len(_CIVIDIS) - 1
    for number in range(count):
        place = last * number / max(1, count - 1)
        below = min(int(place), last - 1)
        one, other = (bytes.fromhex(color[1:]) for color in _CIVIDIS[below : below + 2])
        parts = [round(a + (place - below) * (b - a)) for a, b in zip(one, other, strict=True)]
        colors.append(f"#{bytes(parts).hex()}")
    return colors


def style_sheet() -> str:
    """Write the colours as variables of a style sheet: by the reader's setting, the page's own switch, and in print."""
    light, dark = (" ".join(f"--{name}: {color};" for name, color in colors.items()) for colors in (LIGHT, DARK))
    every = ':root, :root:not([data-theme="light"]), :root[data-theme="dark"]'
    return "\n".join(
        [
            f":root {{ color-scheme: light dark; {light} }}",
            f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}',
            f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}',
            ':root[data-theme="light"] { color-scheme: light; }',
            f"@media print {{ {every} {{ color-scheme: light; {light} --page: #ffffff; --ink: #000000; }} }}",
            "",
        ]
    )

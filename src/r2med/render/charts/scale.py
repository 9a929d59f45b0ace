"""The scales of all charts, on pages and on paper: where a figure lies, and the one rule for ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Corner: TypeAlias = tuple[int, int]
"""Sides of a mark on which its number stands: 1 right of it and above it, -1 left of it and below it."""
CORNERS: Sequence[Corner] = ((1, 1), (1, -1), (-1, 1), (-1, -1))
_WIDE, _HIGH, _AWAY = 15.0, 12.0, 12.0
"""The room of a number of two digits, and how far its middle is from that of its mark."""


def number_corners(marks: Sequence[tuple[float, float]]) -> list[Corner]:
    """Choose for the number of each mark the first corner that nothing else is in the way of; `y` grows upwards.

    >>> number_corners([(50, 50), (51, 49), (200, 50)])
    [(1, 1), (1, -1), (1, 1)]
    """
    corners: list[Corner] = []
    occupied = list(marks)
    for x, y in marks:
        others = [place for place in occupied if place != (x, y)]
        places, overlaps = {}, {}
        for corner in CORNERS:
            here, up = x + _AWAY * corner[0], y + 0.6 * _AWAY * corner[1]
            places[corner] = (here, up)
            overlaps[corner] = sum(abs(here - a) < _WIDE and abs(up - b) < _HIGH for a, b in others)
        corners.append(min(CORNERS, key=overlaps.__getitem__))
        occupied.append(places[corners[-1]])
    return corners


def legend_columns(names: Sequence[str], characters: int = 110, handle: int = 8) -> int:
    """Return the number of equal legend columns that gives some names as few rows as there is room for.

    >>> legend_columns(["bm25", "wordllama", "replay >> bm25"]), legend_columns(["x" * 50] * 3)
    (3, 1)
    """
    most = max(1, characters // (handle + max(map(len, names), default=0)))
    return math.ceil(len(names) / math.ceil(len(names) / most)) if names else 1


@dataclass(frozen=True)
class Scale:
    """Map from figures to places on a line.

    >>> Scale(0, 10, 100, 200)(5)
    150.0
    """

    low: float
    high: float
    start: float = 0.0
    end: float = 1.0
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a figure; what is beyond the ends lies at them."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, here = math.log10(low), math.log10(high), math.log10(here)
        share = (here - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round figures between the ends, about five.

        >>> Scale(0, 42).ticks()
        [0.0, 10.0, 20.0, 30.0, 40.0]
        >>> Scale(0.02, 30, logarithmic=True).ticks()
        [0.1, 1.0, 10.0]
        >>> Scale(0.8, 12, logarithmic=True).ticks()
        [1.0, 2.0, 5.0, 10.0]
        """
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            digits = (1, 2, 5) if self.high / self.low < 200 else (1,)
            ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
            return [tick for tick in ticks if self.low <= tick <= self.high]
        step, least = 1.0, (self.high - self.low) / 6.5
        if least > 0:
            power = 10.0 ** math.floor(math.log10(least))
            step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [place * step for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


def tick_text(tick: float) -> str:
    """Format a tick's figure.

    >>> tick_text(-30.0), tick_text(2.5)
    ('\u221230', '2.5')
    """
    return f"{tick:g}".replace("-", "\N{MINUS SIGN}") if abs(tick) >= 1e-4 else f"{tick:g}"


def span(values: Sequence[float], *, from_zero: bool = True) -> tuple[float, float]:
    """Return the ends of a scale that holds some figures with a little room."""
    low, high = (min(values, default=0.0), max(values, default=1.0))
    # Figures closer together than this cannot be told apart, and their scale would have no round steps.
    room = max(1e-6, 0.05 * (high - low or abs(high) or 1.0))
    return (0.0 if from_zero and low >= 0 else low - room), high + room

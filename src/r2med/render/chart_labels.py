"""Where the words of a chart go, on pages and on paper: numbers beside marks, names in the columns of a legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Corner(NamedTuple):
    """On which side of its mark a number stands: 1 right of it and above it, -1 left of it and below it."""

    x: int
    y: int


CORNERS = (Corner(1, 1), Corner(1, -1), Corner(-1, 1), Corner(-1, -1))
_WIDE, _HIGH, _AWAY = 15.0, 12.0, 12.0
"""The room of a number of two digits, and how far its middle is from that of its mark."""


def number_corners(marks: Sequence[tuple[float, float]]) -> list[Corner]:
    """For the number of each mark the first corner that nothing else is in the way of; `y` grows upwards.

    >>> number_corners([(50, 50), (51, 49), (200, 50)])
    [Corner(x=1, y=1), Corner(x=1, y=-1), Corner(x=1, y=1)]
    """
    found: list[Corner] = []
    taken = list(marks)
    for x, y in marks:
        places = {corner: (x + _AWAY * corner.x, y + 0.6 * _AWAY * corner.y) for corner in CORNERS}
        others = [place for place in taken if place != (x, y)]
        best = min(CORNERS, key=lambda corner: _in_the_way(places[corner], others))
        found.append(best)
        taken.append(places[best])
    return found


def _in_the_way(place: tuple[float, float], others: Sequence[tuple[float, float]]) -> int:
    """How many of some marks and numbers a number at a place would lie on."""
    return sum(abs(place[0] - x) < _WIDE and abs(place[1] - y) < _HIGH for x, y in others)


def legend_columns(names: Sequence[str], characters: int = 88, handle: int = 9) -> int:
    """Into how many columns of a legend some names go side by side, with as few rows as there is room for.

    >>> legend_columns(["bm25", "wordllama", "replay >> bm25"]), legend_columns(["x" * 50] * 3)
    (3, 1)
    """
    for rows in range(1, len(names)):
        columns = [names[start : start + rows] for start in range(0, len(names), rows)]
        if sum(handle + max(map(len, column)) for column in columns) <= characters:
            return len(columns)
    return 1

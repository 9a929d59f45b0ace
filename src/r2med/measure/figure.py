"""A figure with its interval: the one type of a mean, share, slope or coefficient that carries its uncertainty."""

from __future__ import annotations

import math
from typing import NamedTuple


class Figure(NamedTuple):
    """Value with the ends of its 95% interval; the ends are None if there is no interval.

    >>> print(Figure(0.5, 0.41, 0.583), Figure(0.5))
    50.00 [41.00, 58.30] 50.00
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends of the interval for computing; not a number if there is no interval."""
        return (math.nan, math.nan) if self.low is None or self.high is None else (self.low, self.high)

    @property
    def percents(self) -> tuple[float, float, float]:
        """Return the value and the ends x 100; ends are not a number if there is no interval."""
        low, high = self.ends
        return 100 * self.value, 100 * low, 100 * high

    def __str__(self) -> str:
        value, low, high = self.percents
        return f"{value:.2f}" if self.low is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def figure_dict(figure: Figure | None, name: str = "value") -> dict[str, float | None]:
    """Return a figure for JSON, its value under a name; all are None if there is no figure.

    >>> figure_dict(Figure(0.5, 0.41, 0.583), "mean"), figure_dict(None)
    ({'mean': 0.5, 'low': 0.41, 'high': 0.583}, {'value': None, 'low': None, 'high': None})
    """
    return dict(zip((name, "low", "high"), figure or (None, None, None), strict=True))

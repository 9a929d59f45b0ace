"""Values in thirds, each with about as many as the others, and what these are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Place = tuple[int, str]
"""Which third, and its name."""


def thirds(values: Sequence[float], unit: str) -> Callable[[float], Place]:
    """A namer of thirds.

    >>> name = thirds([1, 2, 3, 4, 5, 6], "{:.0f} words")
    >>> name(1), name(3), name(9)
    ((0, 'up to 2 words'), (1, 'over 2 words, up to 4 words'), (2, 'over 4 words'))
    """
    low, high = np.quantile(values, [1 / 3, 2 / 3], method="inverted_cdf").tolist()

    def name(value: float) -> Place:
        if value <= low:
            return 0, f"up to {unit.format(low)}"
        if value <= high:
            return 1, f"over {unit.format(low)}, up to {unit.format(high)}"
        return 2, f"over {unit.format(high)}"

    return name

"""Does a value known beforehand tell what will happen? The area under the ROC curve, with a bootstrap over queries.

Pairs are formed within tasks only, because scores of different tasks are not comparable; tasks are weighted by pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.measure.bootstrap import percentile_ends, weights

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Discrimination:
    """How often a value is lower where something happened than where it did not; a tie counts half."""

    events: int
    """How often it happened."""
    others: int
    auc: float | None = None
    """None where it always happened, or never."""
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return asdict(self)


def discrimination(tasks: Sequence[tuple[Floats, NDArray[np.bool_]]]) -> Discrimination:
    """The area under the curve of low values as a warning, from each task's values and what happened.

    >>> found = discrimination([(np.array([0.1, 0.9, 0.3, 0.8]), np.array([True, False, True, False]))])
    >>> found.auc, found.events, found.others
    (1.0, 2, 2)
    >>> discrimination([(np.array([0.1, 0.9]), np.array([True, True]))]).auc is None
    True
    """
    events = sum(int(happened.sum()) for _, happened in tasks)
    others = sum(len(happened) for _, happened in tasks) - events
    parts = [_resampled(values, happened, place) for place, (values, happened) in enumerate(tasks) if len(values)]
    won, pairs = (np.sum([part[column] for part in parts], axis=0) for column in (0, 1)) if parts else (None, None)
    if won is None or pairs is None or not pairs[0]:
        return Discrimination(events, others)
    drawn = won[1:] / np.where(pairs[1:] > 0, pairs[1:], np.nan)
    ends = percentile_ends(drawn, [len(values) for values, _ in tasks])
    return Discrimination(events, others, float(won[0] / pairs[0]), *(ends or (None, None)))


def _resampled(values: Floats, happened: NDArray[np.bool_], stratum: int) -> tuple[Floats, Floats]:
    """Pairs in which the event has the lower value, and all pairs: first as observed, then in every resample."""
    below = values[happened][:, None] - values[~happened][None]
    wins = np.where(below < 0, 1.0, np.where(below == 0, 0.5, 0.0))
    won, pairs = [np.array([wins.sum()])], [np.array([float(wins.size)])]
    for shares in weights(len(values), stratum):
        counts = shares * len(values)
        events, others = counts[:, happened], counts[:, ~happened]
        won.append(((events @ wins) * others).sum(axis=1))
        pairs.append(events.sum(axis=1) * others.sum(axis=1))
    return np.concatenate(won), np.concatenate(pairs)

"""A rate from few human labels and many predicted ones: prediction-powered intervals for a mean.

A model's labels alone are biased, and few human labels alone give a wide interval. The mean of the many predicted
labels is corrected by how far predictions are off where a human has looked too; how much the predictions count is
chosen so that the interval is narrowest (Angelopoulos, Duchi and Zrnic 2023). With predictions that say nothing it is
the interval of the human labels alone. What a human has looked at must be a random part of all.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from r2med.errors import R2medError
from r2med.measure.bootstrap import LEVEL, Interval, normal_quantile

Floats = NDArray[np.float64]


def prediction_powered_mean(
    human: ArrayLike, predicted: ArrayLike, further: ArrayLike, trust: float | None = None
) -> Interval:
    """The mean of what humans would say, with its 95% interval.

    `human` and `predicted` are labels of the same items, `further` the predictions for all other items. `trust` says
    how much predictions count, from 0 (not at all) to 1; by default as much as makes the interval narrowest.

    >>> found = prediction_powered_mean([1, 0, 1, 1, 0, 1], [1, 0, 1, 0, 0, 1], [1, 0, 1, 0, 1, 1, 1, 0, 0, 1])
    >>> [round(end, 3) for end in found]
    [0.706, 0.394, 1.018]
    """
    labels, beside, alone = (np.asarray(column, dtype=np.float64) for column in (human, predicted, further))
    if len(labels) != len(beside):
        raise R2medError(f"{len(labels)} human labels for {len(beside)} predictions of the same items")
    if len(labels) < 2 or not len(alone):
        raise R2medError("a prediction-powered interval needs two human labels and one further prediction at least")
    share = best_trust(labels, beside, alone) if trust is None else trust
    corrections = labels - share * beside
    mean = float(share * alone.mean() + corrections.mean())
    error = math.sqrt(float((share**2 * alone.var()) / len(alone) + corrections.var() / len(labels)))
    half = normal_quantile((1 + LEVEL) / 2) * error
    return Interval(mean, mean - half, mean + half)


def best_trust(human: Floats, predicted: Floats, further: Floats) -> float:
    """How much predictions should count for the narrowest interval, from 0 to 1.

    >>> best_trust(np.array([1.0, 0.0, 1.0]), np.zeros(3), np.zeros(9))
    0.0
    """
    together = float(((human - human.mean()) * (predicted - predicted.mean())).mean())
    spread = float(np.concatenate([predicted, further]).var(ddof=1))
    if spread == 0.0:
        return 0.0
    return float(np.clip(together / (1 + len(human) / len(further)) / spread, 0.0, 1.0))
